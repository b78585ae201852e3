// SPDX-License-Identifier: Apache-2.0
//
// The order of WaitingQueue: cases by hand, and a plain list that follows the rules of the header
// word by word, under random operations.
#include "engine/waiting_queue.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "testing.h"

namespace lmn::engine {
namespace {

struct QueueItem : WaitingNode<QueueItem> {
  explicit QueueItem(int number) : id(number) { ++live; }
  ~QueueItem() { --live; }
  int id;
  static inline int live = 0;
};
using Queue = WaitingQueue<QueueItem>;

std::vector<int> drain(Queue& queue, int64_t now = 0) {
  std::vector<int> ids;
  while (!queue.empty()) {
    const QueueItem* front = queue.front(now);
    const auto item = queue.pop(now);
    EXPECT(item.get() == front);
    ids.push_back(item->id);
  }
  EXPECT(queue.front(now) == nullptr);
  EXPECT(queue.pop(now) == nullptr);
  return ids;
}

TEST(highest_level_first_and_in_order_inside) {
  Queue queue;
  int id = 0;
  for (const int level : {0, 2, 1, 4, 2, 4})
    queue.push(std::make_shared<QueueItem>(id++), level, 0, 0);
  EXPECT_EQ(queue.size(), 6);
  EXPECT((drain(queue) == std::vector<int>{3, 5, 1, 4, 2, 0}));
  EXPECT_EQ(QueueItem::live, 0);
}

TEST(tenants_of_a_level_take_turns) {
  Queue queue;
  // Tenant 7: 0 1 2 3. Tenant 0: 10 11. Tenant 9: 20.
  for (int i = 0; i < 4; ++i) queue.push(std::make_shared<QueueItem>(i), 2, 7, 0);
  for (int i = 10; i < 12; ++i) queue.push(std::make_shared<QueueItem>(i), 2, 0, 0);
  queue.push(std::make_shared<QueueItem>(20), 2, 9, 0);
  EXPECT_EQ(queue.pop(0)->id, 0);
  queue.push(std::make_shared<QueueItem>(30), 2, 5, 0);  // behind 7, which has had its turn
  EXPECT((drain(queue) == std::vector<int>{10, 20, 1, 30, 11, 2, 3}));
}

TEST(turns_of_one_level_do_not_touch_another) {
  Queue queue;
  for (int i = 0; i < 3; ++i) queue.push(std::make_shared<QueueItem>(i), 1, 7, 0);
  for (int i = 10; i < 12; ++i) queue.push(std::make_shared<QueueItem>(i), 3, 7, 0);
  queue.push(std::make_shared<QueueItem>(20), 3, 8, 0);
  queue.push(std::make_shared<QueueItem>(30), 1, 8, 0);
  EXPECT((drain(queue) == std::vector<int>{10, 20, 11, 0, 30, 1, 2}));
}

TEST(a_preempted_request_comes_back_to_the_front) {
  Queue queue;
  for (int i = 0; i < 2; ++i) queue.push(std::make_shared<QueueItem>(i), 2, 7, 10);
  queue.push(std::make_shared<QueueItem>(10), 2, 8, 10);
  queue.push_front(std::make_shared<QueueItem>(20), 2, 8, 5);  // its tenant waits
  queue.push_front(std::make_shared<QueueItem>(21), 2, 9, 4);  // its tenant does not
  queue.push_front(std::make_shared<QueueItem>(22), 2, 8, 3);
  queue.push(std::make_shared<QueueItem>(40), 4, 0, 10);
  std::vector<int> seen;
  queue.scan(4, [&](const QueueItem& item) {
    seen.push_back(item.id);
    return true;
  });
  EXPECT((seen == std::vector<int>{40, 22, 21, 20}));
  EXPECT((drain(queue) == std::vector<int>{40, 22, 21, 0, 20, 1, 10}));
}

// A stream of level 4 that never ends: a request d levels lower starts within kDueShare pops of the
// moment when it has waited d * ageing_ns, and not before.
TEST(ageing_bounds_the_wait_of_a_low_level) {
  constexpr int64_t kAgeing = 100;
  for (const int low : {0, 1, 3}) {
    Queue queue(kAgeing);
    queue.push(std::make_shared<QueueItem>(-1), low, 0, 1'000);
    int64_t now = 1'000;
    for (bool started = false; !started; ++now) {
      ASSERT(now < 2'000);
      queue.push(std::make_shared<QueueItem>(1), 4, 0, now);
      started = queue.pop(now)->id == -1;
      EXPECT(started == (now == 1'000 + (4 - low) * kAgeing));  // nobody was due before it
    }
  }
}

TEST(due_requests_get_one_start_in_four) {
  Queue queue(100);
  for (int i = 0; i < 100; ++i) queue.push(std::make_shared<QueueItem>(i), 1, 0, 0);
  for (int i = 100; i < 200; ++i) queue.push(std::make_shared<QueueItem>(i), 0, 0, 0);
  std::vector<int> low;
  for (int i = 0; i < 400; ++i) {
    queue.push(std::make_shared<QueueItem>(-1), 3, 0, 1'000);
    const int id = queue.pop(1'000)->id;
    if (id >= 0) low.push_back(id);
    EXPECT_EQ(static_cast<int>(low.size()), i / kDueShare + 1);
  }
  // 0 - 1 * 100 is before 0 - 0 * 100: all of level 1, in order.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(low[static_cast<size_t>(i)], i);
}

TEST(the_most_overdue_level_first) {
  Queue queue(100);
  queue.push(std::make_shared<QueueItem>(1), 1, 0, 250);  // due at 250 + 300
  queue.push(std::make_shared<QueueItem>(0), 0, 0, 140);  // due at 140 + 400
  queue.push(std::make_shared<QueueItem>(2), 2, 0,
             340);  // due at 340 + 200, and the higher of equals
  queue.push(std::make_shared<QueueItem>(3), 3, 0, 600);  // not due
  for (int i = 10; i < 20; ++i) queue.push(std::make_shared<QueueItem>(i), 4, 0, 600);
  EXPECT(
      (drain(queue, 600) == std::vector<int>{2, 10, 11, 12, 0, 13, 14, 15, 1, 16, 17, 18, 19, 3}));
}

// --- against a plain list
// -------------------------------------------------------------------------

class Reference {
 public:
  explicit Reference(int64_t ageing_ns) : ageing_ns_(ageing_ns) {}
  struct Entry {
    int id, level;
    uint64_t tenant;
    int64_t submit_ns;
  };
  void push(Entry entry) {
    waiting_[entry.level].push_back(entry);
    join(entry, false);
  }
  void push_front(Entry entry) {
    waiting_[entry.level].push_front(entry);
    leave(entry);
    join(entry, true);
  }
  int pop(int64_t now) {
    int highest = kPriorityLevels - 1;
    while (highest >= 0 && waiting_[highest].empty()) --highest;
    if (highest < 0) return -1;
    int chosen = highest;
    if (passed_ >= kDueShare - 1) {
      for (int level = highest - 1; level >= 0; --level) {
        if (waiting_[level].empty()) continue;
        const auto key = [&](int l) { return waiting_[l][0].submit_ns - l * ageing_ns_; };
        const bool due = now - waiting_[level][0].submit_ns >= (highest - level) * ageing_ns_;
        if (due && (chosen == highest || key(level) < key(chosen))) chosen = level;
      }
    }
    passed_ = chosen == highest ? passed_ + 1 : 0;
    const uint64_t tenant = turns_[chosen][0];
    const auto entry = *std::find_if(waiting_[chosen].begin(), waiting_[chosen].end(),
                                     [&](const Entry& e) { return e.tenant == tenant; });
    remove(entry.id);
    if (std::erase(turns_[chosen], tenant) != 0) turns_[chosen].push_back(tenant);
    return entry.id;
  }
  void remove(int id) {
    for (auto& level : waiting_) {
      const auto at =
          std::find_if(level.begin(), level.end(), [&](const Entry& e) { return e.id == id; });
      if (at == level.end()) continue;
      const Entry entry = *at;
      level.erase(at);
      const auto same = [&](const Entry& e) { return e.tenant == entry.tenant; };
      if (std::none_of(level.begin(), level.end(), same)) leave(entry);
    }
  }
  std::vector<int> scan() const {
    std::vector<int> ids;
    for (int level = kPriorityLevels; level-- > 0;) {
      for (const Entry& entry : waiting_[level]) ids.push_back(entry.id);
    }
    return ids;
  }

 private:
  void leave(const Entry& entry) { std::erase(turns_[entry.level], entry.tenant); }
  void join(const Entry& entry, bool front) {
    auto& turns = turns_[entry.level];
    if (std::find(turns.begin(), turns.end(), entry.tenant) != turns.end()) return;
    turns.insert(front ? turns.begin() : turns.end(), entry.tenant);
  }
  int64_t ageing_ns_;
  int passed_ = kDueShare;
  std::deque<Entry> waiting_[kPriorityLevels];
  std::deque<uint64_t> turns_[kPriorityLevels];
};

void compare_with_reference(uint32_t seed, uint64_t tenants) {
  constexpr int64_t kAgeing = 50;
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  Queue queue(kAgeing);
  Reference reference(kAgeing);
  std::vector<std::pair<int, QueueItem*>> waiting;
  int64_t now = 0;
  bool same = true;
  const auto forget = [&](int id) {
    std::erase_if(waiting, [&](const auto& w) { return w.first == id; });
  };
  for (int id = 0; id < 4'000; ++id) {
    now += below(20);
    const int what = below(100);
    const Reference::Entry entry{id, below(kPriorityLevels), random() % tenants * 0x100000001,
                                 now - below(30)};
    if (what < 50) {
      auto item = std::make_shared<QueueItem>(id);
      waiting.emplace_back(id, item.get());
      if (what < 45) {
        queue.push(std::move(item), entry.level, entry.tenant, entry.submit_ns);
        reference.push(entry);
      } else {
        queue.push_front(std::move(item), entry.level, entry.tenant, entry.submit_ns);
        reference.push_front(entry);
      }
    } else if (what < 90) {
      const QueueItem* front = queue.front(now);
      const int expected = reference.pop(now);
      const auto item = queue.pop(now);
      same = same && (item == nullptr ? -1 : item->id) == expected && item.get() == front;
      forget(expected);
    } else if (what < 98 && !waiting.empty()) {
      const auto [gone, item] = waiting[static_cast<size_t>(below(uint32_t(waiting.size())))];
      same = same && queue.remove(*item)->id == gone;
      reference.remove(gone);
      forget(gone);
    } else if (what >= 98) {
      const int residue = below(7);
      queue.extract([&](const QueueItem& item) { return item.id % 7 == residue; },
                    [&](const std::shared_ptr<QueueItem>& item) {
                      reference.remove(item->id);
                      forget(item->id);
                    });
    }
    std::vector<int> seen;
    queue.scan(1 << 30, [&](const QueueItem& item) {
      seen.push_back(item.id);
      return true;
    });
    same = same && seen == reference.scan() && queue.size() == static_cast<int>(waiting.size()) &&
           QueueItem::live == queue.size();
    ASSERT(same);
  }
}
TEST(random_operations_as_the_reference) {
  compare_with_reference(1, 1);
  compare_with_reference(2, 4);
  compare_with_reference(3, 1'000);  // more than there are buckets
}

TEST(a_queue_that_goes_drops_what_waits) {
  {
    Queue queue;
    for (int i = 0; i < 10; ++i) queue.push(std::make_shared<QueueItem>(i), i % 3, i % 2, 0);
    EXPECT_EQ(QueueItem::live, 10);
  }
  EXPECT_EQ(QueueItem::live, 0);
}

TEST(scan_stops_when_told) {
  Queue queue;
  for (int i = 0; i < 10; ++i) queue.push(std::make_shared<QueueItem>(i), 0, 0, 0);
  int calls = 0;
  queue.scan(100, [&](const QueueItem& item) {
    ++calls;
    return item.id < 2;
  });
  EXPECT_EQ(calls, 3);
  queue.scan(0, [&](const QueueItem&) {
    ++calls;
    return true;
  });
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace lmn::engine
