// SPDX-License-Identifier: Apache-2.0
//
// WaitingQueue: the requests the engine thread has taken from the ring and not started. It holds
// them by a reference inside the requests themselves (T derives from WaitingNode<T>), so it
// allocates nothing; it reads no clock. Of the engine thread alone.
//
// The order, a function of what was pushed, of `now` and of the pops before:
//
// - Between levels: the highest level that has a request. A level below it is *due* when its oldest
//   request has waited ageing_ns for each level that lies between; when kDueShare - 1 pops or more
//   have passed over due requests (or there were none), the next goes to a due level: to the one
//   whose oldest has the smallest submit_ns - level * ageing_ns, the higher one of equals. So a low
//   level gets one start in kDueShare at least, once it has waited long enough, and the highest
//   level keeps all others however much waits below.
// - Inside a level: tenants take turns. One that comes in takes the last turn, one that was served
//   goes behind the others. Tenant 0 (requests without a tenant) has one turn, like any other.
// - Of one tenant in a level: in order of push.
//
// push, front, pop and remove cost a few dozen instructions, whatever waits (expected: tenants are
// found by a hash).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/linked_list.h"
#include "engine/request.h"
#include "parallel/clock.h"

namespace lmn::engine {

inline constexpr int kPriorityLevels = kMaxPriority - kMinPriority + 1;
inline int priority_level(int32_t priority) { return priority - kMinPriority; }

// A person who waits for an answer notices a second; work of the level below may wait that long.
inline constexpr int64_t kDefaultAgeingNs = 1'000'000'000;
// Of this many starts in a row, due requests get one: the highest level keeps three quarters of the
// machine under any load below it.
inline constexpr int kDueShare = 4;
// A sequence that started because it was due keeps its place for so many steps at least: enough for
// a paragraph, or for a prompt of any length.
inline constexpr int32_t kRaisedSteps = 64;

// The queue's part of a request. Only the queue touches it.
template <typename T>
class WaitingNode {
 public:
  bool queued() const { return queued_ != nullptr; }

 private:
  template <typename U>
  friend class WaitingQueue;
  enum LinkKind { kAge, kTenant, kTurn, kLinks };

  std::shared_ptr<T> queued_;  // the queue's reference
  uint64_t tenant_ = 0;
  int64_t submit_ns_ = 0;
  int level_ = 0;
  Link<T> links_[kLinks];
  // Of a tenant's first request in its level, which stands for the tenant:
  T* tenant_last_ = nullptr;
  T* next_in_bucket_ = nullptr;
};

template <typename T>
class WaitingQueue {
 public:
  explicit WaitingQueue(int64_t ageing_ns = kDefaultAgeingNs) : ageing_ns_(ageing_ns) {}
  ~WaitingQueue() {
    extract([](const T&) { return true; }, [](std::shared_ptr<T>) {});
  }
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;

  bool empty() const { return size_ == 0; }
  int size() const { return size_; }

  // `level` in [0, kPriorityLevels), 0 the lowest; `submit_ns` on the clock of `now` below.
  void push(std::shared_ptr<T> request, int level, uint64_t tenant, int64_t submit_ns) {
    T* node = adopt(std::move(request), level, tenant, submit_ns);
    levels_[index(level)].age.push_back(node);
    T*& bucket = bucket_of(level, tenant);
    if (T* first = find(bucket, level, tenant)) {
      node->links_[Node::kTenant] = {first->tenant_last_, nullptr};
      first->tenant_last_->links_[Node::kTenant].after = node;
      first->tenant_last_ = node;
    } else {
      lead(node, node, bucket);
      levels_[index(level)].turn.push_back(node);
    }
  }

  // Back to where it came from (preemption): the next one that its level gives, and its oldest.
  void push_front(std::shared_ptr<T> request, int level, uint64_t tenant, int64_t submit_ns) {
    T* node = adopt(std::move(request), level, tenant, submit_ns);
    Level& l = levels_[index(level)];
    l.age.push_front(node);
    T*& bucket = bucket_of(level, tenant);
    T* last = node;
    if (T* first = find(bucket, level, tenant)) {
      last = first->tenant_last_;
      node->links_[Node::kTenant].after = first;
      first->links_[Node::kTenant].before = node;
      l.turn.remove(first);
      unlead(first, bucket);
    }
    lead(node, last, bucket);
    l.turn.push_front(node);
  }

  // What pop(now) would take; null when empty. Without `due`, the highest level goes whoever is
  // due.
  T* front(int64_t now, bool due = true) const {
    return empty() ? nullptr : levels_[index(choose(now, due).level)].turn.first;
  }
  std::shared_ptr<T> pop(int64_t now, bool due = true) {
    if (empty()) return nullptr;
    const Choice choice = choose(now, due);
    passed_over_ = choice.below_the_highest ? 0 : std::min(passed_over_ + 1, kDueShare - 1);
    Level& l = levels_[index(choice.level)];
    T* node = l.turn.first;
    T* second = node->links_[Node::kTenant].after;
    std::shared_ptr<T> request = remove(*node);
    if (second != nullptr) {  // the tenant's turn is over
      l.turn.remove(second);
      l.turn.push_back(second);
    }
    return request;
  }

