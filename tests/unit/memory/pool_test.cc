// SPDX-License-Identifier: Apache-2.0
//
// One thread: what is handed out, what is refused, what comes back.
#include "memory/pool.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "pool_fixture.h"

using namespace lmn;          // NOLINT: tests
using namespace lmn::memory;  // NOLINT

namespace {

// Bytes of [data, data + bytes) that are backed by memory.
size_t resident_bytes(const std::byte* data, size_t bytes) {
  constexpr size_t kOsPage = 4096;
  const auto first = reinterpret_cast<uintptr_t>(data) / kOsPage * kOsPage;
  const size_t pages = (reinterpret_cast<uintptr_t>(data) + bytes - first + kOsPage - 1) / kOsPage;
  std::vector<unsigned char> present(pages);
  if (mincore(reinterpret_cast<void*>(first), pages * kOsPage, present.data()) != 0) return 0;
  const auto count = std::count_if(present.begin(), present.end(),
                                   [](unsigned char byte) { return (byte & 1) != 0; });
  return static_cast<size_t>(count) * kOsPage;
}

}  // namespace

TEST(sizes_alignment_and_disjointness) {
  const auto pool = make_pool();
  std::map<std::byte*, size_t> live;  // address -> bytes granted
  for (size_t bytes : {0, 1, 63, 64, 65, 100, 1000, 4096, 5000, 65536, 65537, 300000, 1048576,
                       4194304, 4194305, 9999999}) {
    for (int i = 0; i < 3; ++i) {
      std::byte* data = pool->try_allocate(bytes);
      ASSERT(data != nullptr);
      EXPECT(aligned(data, 64));
      const size_t granted = pool->usable_bytes(data);
      EXPECT(granted >= bytes);
      EXPECT(granted <= std::max<size_t>(bytes + bytes / 4, 64) + kAlignment);
      stamp(data, std::max<size_t>(bytes, 1), reinterpret_cast<uintptr_t>(data));
      const auto next = live.lower_bound(data);
      EXPECT(next == live.end() || data + granted <= next->first);
      EXPECT(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= data);
      live[data] = granted;
    }
  }
  ASSERT_OK(pool->check());
  for (const auto& [data, granted] : live) ASSERT_OK(pool->free(data));
  ASSERT_OK(pool->check());
  EXPECT_EQ(pool->stats().in_use, size_t{0});
  EXPECT_EQ(pool->stats().live, 0U);
}

TEST(alignments_up_to_a_page) {
  for (const DebugTier tier : {DebugTier::kOff, DebugTier::kChecks}) {
    const auto pool = make_pool({.debug = tier});
    for (size_t alignment = 1; alignment <= kPageBytes; alignment *= 2) {
      for (const size_t bytes : {1, 100, 4096, 5000, 70000, 3000000, 5000000}) {
        std::byte* data = pool->try_allocate_aligned(bytes, alignment);
        ASSERT(data != nullptr);
        EXPECT(aligned(data, alignment));
        EXPECT(pool->usable_bytes(data) >= bytes);
        ASSERT_OK(pool->free(data));
      }
    }
    EXPECT(pool->try_allocate_aligned(64, 48) == nullptr);
    EXPECT(pool->try_allocate_aligned(64, 0) == nullptr);
    EXPECT(pool->try_allocate_aligned(64, 2 * kPageBytes) == nullptr);
    EXPECT(pool->try_allocate_aligned(SIZE_MAX, 4096) == nullptr);
  }
}

TEST(freed_objects_are_used_again_before_new_memory) {
  const auto pool = make_pool();
  std::vector<std::byte*> first;
  for (int i = 0; i < 5000; ++i) first.push_back(pool->try_allocate(1000));
  const size_t held = pool->stats().held;
  for (int round = 0; round < 20; ++round) {
    std::shuffle(first.begin(), first.end(), std::mt19937(round));
    for (std::byte* data : first) ASSERT_OK(pool->free(data));
    for (std::byte*& data : first) data = pool->try_allocate(1000);
  }
  EXPECT_EQ(pool->stats().held, held);
  for (std::byte* data : first) ASSERT_OK(pool->free(data));
  ASSERT_OK(pool->check());
}

