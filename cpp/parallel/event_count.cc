// SPDX-License-Identifier: Apache-2.0
#include "parallel/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace lmn::parallel {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "the kernel reads the atomic as a plain 32-bit word");

// Between two looks at the clock. A pause is 4 to 40 ns by generation of chip, so this is 0.1 to 1
// µs.
constexpr int kPausesPerClockRead = 32;

}  // namespace

uint32_t EventCount::spin(uint32_t seen, int64_t spin_ns, int64_t deadline_ns) const {
  if (spin_ns <= 0) return value();
  const int64_t start = now_ns();
  const int64_t end = deadline_ns - start < spin_ns ? deadline_ns : start + spin_ns;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      const uint32_t now = value();
      if (now != seen) return now;
      cpu_pause();
    }
  } while (now_ns() < end);
  return seen;
}

uint32_t EventCount::park(uint32_t seen, int64_t deadline_ns) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
  until.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  uint32_t now = seen;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);  // before the load below: see advance()
  for (;;) {
    now = count_.load(std::memory_order_seq_cst);
    if (now != seen || (deadline_ns != kNoDeadline && now_ns() >= deadline_ns)) break;
    // Sleeps only if the word is still `seen`. Any return (woken, changed, timed out, signal) leads
    // to the same look again.
    syscall(SYS_futex, &count_, FUTEX_WAIT_BITSET_PRIVATE, seen,
            deadline_ns == kNoDeadline ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  // Relaxed: a notifier that still sees this sleeper makes one vain call.
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return now;
}

void EventCount::wake(int32_t waiters) {
  syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, waiters, nullptr, nullptr, 0);
}

}  // namespace lmn::parallel
