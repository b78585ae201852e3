// SPDX-License-Identifier: Apache-2.0
#include "parallel/priority_ring.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "testing.h"

namespace lmn::parallel {
namespace {

TEST(oldest_of_the_highest_level_first) {
  PriorityRing<int> ring(4, 8);
  for (const auto& [level, value] : {std::pair{0, 1}, {2, 2}, {1, 3}, {3, 4}, {2, 5}, {3, 6}}) {
    EXPECT(ring.try_push(level, value));
  }
  int value = 0, level = 0;
  std::vector<int> values, levels;
  while (ring.pop(&value, &level)) {
    values.push_back(value);
    levels.push_back(level);
  }
  EXPECT((values == std::vector<int>{4, 6, 2, 5, 3, 1}));
  EXPECT((levels == std::vector<int>{3, 3, 2, 2, 1, 0}));
}

TEST(a_full_level_refuses_and_disturbs_no_other) {
  PriorityRing<int> ring(2, 3);
  EXPECT_EQ(ring.capacity(), size_t{4});  // rounded up to a power of two
  for (int i = 0; i < 4; ++i) EXPECT(ring.try_push(1, i));
  EXPECT(!ring.try_push(1, 4));
  EXPECT(ring.try_push(0, 100));
  int value = 0;
  for (int lap = 0; lap < 1000; ++lap) {  // many laps around the cells
    EXPECT(ring.pop(&value));
    EXPECT_EQ(value, lap);
    EXPECT(ring.try_push(1, lap + 4));
    EXPECT(!ring.try_push(1, -1));
  }
}

TEST(smallest_ring) {
  PriorityRing<int> ring(1, 1);
  EXPECT_EQ(ring.capacity(), size_t{2});
  int value = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT(!ring.pop(&value));
    EXPECT(ring.try_push(0, 2 * i));
    EXPECT(ring.try_push(0, 2 * i + 1));
    EXPECT(!ring.try_push(0, -1));
    EXPECT(ring.pop(&value));
    EXPECT_EQ(value, 2 * i);
    EXPECT(ring.pop(&value));
    EXPECT_EQ(value, 2 * i + 1);
  }
}

// value = producer << 40 | level << 32 | number: every one arrives once, and in order for its
// producer and level.
TEST(producers_under_stress_lose_nothing_and_keep_their_order) {
  constexpr int kProducers = 4, kLevels = 4;
  constexpr uint32_t kPerLevel = 20'000;
  PriorityRing<uint64_t> ring(kLevels, 64);
  std::atomic<int> refused{0};
  std::vector<std::thread> producers;
  for (uint64_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      uint32_t next[kLevels] = {};
      for (uint32_t sent = 0; sent < kPerLevel * kLevels;) {
        for (uint64_t level = 0; level < kLevels; ++level) {
          if (next[level] == kPerLevel) continue;
          if (ring.try_push(static_cast<int>(level), p << 40 | level << 32 | next[level])) {
            ++next[level];
            ++sent;
          } else {
            refused.fetch_add(1, std::memory_order_relaxed);
            std::this_thread::yield();
          }
        }
      }
    });
  }
  uint32_t expected[kProducers][kLevels] = {};
  bool ordered = true;
  for (uint32_t received = 0; received < kProducers * kLevels * kPerLevel;) {
    uint64_t value = 0;
    int level = 0;
    if (!ring.pop(&value, &level)) {
      std::this_thread::yield();
      continue;
    }
    ++received;
    uint32_t& want = expected[value >> 40][level];
    ordered = ordered && ((value >> 32) & 0xFF) == static_cast<uint64_t>(level) &&
              (value & 0xFFFFFFFF) == want;
    ++want;
  }
  for (auto& producer : producers) producer.join();
  EXPECT(ordered);
  uint64_t value = 0;
  EXPECT(!ring.pop(&value));
}

}  // namespace
}  // namespace lmn::parallel
