// SPDX-License-Identifier: Apache-2.0
//
// Histogram: how long something took, in buckets of a quarter of a power of two. One thread adds,
// any thread reads; adding is three relaxed stores and allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace lmn::engine {

inline constexpr int kHistogramBuckets = 128;

// Bucket b holds [lower(b), lower(b + 1)) ns; bucket 0 everything below lower(1), the last
// everything above. 64 ns to 4.6 minutes.
inline constexpr int64_t histogram_lower(int bucket) {
  return int64_t{4 + bucket % 4} << (bucket / 4 + 4);
}
inline constexpr int histogram_bucket(int64_t ns) {
  if (ns < histogram_lower(0)) return 0;
  const int power = std::bit_width(static_cast<uint64_t>(ns)) - 1;  // 6 or more
  const int bucket = (power - 6) * 4 + static_cast<int>(ns >> (power - 2)) - 4;
  return bucket < kHistogramBuckets ? bucket : kHistogramBuckets - 1;
}

struct HistogramSnapshot {
  const char* name = "";  // static
  int64_t count = 0;
  int64_t sum_ns = 0;
  int64_t max_ns = 0;
  std::array<int64_t, kHistogramBuckets> buckets{};

  // The value below which a share `p` of all lies: the middle of its bucket, at most max_ns. 0 when
  // there is none.
  int64_t percentile(double p) const;
};

class Histogram {
 public:
  explicit Histogram(const char* name) : name_(name) {}

  // The writer's thread.
  void add(int64_t ns, int64_t times = 1) {
    bump(buckets_[static_cast<size_t>(histogram_bucket(ns))], times);
    bump(sum_, ns * times);
    if (ns > max_.load(std::memory_order_relaxed)) max_.store(ns, std::memory_order_relaxed);
  }
  HistogramSnapshot snapshot() const;  // any thread

 private:
  using Counter = std::atomic<int64_t>;
  // Relaxed: the counters order nothing. One writer: no read-modify-write is needed.
  static void bump(Counter& counter, int64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  const char* name_;
  Counter sum_{0}, max_{0};
  std::array<Counter, kHistogramBuckets> buckets_{};
};

}  // namespace lmn::engine
