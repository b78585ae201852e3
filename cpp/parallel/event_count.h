// SPDX-License-Identifier: Apache-2.0
//
// EventCount: a 32-bit count that threads wait on to change: they spin for a bounded time, then
// park in the kernel (futex). It is the one place in the library where a thread sleeps. To wait for
// a condition:
//
//   waiter                                     notifier
//     seen = count.value();                      make the condition true (any store before advance)
//     if (condition) done;                       count.advance();
//     count.wait(seen, spin_ns, deadline);
//
// No wake-up is lost. If value() read the number after the notifier's advance, the acquire load
// there pairs with the release in advance, and the condition is visible. If it read the number
// before, wait(seen) returns because the number differs.
#pragma once

#include <atomic>
#include <cstdint>

#include "parallel/clock.h"

namespace lmn::parallel {

class EventCount {
 public:
  EventCount() = default;
  EventCount(const EventCount&) = delete;
  EventCount& operator=(const EventCount&) = delete;

  // acquire: pairs with the release half of advance().
  uint32_t value() const { return count_.load(std::memory_order_acquire); }

  // Adds one and wakes every parked waiter; returns the new value. One uncontended
  // read-modify-write when nobody sleeps.
  uint32_t advance() {
    // seq_cst on count_ and then sleepers_, against sleepers_ and then count_ in park(): in the
    // single total order either this load sees the sleeper, or the sleeper's load sees the new
    // count and does not sleep.
    const uint32_t now = count_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake(INT32_MAX);
    return now;
  }

  // As advance(), and wakes one parked waiter at least, when there is one: for waiters who do the
  // same, of whom one is enough. All who have not parked yet see the new value.
  uint32_t advance_one() {
    const uint32_t now = count_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake(1);
    return now;
  }

  // Returns the value once it is not `seen`, or `seen` when the deadline (clock of now_ns();
  // kNoDeadline) has passed. Spins for at most spin_ns first; <= 0 does not spin.
  uint32_t wait(uint32_t seen, int64_t spin_ns, int64_t deadline_ns = kNoDeadline) {
    uint32_t now = value();
    if (now == seen) now = spin(seen, spin_ns, deadline_ns);
    if (now == seen) now = park(seen, deadline_ns);
    return now;
  }
  // The two halves of wait(). Each returns the value, or `seen` when its time is over.
  uint32_t spin(uint32_t seen, int64_t spin_ns, int64_t deadline_ns = kNoDeadline) const;
  uint32_t park(uint32_t seen, int64_t deadline_ns = kNoDeadline);

 private:
  void wake(int32_t waiters);

  std::atomic<uint32_t> count_{0};  // the futex word
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace lmn::parallel
