// SPDX-License-Identifier: Apache-2.0
//
// DueHeap against a sorted map, under random pushes and removals.
#include "engine/due_heap.h"

#include <map>
#include <random>
#include <vector>

#include "testing.h"

namespace lmn::engine {
namespace {

struct Item : DueNode<Item> {
  int64_t due = 0;
};

TEST(due_heap_gives_what_is_due_first) {
  std::mt19937 random(1);
  std::vector<Item> items(300);
  std::multimap<int64_t, Item*> want;
  DueHeap<Item> heap;
  EXPECT_EQ(heap.first_due(), parallel::kNoDeadline);
  EXPECT(heap.first() == nullptr);
  const auto forget = [&](Item& item) {
    auto it = want.lower_bound(item.due);
    while (it->second != &item) ++it;
    want.erase(it);
  };
  for (int round = 0; round < 100'000; ++round) {
    Item& item = items[random() % items.size()];
    if (!DueHeap<Item>::contains(item)) {
      item.due = static_cast<int64_t>(random() % 1'000);
      heap.push(item, item.due);
      want.emplace(item.due, &item);
    } else if (random() % 2 == 0) {
      heap.remove(item);
      forget(item);
    } else {
      Item& first = *heap.first();
      EXPECT_EQ(first.due, want.begin()->first);
      heap.remove(first);
      forget(first);
    }
    ASSERT(heap.first_due() == (want.empty() ? parallel::kNoDeadline : want.begin()->first));
  }
  while (!heap.empty()) {
    Item& first = *heap.first();
    ASSERT(first.due == want.begin()->first);
    heap.remove(first);
    forget(first);
  }
  EXPECT(want.empty());
}

}  // namespace
}  // namespace lmn::engine
