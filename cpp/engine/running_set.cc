// SPDX-License-Identifier: Apache-2.0
#include "engine/running_set.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "engine/kv_cache.h"
#include "engine/sequence.h"

namespace lmn::engine {

template <RunningNode::LinkKind kKind>
Link<Sequence>& RunningSet::Links<kKind>::of(Sequence* sequence) {
  return static_cast<Node*>(sequence)->running_links_[kKind];
}

Sequence* RunningSet::after(Sequence* sequence) { return Links<Node::kOrder>::of(sequence).after; }

Sequence* RunningSet::last() const {
  for (const Level& level : levels_) {
    if (!level.order.empty()) return level.order.last;
  }
  return nullptr;
}

void RunningSet::add(std::shared_ptr<Sequence> sequence) {
  Sequence& node = *sequence;
  LMN_CHECK(!node.running());
  static_cast<Node&>(node).held_ = std::move(sequence);
  ++size_;
  enter(node);
}

std::shared_ptr<Sequence> RunningSet::remove(Sequence& sequence) {
  leave(sequence);
  --size_;
  return std::move(static_cast<Node&>(sequence).held_);
}

void RunningSet::move(Sequence& sequence, int level) {
  leave(sequence);
  sequence.level = level;
  enter(sequence);
}

void RunningSet::clear() {
  while (Sequence* sequence = last()) (void)remove(*sequence);
}

void RunningSet::enter(Sequence& sequence) {
  Level& level = of(sequence.level);
  level.order.push_back(&sequence);
  ++level.count;
  take_place(sequence);
  update(sequence);
}

void RunningSet::leave(Sequence& sequence) {
  Node& node = sequence;
  Level& level = of(sequence.level);
  give_up_place(sequence);
  level.order.remove(&sequence);
  --level.count;
  level.pages -= std::exchange(node.pages_, 0);
  level.lacking -= std::exchange(node.lacking_, 0);
}

void RunningSet::update(Sequence& sequence) {
  Node& node = sequence;
  Level& level = of(sequence.level);
  const auto pages = static_cast<int32_t>(sequence.cache.pages.size());
  const auto lacking = static_cast<int32_t>(sequence.lacking_pages());
  level.pages += pages - std::exchange(node.pages_, pages);
  level.lacking += lacking - std::exchange(node.lacking_, lacking);
  if (place_of(sequence) == node.place_ && node.place_ != Node::kAsleep) return;
  give_up_place(sequence);
  take_place(sequence);
}

RunningNode::Place RunningSet::place_of(const Sequence& sequence) const {
  if (sequence.wake_ns > now_) return Node::kAsleep;
  return sequence.known_tokens() - sequence.cache.computed == 1 ? Node::kAnswers : Node::kPrompts;
}

void RunningSet::take_place(Sequence& sequence) {
  Node& node = sequence;
  node.place_ = place_of(sequence);
  if (node.place_ == Node::kAsleep) {
    asleep_.push(sequence, sequence.wake_ns);
  } else {
    of(sequence.level).ready[node.place_].push_back(&sequence);
    ++ready_[node.place_];
  }
}

void RunningSet::give_up_place(Sequence& sequence) {
  const Node& node = sequence;
  if (node.place_ == Node::kAsleep) {
    asleep_.remove(sequence);
  } else {
    of(sequence.level).ready[node.place_].remove(&sequence);
    --ready_[node.place_];
  }
}

void RunningSet::wake(int64_t now) {
  now_ = now;
  while (asleep_.first_due() <= now) update(*asleep_.first());
}

void RunningSet::list_ready(size_t limit, std::vector<Sequence*>& members) const {
  members.clear();
  for (const Node::Place place : {Node::kAnswers, Node::kPrompts}) {
    const size_t end = members.size() + limit;
    for (int level = kPriorityLevels; level-- > 0;) {
      for (Sequence* node = of(level).ready[place].first; node != nullptr && members.size() < end;
           node = Links<Node::kReady>::of(node).after)
        members.push_back(node);
    }
  }
}

void RunningSet::end_turn(Sequence& sequence) {
  auto& turns = of(sequence.level).ready[Node::kAnswers];
  LMN_CHECK(static_cast<const Node&>(sequence).place_ == Node::kAnswers);
  turns.remove(&sequence);
  turns.push_back(&sequence);
}

int64_t RunningSet::needs(int level) const {
  int64_t pages = 0;
  for (; level < kPriorityLevels; ++level)
    pages += of(level).lacking + static_cast<int64_t>(of(level).count);
  return pages;
}

int64_t RunningSet::pages_below(int level) const {
  int64_t pages = 0;
  while (level-- > 0) pages += of(level).pages;
  return pages;
}

size_t RunningSet::count_below(int level) const {
  size_t count = 0;
  while (level-- > 0) count += of(level).count;
  return count;
}

}  // namespace lmn::engine
