// SPDX-License-Identifier: Apache-2.0
//
// What a part of a step did so far: its time, and what it had to do at least (ops/cost.h). One
// thread adds, any thread reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "ops/cost.h"

namespace lmn::plan {

struct ProfileEntry {
  // Both NUL-terminated.
  std::string_view op;    // of ops.def, for stages of a plan
  std::string_view name;  // of the node ("blk.0.attn_qkv")
  int64_t calls = 0;
  int64_t run_ns = 0;   // at work
  int64_t wait_ns = 0;  // for other threads, that got more of it
  int64_t bytes = 0;
  int64_t operations = 0;
};

class ProfileCounter {
 public:
  void add(int64_t run_ns, int64_t wait_ns = 0) {
    bump(calls_, 1);
    bump(run_ns_, run_ns);
    bump(wait_ns_, wait_ns);
  }
  void add_wait(int64_t ns) { bump(wait_ns_, ns); }
  void add_cost(const ops::Cost& cost) {
    bump(bytes_, cost.bytes);
    bump(operations_, cost.operations);
  }
  ProfileEntry entry(std::string_view op, std::string_view name) const {
    return {op,
            name,
            calls_.load(std::memory_order_relaxed),
            run_ns_.load(std::memory_order_relaxed),
            wait_ns_.load(std::memory_order_relaxed),
            bytes_.load(std::memory_order_relaxed),
            operations_.load(std::memory_order_relaxed)};
  }

 private:
  using Counter = std::atomic<int64_t>;
  // Relaxed: the counters order nothing. One writer: no read-modify-write is needed.
  static void bump(Counter& counter, int64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  Counter calls_{0}, run_ns_{0}, wait_ns_{0}, bytes_{0}, operations_{0};
};

}  // namespace lmn::plan