TEST(what_the_limit_and_the_source_refuse) {
  const auto pool = make_pool({.block_bytes = 1 << 20, .limit_bytes = 10 << 20});
  std::vector<std::byte*> all;
  while (std::byte* data = pool->try_allocate(100000)) all.push_back(data);
  EXPECT(all.size() >= 80 && all.size() <= 91);  // 114,688 bytes each
  EXPECT(has(pool->allocate(100000).status(), Code::kOutOfMemory, "100000 bytes"));
  EXPECT(has(pool->allocate(100000).status(), Code::kOutOfMemory, "limit is 10485760"));
  EXPECT(has(pool->allocate(20 << 20).status(), Code::kOutOfMemory, "limit"));
  EXPECT(pool->try_allocate(SIZE_MAX) == nullptr);
  EXPECT(pool->try_allocate(SIZE_MAX / 2 + 2) == nullptr);
  for (std::byte* data : all) ASSERT_OK(pool->free(data));
  EXPECT(pool->try_allocate(5 << 20) != nullptr);  // of what was freed, in another form
  ASSERT_OK(pool->check());

  const auto device =
      make_pool({.block_bytes = 64 << 20}, std::make_unique<DeviceLikeSource>(10 << 20));
  std::byte* data = device->try_allocate(1000);  // from a block of 8 MiB: 64, 32, 16 are refused
  ASSERT(data != nullptr);
  EXPECT_EQ(device->stats().reserved, size_t{8} << 20);
  EXPECT(has(device->allocate(16 << 20).status(), Code::kOutOfMemory, "device-like"));
  ASSERT_OK(device->free(data));
  EXPECT(device->try_allocate(9 << 20) != nullptr);  // trims to make room
  EXPECT(!Pool::create({.block_bytes = 0}).ok());
  EXPECT_EQ(make_pool({.block_bytes = SIZE_MAX >> 20})->try_allocate(SIZE_MAX >> 1) == nullptr,
            true);
}

TEST(large_sizes_that_are_seen_often_are_kept) {
  const auto pool = make_pool({.keep_large_bytes = 40 << 20});
  const size_t bytes = 6 << 20;
  std::byte* data = nullptr;
  for (uint32_t i = 1; i <= LargeStore::kPromoteAfter; ++i) {
    EXPECT_EQ(pool->stats().promoted_sizes, 0U);
    data = pool->try_allocate(bytes);
    ASSERT(data != nullptr);
    if (i == LargeStore::kPromoteAfter) break;
    ASSERT_OK(pool->free(data));
    EXPECT_EQ(pool->stats().held, size_t{0});  // went back to the system
  }
  EXPECT_EQ(pool->stats().promoted_sizes, 1U);
  ASSERT_OK(pool->free(data));
  EXPECT_EQ(pool->stats().large_kept, bytes);
  EXPECT_EQ(pool->stats().in_use, size_t{0});
  EXPECT_EQ(pool->try_allocate(bytes), data);
  EXPECT_EQ(pool->try_allocate(bytes - 100) != data, true);  // the same pages: a class
  std::vector<std::byte*> more;
  for (int i = 0; i < 10; ++i) more.push_back(pool->try_allocate(bytes));
  for (std::byte* each : more) ASSERT_OK(pool->free(each));
  EXPECT_EQ(pool->stats().large_kept, size_t{36} << 20);  // 6 of 10, the limit is 40 MiB
  EXPECT_EQ(pool->stats().held, size_t{48} << 20);
  ASSERT_OK(pool->check());
  EXPECT_EQ(pool->trim(), size_t{36} << 20);
  EXPECT_EQ(pool->stats().held, size_t{12} << 20);
  ASSERT_OK(pool->check());

  // Sizes that never repeat leave no records behind.
  for (size_t i = 0; i < 3 * LargeStore::kSizes; ++i) {
    std::byte* once = pool->try_allocate((8 << 20) + i * kPageBytes);
    ASSERT(once != nullptr);
    ASSERT_OK(pool->free(once));
  }
  EXPECT_EQ(pool->stats().promoted_sizes, 1U);
}

