// SPDX-License-Identifier: Apache-2.0
//
// Trace: spans of time that the engine thread writes and one reader takes out, through a bounded
// ring without locks. When the reader lags, new spans are counted as lost; the engine never waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "parallel/clock.h"

namespace lmn::engine {

struct TraceEvent {
  const char* name = "";  // static
  int64_t begin_ns = 0;   // clock of now_ns()
  int64_t end_ns = 0;
  uint64_t request = 0;  // id, or 0: a span of the engine thread
  int32_t tokens = 0;
  int32_t sequences = 0;
};

class Trace {
 public:
  // 0 events: add() does nothing.
  explicit Trace(int32_t events) {
    if (events == 0) return;
    size_t size = 1;
    while (size < static_cast<size_t>(events)) size *= 2;
    events_ = std::make_unique<TraceEvent[]>(size);
    mask_ = size - 1;
  }
  bool enabled() const { return events_ != nullptr; }
  int64_t bytes() const {
    return enabled() ? static_cast<int64_t>((mask_ + 1) * sizeof(TraceEvent)) : 0;
  }

  // The engine thread.
  void add(const TraceEvent& event) {
    if (!enabled()) return;
    const uint64_t tail = tail_.load(std::memory_order_relaxed);  // its own
    // acquire, with the release in take(): the reader has copied what is overwritten.
    if (tail - head_.load(std::memory_order_acquire) > mask_) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    events_[tail & mask_] = event;
    tail_.store(tail + 1, std::memory_order_release);  // pairs with the acquire in take()
  }

  // One reader at a time.
  size_t take(std::span<TraceEvent> out) {
    uint64_t head = head_.load(std::memory_order_relaxed);  // its own
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    size_t count = 0;
    while (count < out.size() && head != tail) out[count++] = events_[head++ & mask_];
    head_.store(head, std::memory_order_release);
    return count;
  }
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<TraceEvent[]> events_;
  uint64_t mask_ = 0;
  alignas(parallel::kCacheLine) std::atomic<uint64_t> tail_{0};
  alignas(parallel::kCacheLine) std::atomic<uint64_t> head_{0};
  std::atomic<uint64_t> lost_{0};
};

}  // namespace lmn::engine
