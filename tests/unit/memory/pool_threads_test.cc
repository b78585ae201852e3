// SPDX-License-Identifier: Apache-2.0
//
// Several threads: returns from other threads, threads that end, pools that end first, forks, and
// random operations of 8 threads. LMN_STRESS_OPERATIONS sets how many of these; 10,000,000 is the
// full size, and the default fits into `make test` under a sanitizer.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memory/ledger.h"
#include "pool_fixture.h"

using namespace lmn;          // NOLINT: tests
using namespace lmn::memory;  // NOLINT

namespace {

#if defined(LMN_TSAN) || defined(LMN_ASAN)
constexpr size_t kOperations = 400'000;
#else
constexpr size_t kOperations = 1'000'000;
#endif

size_t operations() {
  const char* variable = std::getenv("LMN_STRESS_OPERATIONS");
  return variable != nullptr ? std::strtoull(variable, nullptr, 10) : kOperations;
}

struct Object {
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint64_t seed = 0;
};

// Where threads leave objects for others to free.
struct Exchange {
  std::mutex lock;
  std::vector<Object> objects;

  // Leaves `mine` and takes another, so that the number here stays what it is once there are some.
  Object swap(const Object& mine, uint64_t random) {
    const std::lock_guard hold(lock);
    if (objects.size() < 64) {
      objects.push_back(mine);
      return {};
    }
    return std::exchange(objects[random % objects.size()], mine);
  }
};

// Mostly small, some of every class, few above the largest.
size_t random_size(std::mt19937_64& random) {
  const uint64_t kind = random() % 1000;
  const uint64_t most = kind < 800 ? 2048 : kind < 980 ? 65536 : kind < 999 ? 1 << 20 : 6 << 20;
  return 1 + random() % most;
}

void take_back(Pool& pool, Ledger& ledger, const Object& object, std::atomic<int>& wrong) {
  if (!stamped(object.data, object.bytes, object.seed)) ++wrong;
  ledger.subtract(Owner::kRequests, static_cast<int64_t>(object.bytes));
  if (!pool.free(object.data).ok()) ++wrong;
}

// `count` random operations: allocate, free one's own, or give one's own away and free another's.
void work(Pool& pool, Ledger& ledger, Exchange& exchange, uint64_t seed, size_t count,
          std::atomic<int>& wrong) {
  std::mt19937_64 random(seed);
  std::vector<Object> live;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t dice = random();
    if (live.size() < 300 && dice % 2 == 0) {
      Object object{nullptr, random_size(random), random()};
      object.data = pool.try_allocate(object.bytes);
      if (object.data == nullptr || !aligned(object.data, 64)) {
        ++wrong;
        continue;
      }
      stamp(object.data, object.bytes, object.seed);
      ledger.add(Owner::kRequests, static_cast<int64_t>(object.bytes));
      live.push_back(object);
    } else if (!live.empty()) {
      std::swap(live[dice / 8 % live.size()], live.back());
      Object object = live.back();
      live.pop_back();
      if (dice % 8 == 1) object = exchange.swap(object, dice >> 20);
      if (object.data != nullptr) take_back(pool, ledger, object, wrong);
    }
    if (dice % 100'000 == 3) (void)pool.trim();
    if (dice % 20'000 == 5) (void)pool.stats();
  }
  for (const Object& object : live) take_back(pool, ledger, object, wrong);
}

}  // namespace

TEST(eight_threads_of_random_operations) {
  const auto pool = make_pool();
  Ledger ledger;
  Exchange exchange;
  std::atomic<int> wrong{0};
  // In four generations, so that threads end and their spans change hands while others run.
  constexpr int kThreads = 8, kGenerations = 4;
  const size_t each = operations() / kThreads / kGenerations;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t generation = 0; generation < kGenerations; ++generation) {
        std::thread(work, std::ref(*pool), std::ref(ledger), std::ref(exchange),
                    100 * generation + i, each, std::ref(wrong))
            .join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(pool->check());
  EXPECT_EQ(ledger.snapshot()[Owner::kRequests].current != 0, !exchange.objects.empty());
  for (const Object& object : exchange.objects) take_back(*pool, ledger, object, wrong);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(ledger.snapshot().total.current, int64_t{0});
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.in_use, size_t{0});
  EXPECT_EQ(stats.live, 0U);
  EXPECT(stats.allocations > operations() / 4);
  EXPECT(stats.thread_caches <= 1);
  ASSERT_OK(pool->check());
  (void)pool->trim();
  EXPECT_EQ(pool->stats().held, size_t{0});
  EXPECT_EQ(pool->stats().reserved, size_t{0});
  ASSERT_OK(pool->check());
}

TEST(debug_tiers_under_threads) {
  for (const DebugTier tier : {DebugTier::kChecks, DebugTier::kFull}) {
    const auto pool = make_pool({.debug = tier});
    Ledger ledger;
    Exchange exchange;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; ++i) {
      threads.emplace_back(work, std::ref(*pool), std::ref(ledger), std::ref(exchange), i, 4000,
                           std::ref(wrong));
    }
    for (std::thread& thread : threads) thread.join();
    for (const Object& object : exchange.objects) take_back(*pool, ledger, object, wrong);
    EXPECT_EQ(wrong.load(), 0);
    ASSERT_OK(pool->check());
    EXPECT_EQ(pool->stats().live, 0U);
  }
}