TEST(trim_gives_memory_back_to_the_system) {
  const auto pool = make_pool();
  std::vector<std::byte*> all;
  for (int i = 0; i < 64; ++i) {
    all.push_back(pool->try_allocate(1 << 20));
    std::fill_n(all.back(), 1 << 20, std::byte{1});
  }
  std::sort(all.begin(), all.end());
  std::byte* first = all.front();
  const size_t span = static_cast<size_t>(all.back() - first) + (1 << 20);
  EXPECT(resident_bytes(first, span) >= size_t{64} << 20);
  // All but the first: its span stays, the others' pages go.
  for (size_t i = 1; i < all.size(); ++i) ASSERT_OK(pool->free(all[i]));
  EXPECT(pool->trim() >= size_t{56} << 20);
  EXPECT(resident_bytes(first, span) <= size_t{8} << 20);
  EXPECT(std::all_of(first, first + (1 << 20), [](std::byte b) { return b == std::byte{1}; }));
  EXPECT_EQ(pool->stats().blocks, 1U);
  ASSERT_OK(pool->check());
  ASSERT_OK(pool->free(first));
  EXPECT(pool->trim() > 0);
  EXPECT_EQ(pool->stats().reserved, size_t{0});
  EXPECT_EQ(pool->stats().held, size_t{0});
  EXPECT_EQ(pool->trim(), size_t{0});
  ASSERT_OK(pool->check());
  EXPECT(pool->try_allocate(1 << 20) != nullptr);
}

TEST(statistics_are_those_of_arithmetic) {
  const auto pool = make_pool();
  EXPECT_EQ(pool->stats().held, size_t{0});
  std::byte* a = pool->try_allocate(100);      // gets 128
  std::byte* b = pool->try_allocate(5000);     // gets 5,120
  std::byte* c = pool->try_allocate(5 << 20);  // gets that
  PoolStats stats = pool->stats();
  EXPECT_EQ(stats.in_use, size_t{128 + 5120 + (5 << 20)});
  EXPECT_EQ(stats.large_in_use, size_t{5 << 20});
  EXPECT_EQ(stats.held, kPageBytes + 2 * kPageBytes + (5 << 20));  // 5120: 25 of them in 2 pages
  EXPECT_EQ(stats.reserved, (size_t{256} << 20) + (5 << 20));
  EXPECT_EQ(stats.allocations, uint64_t{3});
  EXPECT_EQ(stats.requested_total, uint64_t{100 + 5000 + (5 << 20)});
  EXPECT_EQ(stats.granted_total, uint64_t{128 + 5120 + (5 << 20)});
  EXPECT_EQ(stats.live, 3U);
  EXPECT_EQ(stats.spans, 2U);
  EXPECT_EQ(stats.blocks, 1U);
  EXPECT_EQ(stats.thread_caches, 1U);
  EXPECT_NEAR(stats.internal_fragmentation(), 1 - 5247980.0 / 5248128.0, 1e-12);
  EXPECT_NEAR(stats.external_fragmentation(), 1 - 5248128.0 / 5439488.0, 1e-12);
  for (std::byte* data : {a, b, c}) ASSERT_OK(pool->free(data));
  stats = pool->stats();
  EXPECT_EQ(stats.in_use, size_t{0});
  EXPECT_EQ(stats.live, 0U);
  EXPECT_EQ(stats.allocations, uint64_t{3});
  EXPECT_EQ(stats.held_peak, size_t{5439488});
}

