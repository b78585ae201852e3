// SPDX-License-Identifier: Apache-2.0
//
// The debug tiers find each fault they name, and the walker finds broken records.
#include <algorithm>
#include <string>
#include <vector>

#include "memory/poison.h"
#include "pool_fixture.h"

using namespace lmn;          // NOLINT: tests
using namespace lmn::memory;  // NOLINT

namespace {

// A write that a caller must not do: AddressSanitizer would stop the test.
[[gnu::no_sanitize_address]] void write_wrongly(std::byte* at, std::byte value) {
  *static_cast<volatile std::byte*>(at) = value;
}

}  // namespace

TEST(canaries_find_bytes_behind_an_allocation) {
  for (const DebugTier tier : {DebugTier::kChecks, DebugTier::kFull}) {
    for (const size_t bytes : {size_t{1}, size_t{100}, size_t{128}, size_t{5} << 20}) {
      for (const size_t offset : {size_t{0}, Debugger::kCanary - 1}) {
        const auto pool = make_pool({.debug = tier});
        std::byte* data = pool->try_allocate(bytes);
        stamp(data, bytes, 3);
        ASSERT_OK(pool->check());
        std::byte* end = data + bytes + offset;
        write_wrongly(end, std::byte{0});
        EXPECT(has(pool->check(), Code::kCorrupt, "behind the end"));
        EXPECT(has(pool->free(data), Code::kCorrupt, "behind the end"));
        EXPECT(has(pool->free(data), Code::kInvalidArgument, "free of"));  // it was freed
        EXPECT_EQ(pool->stats().live, 0U);
      }
    }
  }
}

TEST(second_frees_and_foreign_addresses_in_every_tier) {
  for (const DebugTier tier : {DebugTier::kOff, DebugTier::kChecks, DebugTier::kFull}) {
    const auto pool = make_pool({.debug = tier});
    std::byte* data = pool->try_allocate(200);
    int local = 0;
    EXPECT(has(pool->free(&local), Code::kInvalidArgument, "not memory of this pool"));
    EXPECT(has(pool->free(data + 8), Code::kInvalidArgument, "not the start"));
    ASSERT_OK(pool->free(data));
    EXPECT(has(pool->free(data), Code::kInvalidArgument, "freed before"));
  }
}

TEST(a_second_free_meets_no_new_holder_in_the_full_tier) {
  const auto pool = make_pool({.debug = DebugTier::kFull});
  std::byte* data = pool->try_allocate(200);
  ASSERT_OK(pool->free(data));
  for (int i = 0; i < 100; ++i) {
    std::byte* other = pool->try_allocate(200);
    EXPECT(other != data);
    ASSERT_OK(pool->free(other));
  }
  EXPECT(!pool->free(data).ok());
}

TEST(fills_tell_new_and_freed_memory_apart) {
  const auto pool = make_pool({.debug = DebugTier::kFull});
  std::byte* data = pool->try_allocate(1000);
  EXPECT(std::all_of(data, data + 1000, [](std::byte b) { return b == std::byte{0xA5}; }));
  ASSERT_OK(pool->free(data));
  unpoison(data, 1000);
  EXPECT(std::all_of(data, data + 1000, [](std::byte b) { return b == std::byte{0xDF}; }));
}

TEST(writes_after_a_free_are_found_in_the_full_tier) {
  for (const size_t offset : {0, 1, 999, 1023}) {
    const auto pool = make_pool({.debug = DebugTier::kFull});
    std::byte* data = pool->try_allocate(1000);
    std::byte* stays = pool->try_allocate(1000);  // so that the span lives on
    ASSERT_OK(pool->free(data));
    write_wrongly(data + offset, std::byte{1});
    for (size_t i = 0; i < Debugger::kQuarantine + 2; ++i) {
      std::byte* other = pool->try_allocate(100'000);
      ASSERT_OK(pool->free(other));
    }
    ASSERT_OK(pool->check());
    EXPECT(pool->try_allocate(1000) == data);
    EXPECT(has(pool->check(), Code::kCorrupt, "after it was freed"));
    ASSERT_OK(pool->free(stays));
  }
}

#if defined(LMN_ASAN)
extern "C" int __asan_address_is_poisoned(void const volatile*);

TEST(what_no_caller_holds_is_poisoned) {
  const auto pool = make_pool();
  std::byte* data = pool->try_allocate(100);
  EXPECT(!__asan_address_is_poisoned(data) && !__asan_address_is_poisoned(data + 99));
  EXPECT(__asan_address_is_poisoned(data + 104));
  EXPECT(__asan_address_is_poisoned(data + 128));  // the next object
  std::byte* large = pool->try_allocate((5 << 20) + 8);
  EXPECT(!__asan_address_is_poisoned(large + (5 << 20)));
  EXPECT(__asan_address_is_poisoned(large + (5 << 20) + 8));
  ASSERT_OK(pool->free(data));
  EXPECT(__asan_address_is_poisoned(data) && __asan_address_is_poisoned(data + 64));
}
#endif

// The walker, on records that the test breaks and mends again.
namespace lmn::memory {
struct PoolTester {
  static Span* span_of(Pool& pool, const void* data) { return pool.map_.find(data); }
  static size_t& held(Pool& pool) { return pool.held_; }
};
}  // namespace lmn::memory

TEST(the_walker_names_what_is_broken) {
  const auto pool = make_pool();
  std::byte* data = pool->try_allocate(1000);
  std::byte* large = pool->try_allocate(5 << 20);
  ASSERT_OK(pool->check());
  Span* span = PoolTester::span_of(*pool, data);
  const auto broken = [&](const std::string& word) {
    const bool found = has(pool->check(), Code::kInternal, word);
    if (!found) testing::report_failure(__FILE__, __LINE__, std::string(pool->check().message()));
    return found;
  };
  const auto link = [&](uint32_t i) -> std::atomic<uint16_t>& { return span->links()[i]; };

  span->count_taken();
  EXPECT(broken("2 objects used"));
  span->count_freed(1);

  const uint16_t second = link(1).load();
  link(1) = 1;  // a list that leads to itself
  EXPECT(broken("free twice"));
  link(1) = 5000;
  EXPECT(broken("leads to object 5000"));
  link(1) = kNoObject;  // the rest is lost
  EXPECT(broken("objects used and"));
  link(1) = second;

  link(0) = 7;  // allocated, and says that it is not
  EXPECT(broken("on no list and not allocated"));
  link(0) = kAllocated;

  span->state = SpanState::kFull;
  EXPECT(broken("free objects and no list"));
  span->state = SpanState::kEmpty;
  EXPECT(broken("called empty"));
  span->state = SpanState::kCurrent;

  const size_t size = std::exchange(span->size, 64);
  EXPECT(broken("objects of 64 bytes"));
  span->size = size;

  span->base += kPageBytes;
  EXPECT(broken("starts at"));
  span->base -= kPageBytes;

  PoolTester::held(*pool) += 1;
  EXPECT(broken("says it holds"));
  PoolTester::held(*pool) -= 1;

  Span* big = PoolTester::span_of(*pool, large);
  big->state = SpanState::kCached;
  EXPECT(broken("kept and allocated at once"));
  big->state = SpanState::kFull;
  ASSERT_OK(pool->check());
}
