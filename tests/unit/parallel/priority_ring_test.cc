// SPDX-License-Identifier: Apache-2.0
#include "parallel/priority_ring.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
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
  int value = 0, level = 0, others = 0;
  for (int lap = 0; lap < 1000; ++lap) {  // many laps around the cells
    EXPECT(ring.pop(&value, &level));
    if (level == 0) {  // it has its turn meanwhile
      EXPECT_EQ(value, 100);
      ++others;
      EXPECT(ring.pop(&value, &level));
    }
    EXPECT_EQ(value, lap);
    EXPECT(ring.try_push(1, lap + 4));
    EXPECT(!ring.try_push(1, -1));
  }
  EXPECT_EQ(others, 1);
}

TEST(smallest_ring) {
  PriorityRing<int> ring(1, 1);
  EXPECT_EQ(ring.capacity(), size_t{1});
  int value = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT(!ring.pop(&value));
    EXPECT(ring.try_push(0, i));
    EXPECT(!ring.try_push(0, -1));
    EXPECT(ring.pop(&value));
    EXPECT_EQ(value, i);
  }
}

TEST(values_come_back_as_they_were) {
  PriorityRing<int64_t> integers(1, 4);
  for (const int64_t value : {int64_t{0}, int64_t{1}, std::numeric_limits<int64_t>::max()}) {
    int64_t got = -1;
    EXPECT(integers.try_push(0, value) && integers.pop(&got));
    EXPECT_EQ(got, value);
  }
  PriorityRing<int*> pointers(1, 4);
  int target[2] = {};
  for (int* value : {target, target + 1, static_cast<int*>(nullptr)}) {
    int* got = target;
    EXPECT(pointers.try_push(0, value) && pointers.pop(&got));
    EXPECT(got == value);
  }
}

// Whatever the consumer has not told yet: a level takes all values up to its capacity, and refuses
// before the double of it.
TEST(a_level_that_is_not_full_never_refuses) {
  uint32_t random = 1;
  for (const size_t wanted : {1u, 2u, 3u, 5u, 16u, 17u, 60u, 64u, 100u, 256u, 1000u}) {
    PriorityRing<int> ring(2, wanted);
    EXPECT(ring.capacity() >= wanted);
    size_t held = 0;
    int next = 0, expected = 0;
    bool right = true;
    for (int i = 0; i < 20'000; ++i) {
      random = random * 1664525 + 1013904223;
      int value = 0;
      if (random >> 31 != 0) {
        const bool pushed = ring.try_push(1, next);
        right = right && (pushed ? held < 2 * ring.capacity() : held >= wanted);
        held += pushed ? 1 : 0;
        next += pushed ? 1 : 0;
      } else if ((random >> 20 & 7) != 0 && ring.pop(&value)) {
        right = right && value == expected++;
        --held;
      }
    }
    EXPECT(right);
  }
}

// A stream of the highest level that never ends: the oldest value of each level comes out within
// levels * kLookPops pops, and nearly all pops still go to the highest.
TEST(no_level_starves) {
  constexpr int kLevels = 4;
  PriorityRing<int> ring(kLevels, 16);
  int value = 0, level = 0;
  for (int i = 0; i < 8; ++i) EXPECT(ring.try_push(3, 3));
  for (int round = 0; round < 3 * kLookPops; ++round) {  // wherever the turns are
    for (int low = 0; low < 3; ++low) EXPECT(ring.try_push(low, low));
    int missing = 3, pops = 0;
    for (; missing != 0; ++pops) {
      ASSERT(pops < kLevels * kLookPops);
      ASSERT(ring.pop(&value, &level));
      EXPECT_EQ(value, level);
      if (level == 3) {
        EXPECT(ring.try_push(3, 3));  // never empty
      } else {
        --missing;
      }
    }
    EXPECT(pops > 2 * kLookPops);  // nearly all of them were of level 3
  }
}

TEST(a_higher_level_waits_for_few_pops_of_a_lower_one) {
  PriorityRing<int> ring(3, 4096);
  int value = 0;
  for (int i = 0; i < 4096; ++i) EXPECT(ring.try_push(0, 0));
  for (int i = 0; i < 300; ++i) {  // at any place between two looks
    ASSERT(ring.pop(&value));
    if (i % 7 != 0) continue;
    EXPECT(ring.try_push(2, 1));
    int pops = 0;
    do {
      ASSERT(ring.pop(&value));
      ++pops;
    } while (value != 1);
    EXPECT(pops <= kLookPops + 1);
  }
  // Found empty, it looks from the top.
  while (ring.pop(&value)) {
  }
  EXPECT(ring.try_push(0, 0) && ring.try_push(1, 1) && ring.try_push(2, 2));
  for (int want = 2; want >= 0; --want) {
    EXPECT(ring.pop(&value));
    EXPECT_EQ(value, want);
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
