// SPDX-License-Identifier: Apache-2.0
//
// RunningSet: the sequences that run, in order of precedence: the higher level first, then the
// order in which they came to it. It holds them, knows which of them the next step may move on and
// when others are due (paced ones sleep between their tokens), and keeps the sums that starting and
// preempting look at. Every operation costs the same however many run, but for those that say
// otherwise; none allocates. It reads no clock. Of the engine thread alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/due_heap.h"
#include "engine/linked_list.h"
#include "engine/waiting_queue.h"

namespace lmn::engine {

class Sequence;

// The set's part of a sequence. Only the set touches it.
class RunningNode {
 public:
  bool running() const { return held_ != nullptr; }

 private:
  friend class RunningSet;
  enum LinkKind { kOrder, kReady, kLinks };
  enum Place : uint8_t { kAnswers, kPrompts, kAsleep };

  std::shared_ptr<Sequence> held_;  // the set's reference
  Link<Sequence> running_links_[kLinks];
  int32_t pages_ = 0, lacking_ = 0;  // as counted in the sums
  Place place_ = kAsleep;
};

class RunningSet {
 public:
  RunningSet() = default;
  RunningSet(const RunningSet&) = delete;
  RunningSet& operator=(const RunningSet&) = delete;
  ~RunningSet() { clear(); }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  Sequence* last() const;  // in precedence; null when empty

  // Behind all others of its level.
  void add(std::shared_ptr<Sequence> sequence);
  std::shared_ptr<Sequence> remove(Sequence& sequence);
  // Behind all others of that level, which becomes the sequence's.
  void move(Sequence& sequence, int level);
  // After tokens, pages or due time of a running sequence have changed.
  void update(Sequence& sequence);
  void clear();

  // Sequences whose time has come wake up: those that are due at `now`, which never goes back.
  void wake(int64_t now);
  bool ready() const { return ready_[RunningNode::kAnswers] + ready_[RunningNode::kPrompts] > 0; }
  // When the first one that sleeps is due; kNoDeadline: none sleeps.
  int64_t next_due() const { return asleep_.first_due(); }
  // Replaces `members` by those that the next step may move on: at most `limit` that need one
  // token, in order of their turns, then at most `limit` that need more, each the higher levels
  // first. Costs as much as it lists.
  void list_ready(size_t limit, std::vector<Sequence*>& members) const;
  size_t ready_answers() const { return ready_[RunningNode::kAnswers]; }
  // One that needs one token has had its turn: the others of its level go first.
  void end_turn(Sequence& sequence);

  // Pages that running sequences of this level and above need beyond what they hold: for the tokens
  // that they know, and one for the growth of each.
  int64_t needs(int level) const;
  int64_t pages_below(int level) const;  // held by lower levels
  size_t count_below(int level) const;

  // In order of precedence. `visit` does not change the set.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (int level = kPriorityLevels; level-- > 0;) {
      for (Sequence* node = of(level).order.first; node != nullptr; node = after(node))
        visit(*node);
    }
  }

 private:
  using Node = RunningNode;
  template <Node::LinkKind kKind>
  struct Links {
    static Link<Sequence>& of(Sequence* sequence);
  };
  template <Node::LinkKind kKind>
  using List = LinkedList<Sequence, Links<kKind>>;
  struct Level {
    List<Node::kOrder> order;
    List<Node::kReady> ready[Node::kAsleep];  // kAnswers, kPrompts
    size_t count = 0;
    int64_t pages = 0, lacking = 0;
  };

  Level& of(int level) { return levels_[static_cast<size_t>(level)]; }
  const Level& of(int level) const { return levels_[static_cast<size_t>(level)]; }
  static Sequence* after(Sequence* sequence);
  void enter(Sequence& sequence);
  void leave(Sequence& sequence);
  void take_place(Sequence& sequence);
  void give_up_place(Sequence& sequence);
  Node::Place place_of(const Sequence& sequence) const;

  std::array<Level, kPriorityLevels> levels_;
  DueHeap<Sequence> asleep_;
  std::array<size_t, Node::kAsleep> ready_{};  // of all levels
  size_t size_ = 0;
  int64_t now_ = 0;  // as given to wake()
};

}  // namespace lmn::engine