TEST(objects_freed_by_another_thread_serve_their_owner_again) {
  const auto pool = make_pool();
  constexpr size_t kCount = 1000, kBytes = 4096;
  std::vector<std::byte*> objects(kCount);
  size_t held = 0;
  for (int round = 0; round < 50; ++round) {
    for (std::byte*& data : objects) {
      data = pool->try_allocate(kBytes);
      stamp(data, kBytes, 1);
    }
    if (round == 0) held = pool->stats().held;
    std::thread([&] {
      for (std::byte* data : objects) EXPECT(pool->free(data).ok());
      EXPECT(!pool->free(objects[0]).ok());  // twice, from a thread that does not own it
    }).join();
  }
  EXPECT_EQ(pool->stats().live, 0U);
  EXPECT(pool->stats().held <= held + kPageBytes);
}

TEST(a_cache_comes_back_when_its_thread_ends) {
  const auto pool = make_pool();
  std::vector<std::byte*> kept;
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      std::vector<std::byte*> mine;
      for (int k = 0; k < 1000; ++k) mine.push_back(pool->try_allocate(512));
      kept.push_back(mine.back());
      mine.pop_back();
      for (std::byte* data : mine) EXPECT(pool->free(data).ok());
      EXPECT_EQ(pool->stats().thread_caches, 1U);
    }).join();
    ASSERT_OK(pool->check());
  }
  PoolStats stats = pool->stats();
  EXPECT_EQ(stats.thread_caches, 0U);
  EXPECT_EQ(stats.live, 20U);
  EXPECT(stats.held <= 40 * kPageBytes);  // every thread went on with what the last one left
  for (std::byte* data : kept) ASSERT_OK(pool->free(data));
  ASSERT_OK(pool->check());
  stats = pool->stats();
  EXPECT_EQ(stats.in_use, size_t{0});
  (void)pool->trim();
  EXPECT_EQ(pool->stats().held, size_t{0});
}

TEST(a_full_span_of_an_ended_thread_is_found_again) {
  const auto pool = make_pool();
  std::vector<std::byte*> objects(16);
  std::thread([&] {
    for (std::byte*& data : objects) data = pool->try_allocate(65536);
  }).join();
  const size_t held = pool->stats().held;
  std::byte* last = objects.back();
  std::thread([&] { EXPECT(pool->free(last).ok()); }).join();
  std::thread([&] { EXPECT(pool->try_allocate(65536) == last); }).join();
  EXPECT_EQ(pool->stats().held, held);
  ASSERT_OK(pool->check());
}

TEST(a_pool_may_end_before_the_threads_that_used_it) {
  std::atomic<int> stage{0};
  auto pool = make_pool();
  Pool* raw = pool.get();
  std::thread user([&] {
    EXPECT(raw->free(raw->try_allocate(100)).ok());
    ++stage;
    while (stage.load() < 2) std::this_thread::yield();
    const auto next = make_pool();  // its cache is another one
    EXPECT(next->free(next->try_allocate(100)).ok());
  });
  while (stage.load() < 1) std::this_thread::yield();
  pool.reset();
  ++stage;
  user.join();
}

TEST(more_pools_than_a_thread_has_slots) {
  std::vector<std::shared_ptr<Pool>> pools;
  for (size_t i = 0; i < 3 * kThreadSlots; ++i) pools.push_back(make_pool());
  for (int round = 0; round < 100; ++round) {
    for (const auto& pool : pools) {
      std::byte* data = pool->try_allocate(1000);
      ASSERT_OK(pool->free(data));
      EXPECT(pool->try_allocate(1000) == data);
    }
  }
  for (const auto& pool : pools) {
    EXPECT_EQ(pool->stats().live, 100U);
    EXPECT_EQ(pool->stats().thread_caches, 1U);
    ASSERT_OK(pool->check());
  }
}

// Uses a pool from the destructor of a thread-local object that is destroyed after the caches.
struct LateUser {
  Pool* pool = nullptr;
  std::byte* data = nullptr;
  ~LateUser() {
    if (pool == nullptr) return;
    EXPECT(pool->free(data).ok());
    std::byte* more = pool->try_allocate(300);
    EXPECT(more != nullptr && pool->free(more).ok());
  }
};
thread_local LateUser late_user;

TEST(memory_may_be_used_while_a_thread_ends) {
  const auto pool = make_pool();
  std::thread([&] {
    late_user.pool = pool.get();  // constructed first, so destroyed last
    late_user.data = pool->try_allocate(300);
  }).join();
  EXPECT_EQ(pool->stats().live, 0U);
  ASSERT_OK(pool->check());
}

TEST(a_forked_child_does_not_wait) {
#if defined(LMN_TSAN)
  testing::skip("ThreadSanitizer ends children of processes with threads");
#endif
  const auto pool = make_pool();
  std::atomic<bool> stop{false};
  std::thread busy([&] {  // holds the lock most of the time
    while (!stop.load()) (void)pool->trim();
  });
  std::byte* small = pool->try_allocate(100);
  std::byte* large = pool->try_allocate(5 << 20);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);  // a child that waits is killed, and the test fails
      std::byte* again = pool->try_allocate(100);  // of what this thread had
      const bool served = again != nullptr && pool->free(again).ok();
      const Code refused = pool->allocate(2 << 20).status().code();
      const bool freed = pool->free(small).ok() && pool->free(large).ok();
      const auto own = make_pool();
      const bool works = own->free(own->try_allocate(2 << 20)).ok();
      (void)pool->trim();
      (void)pool->stats();
      _exit(served && refused == Code::kClosed && freed && works ? 0 : 1);
    }
    int status = -1;
    ASSERT(waitpid(child, &status, 0) == child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  ASSERT_OK(pool->free(small));
  ASSERT_OK(pool->free(large));
  ASSERT_OK(pool->check());
}