TEST(zeroed_memory) {
  for (const DebugTier tier : {DebugTier::kOff, DebugTier::kFull}) {
    const auto pool = make_pool({.debug = tier});
    for (const size_t bytes : {1, 1000, 1 << 20, 5 << 20}) {
      for (int round = 0; round < 7; ++round) {  // large ones are promoted on the way
        Result<std::byte*> data = pool->allocate_zeroed(bytes);
        ASSERT_OK(data);
        EXPECT(std::all_of(*data, *data + bytes, [](std::byte b) { return b == std::byte{0}; }));
        std::fill_n(*data, bytes, std::byte{7});
        ASSERT_OK(pool->free(*data));
      }
    }
    ASSERT_OK(pool->check());
    EXPECT(pool->allocate_zeroed(SIZE_MAX).status().code() == Code::kOutOfMemory);
  }
  // Memory that nobody has touched is not touched to clear it.
  const auto pool = make_pool();
  Result<std::byte*> data = pool->allocate_zeroed(size_t{1} << 30);
  ASSERT_OK(data);
  EXPECT_EQ(resident_bytes(*data, size_t{1} << 30), size_t{0});
  const auto device = make_pool({}, std::make_unique<DeviceLikeSource>());
  EXPECT(device->allocate_zeroed(100).status().code() == Code::kUnsupported);
}

TEST(faults_of_the_default_tier) {
  const auto pool = make_pool(), other = make_pool();
  std::byte* data = pool->try_allocate(1000);
  std::byte* large = pool->try_allocate(5 << 20);
  std::byte* foreign = other->try_allocate(1000);
  int local = 0;
  ASSERT_OK(pool->free(nullptr));
  EXPECT(has(pool->free(&local), Code::kInvalidArgument, "not memory of this pool"));
  EXPECT(has(pool->free(foreign), Code::kInvalidArgument, "not memory of this pool"));
  EXPECT(
      has(pool->free(reinterpret_cast<void*>(~uintptr_t{0})), Code::kInvalidArgument, "not mem"));
  EXPECT(has(pool->free(data + 1), Code::kInvalidArgument, "not the start"));
  EXPECT(has(pool->free(data + 64), Code::kInvalidArgument, "not the start"));
  EXPECT(has(pool->free(large + 64), Code::kInvalidArgument, "not the start"));
  // 1024 objects of 64 bytes fill a page; 63 of 1,024 + ... do not: the end of a span of 640.
  std::byte* odd = pool->try_allocate(640);
  EXPECT(has(pool->free(odd + 102 * 640), Code::kInvalidArgument, "not the start"));
  EXPECT(has(pool->free(odd + 640), Code::kInvalidArgument, "freed before"));
  ASSERT_OK(pool->free(data));
  EXPECT(has(pool->free(data), Code::kInvalidArgument, "freed before"));
  ASSERT_OK(pool->free(large));
  EXPECT(!pool->free(large).ok());
  EXPECT_EQ(pool->usable_bytes(data), size_t{0});
  EXPECT_EQ(pool->usable_bytes(&local), size_t{0});
  EXPECT(pool->try_allocate(1000) == data);  // nothing was changed by the faults
  EXPECT(has(pool->check(), Code::kInvalidArgument, "not memory of this pool"));  // the first
  ASSERT_OK(other->free(foreign));
  ASSERT_OK(other->check());
}

TEST(memory_that_the_cpu_cannot_touch) {
  for (const DebugTier tier : {DebugTier::kOff, DebugTier::kChecks, DebugTier::kFull}) {
    const auto pool =
        make_pool({.block_bytes = 32 << 20, .debug = tier}, std::make_unique<DeviceLikeSource>());
    std::mt19937 random(7);
    std::vector<std::byte*> live;
    for (int i = 0; i < 20000; ++i) {
      if (live.size() < 200 && random() % 2 == 0) {
        std::byte* data = pool->try_allocate(size_t{1} << random() % 23);
        ASSERT(data != nullptr);
        live.push_back(data);
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        ASSERT_OK(pool->free(live.back()));
        live.pop_back();
      }
    }
    ASSERT_OK(pool->check());
    for (std::byte* data : live) ASSERT_OK(pool->free(data));
    EXPECT_EQ(pool->stats().live, 0U);
    EXPECT(!pool->free(live.front()).ok());
    (void)pool->trim();
    EXPECT_EQ(pool->stats().reserved, size_t{0});
  }
}