  // When, after `now`, another one may become first because it is due by then; kNoDeadline: never.
  int64_t next_due(int64_t now) const {
    int highest = -1;
    int64_t next = parallel::kNoDeadline;
    for (int level = kPriorityLevels; level-- > 0;) {
      const T* oldest = levels_[index(level)].age.first;
      if (oldest == nullptr) continue;
      highest = std::max(highest, level);
      const int64_t since = passes_at(*oldest, highest);
      if (since > now) next = std::min(next, since);
    }
    return next;
  }

  // Takes out a request that is in the queue; it uses up no turn.
  std::shared_ptr<T> remove(T& request) {
    T* node = &request;
    Level& l = levels_[index(node->level_)];
    l.age.remove(node);
    const Link<T> link = node->links_[Node::kTenant];
    if (link.before == nullptr) {  // the tenant's first: its second takes its place
      T*& bucket = bucket_of(node->level_, node->tenant_);
      unlead(node, bucket);
      if (link.after != nullptr) {
        link.after->links_[Node::kTenant].before = nullptr;
        lead(link.after, node->tenant_last_, bucket);
        l.turn.replace(node, link.after);
      } else {
        l.turn.remove(node);
      }
    } else {
      link.before->links_[Node::kTenant].after = link.after;
      if (link.after != nullptr) {
        link.after->links_[Node::kTenant].before = link.before;
      } else {
        find(bucket_of(node->level_, node->tenant_), node->level_, node->tenant_)->tenant_last_ =
            link.before;
      }
    }
    --size_;
    return std::move(node->queued_);
  }

  // Shows at most `limit` requests, the highest level first and the oldest of a level first, until
  // visit(T&) returns false. `visit` does not change the queue.
  template <typename Visit>
  void scan(int limit, const Visit& visit) const {
    for (int level = kPriorityLevels; level-- > 0;) {
      for (T* node = levels_[index(level)].age.first; node != nullptr;
           node = node->links_[Node::kAge].after) {
        if (limit-- <= 0 || !visit(*node)) return;
      }
    }
  }

  // Takes out every request for which `wanted` holds, in the order of scan(), and hands it to
  // `receive`. Neither changes the queue.
  template <typename Wanted, typename Receive>
  void extract(const Wanted& wanted, const Receive& receive) {
    for (int level = kPriorityLevels; level-- > 0;) {
      for (T* node = levels_[index(level)].age.first; node != nullptr;) {
        T* after = node->links_[Node::kAge].after;
        if (wanted(*node)) receive(remove(*node));
        node = after;
      }
    }
  }

 private:
  using Node = WaitingNode<T>;

  template <typename Node::LinkKind kKind>
  struct Links {
    static Link<T>& of(T* node) { return node->links_[kKind]; }
  };
  template <typename Node::LinkKind kKind>
  using List = LinkedList<T, Links<kKind>>;
  struct Level {
    List<Node::kAge> age;    // all requests, oldest first
    List<Node::kTurn> turn;  // the first request of each tenant, in the order of their turns
  };
  struct Choice {
    int level;
    bool below_the_highest;
  };

  static size_t index(int level) { return static_cast<size_t>(level); }

  // Not empty.
  Choice choose(int64_t now, bool due_ones) const {
    int highest = -1, due = -1;
    int64_t due_since = 0;
    for (int level = kPriorityLevels; level-- > 0;) {
      const T* oldest = levels_[index(level)].age.first;
      if (oldest == nullptr) continue;
      if (highest < 0) {
        highest = level;
        if (!due_ones || passed_over_ < kDueShare - 1) break;
        continue;
      }
      const int64_t since = passes_at(*oldest, highest);
      if (since <= now && (due < 0 || since < due_since)) {
        due = level;
        due_since = since;
      }
    }
    return due < 0 ? Choice{highest, false} : Choice{due, true};
  }

  // From when on a request goes before those of the highest level that waits.
  int64_t passes_at(const T& request, int highest) const {
    return request.submit_ns_ + (highest - request.level_) * ageing_ns_;
  }

  T* adopt(std::shared_ptr<T> request, int level, uint64_t tenant, int64_t submit_ns) {
    T* node = request.get();
    static_cast<Node&>(*node) = Node();
    node->queued_ = std::move(request);
    node->tenant_ = tenant;
    node->submit_ns_ = submit_ns;
    node->level_ = level;
    ++size_;
    return node;
  }

  T*& bucket_of(int level, uint64_t tenant) {
    // Fibonacci hashing: the high bits of a product depend on all bits of the key.
    return buckets_[((tenant ^ static_cast<uint64_t>(level) << 56) * 0x9E3779B97F4A7C15u) >> 56];
  }
  // The tenant's first request in that level, or null.
  static T* find(T* bucket, int level, uint64_t tenant) {
    while (bucket != nullptr && (bucket->level_ != level || bucket->tenant_ != tenant))
      bucket = bucket->next_in_bucket_;
    return bucket;
  }
  void lead(T* first, T* last, T*& bucket) {
    first->tenant_last_ = last;
    first->next_in_bucket_ = bucket;
    bucket = first;
  }
  void unlead(T* first, T*& bucket) {
    T** link = &bucket;
    while (*link != first) link = &(*link)->next_in_bucket_;
    *link = first->next_in_bucket_;
  }

  const int64_t ageing_ns_;
  int size_ = 0;
  int passed_over_ = kDueShare - 1;  // pops since one went to a due level, counted up to here
  std::array<Level, kPriorityLevels> levels_;
  std::array<T*, 256> buckets_{};
};

}  // namespace lmn::engine
