// SPDX-License-Identifier: Apache-2.0
//
// The monotonic clock in nanoseconds, deadlines on it, and the pause of a spin loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lmn::parallel {

// CLOCK_MONOTONIC, which std::chrono::steady_clock is on Linux: about 20 ns, no system call.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

// Deadline of a time-out that starts now: negative means none, and what overflows is as good as
// none.
inline int64_t deadline_after(int64_t timeout_ns) {
  if (timeout_ns < 0) return kNoDeadline;
  const int64_t now = now_ns();
  return timeout_ns > kNoDeadline - now ? kNoDeadline : now + timeout_ns;
}

// Tells the core that this is a spin loop: it saves power and yields to the sibling hyperthread.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Data written by different threads is kept this far apart. 64 bytes is the line of x86 and most
// ARM cores.
inline constexpr size_t kCacheLine = 64;

}  // namespace lmn::parallel
