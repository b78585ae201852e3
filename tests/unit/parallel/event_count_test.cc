// SPDX-License-Identifier: Apache-2.0
#include "parallel/event_count.h"

#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

#include "testing.h"

namespace lmn::parallel {
namespace {

TEST(wait_returns_at_once_when_the_count_has_moved) {
  EventCount count;
  const uint32_t seen = count.value();
  EXPECT_EQ(count.advance(), seen + 1);
  EXPECT_EQ(count.wait(seen, 0), seen + 1);
}

TEST(wait_ends_at_its_deadline) {
  EventCount count;
  for (const int64_t spin_ns : {int64_t{0}, int64_t{100'000'000}}) {
    const int64_t start = now_ns();
    EXPECT_EQ(count.wait(count.value(), spin_ns, deadline_after(10'000'000)), count.value());
    EXPECT(now_ns() - start >= 10'000'000);
  }
}

TEST(deadlines_do_not_overflow) {
  EXPECT_EQ(deadline_after(-1), kNoDeadline);
  EXPECT_EQ(deadline_after(kNoDeadline), kNoDeadline);
  EXPECT(deadline_after(0) <= now_ns());
}

// Two threads hand a plain variable back and forth; a lost wake-up hangs, a missing ordering is a
// report of TSan.
void ping_pong(int64_t spin_ns) {
  EventCount ping, pong;
  int64_t value = 0;
  constexpr int kRounds = 5'000;
  std::thread other([&] {
    uint32_t seen = 0;
    for (int i = 0; i < kRounds; ++i) {
      seen = ping.wait(seen, spin_ns);
      ++value;
      pong.advance();
    }
  });
  uint32_t seen = 0;
  for (int i = 0; i < kRounds; ++i) {
    ++value;
    ping.advance();
    seen = pong.wait(seen, spin_ns);
  }
  other.join();
  EXPECT_EQ(value, 2 * kRounds);
}
TEST(ping_pong_parking) { ping_pong(0); }
TEST(ping_pong_spinning) { ping_pong(50'000); }

// It parks once and sleeps: a waiter that polled would be switched out again and again, or use its
// CPU.
TEST(a_parked_waiter_costs_nothing) {
  EventCount count;
  rusage before{}, after{};
  std::thread waiter([&] {
    getrusage(RUSAGE_THREAD, &before);
    count.wait(0, 5'000, deadline_after(200'000'000));
    getrusage(RUSAGE_THREAD, &after);
  });
  waiter.join();
  const auto cpu_us = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  // Of 200 ms; CPU time is counted in ticks of up to 10 ms.
  EXPECT(cpu_us(after) - cpu_us(before) < 50'000);
  const long switches = after.ru_nvcsw - before.ru_nvcsw;
  EXPECT(switches >= 1 && switches <= 3);
}

TEST(many_waiters_all_wake) {
  EventCount count;
  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      count.wait(0, 0);
      ++woken;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  count.advance();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(woken.load(), 8);
}

}  // namespace
}  // namespace lmn::parallel
