// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <map>
#include <string>
#include <vector>

#include "memory/pool_resource.h"
#include "pool_fixture.h"

using namespace lmn;          // NOLINT: tests
using namespace lmn::memory;  // NOLINT

TEST(arena_offsets_are_exact) {
  const auto pool = make_pool();
  Ledger ledger;
  {
    Result<Arena> made = Arena::create(pool, 1000, &ledger);
    ASSERT_OK(made);
    Arena arena = std::move(made).value();
    EXPECT_EQ(ledger.snapshot()[Owner::kArena].current, int64_t{1000});
    EXPECT(arena.allocate(10) == arena.data());
    EXPECT(arena.allocate(1) == arena.data() + 64);
    EXPECT(arena.allocate(3, 1) == arena.data() + 65);
    EXPECT(arena.allocate(8, 8) == arena.data() + 72);
    const size_t mark = arena.used();
    EXPECT_EQ(mark, size_t{80});
    EXPECT(arena.allocate(872) == arena.data() + 128);  // the last byte is the arena's last
    EXPECT_EQ(arena.used(), arena.capacity());
    EXPECT(arena.allocate(1, 1) == nullptr);
    EXPECT(arena.allocate(0, 1) == arena.data() + 1000);
    EXPECT(arena.allocate(SIZE_MAX) == nullptr);
    EXPECT(arena.allocate(1, 3) == nullptr);
    arena.reset(mark);
    EXPECT(arena.allocate(16, 16) == arena.data() + 80);
    arena.reset();
    EXPECT(arena.allocate(1000) == arena.data());
    EXPECT_EQ(arena.peak(), size_t{1000});
    const Arena moved = std::move(arena);
    EXPECT_EQ(arena.capacity(), size_t{0});  // NOLINT: what is left is an arena of nothing
    EXPECT(arena.allocate(1) == nullptr);
    EXPECT_EQ(pool->stats().live, 1U);
  }
  EXPECT_EQ(pool->stats().live, 0U);
  EXPECT_EQ(ledger.snapshot().total.current, int64_t{0});
  const auto small = make_pool({.limit_bytes = 1 << 20});
  EXPECT(Arena::create(small, 2 << 20).status().code() == Code::kOutOfMemory);
}

TEST(arenas_keep_their_pool_and_need_no_host_memory) {
  auto pool = make_pool({}, std::make_unique<DeviceLikeSource>());
  Result<Arena> arena = Arena::create(pool, 10 << 20);
  ASSERT_OK(arena);
  pool.reset();
  EXPECT(arena->allocate(100) != nullptr);
  EXPECT(arena->allocate(10 << 20) == nullptr);
}

TEST(containers_live_in_a_pool_and_are_booked) {
  const auto pool = make_pool();
  Ledger ledger;
  PoolResource resource(pool, &ledger, Owner::kTokenizer);
  {
    std::pmr::map<int, std::pmr::string> map(&resource);
    for (int i = 0; i < 1000; ++i) map[i] = std::string(static_cast<size_t>(i), 'x');
    std::pmr::vector<int64_t> numbers(&resource);
    for (int i = 0; i < 100'000; ++i) numbers.push_back(i);
    for (int i = 0; i < 1000; i += 2) map.erase(i);
    EXPECT_EQ(map[999], std::pmr::string(999, 'x'));
    EXPECT_EQ(numbers[77'777], 77'777);
    EXPECT_EQ(ledger.snapshot()[Owner::kTokenizer].current > 800'000, true);
    EXPECT(pool->stats().live > 900);
  }
  EXPECT_EQ(ledger.snapshot().total.current, int64_t{0});
  EXPECT_EQ(pool->stats().live, 0U);
  ASSERT_OK(pool->check());

  void* aligned_data = resource.allocate(100, 4096);
  EXPECT(aligned(aligned_data, 4096));
  resource.deallocate(aligned_data, 100, 4096);
  PoolResource same(pool, &ledger, Owner::kTokenizer), other(make_pool());
  EXPECT(resource == same && !(resource == other));
  bool thrown = false;
  try {
    const volatile size_t beyond = SIZE_MAX / 2 + 2;  // GCC refuses a constant that it sees
    (void)resource.allocate(beyond, 64);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  EXPECT(thrown);
  EXPECT_EQ(ledger.snapshot().total.current, int64_t{0});
}
