// SPDX-License-Identifier: Apache-2.0
//
// What the server counts since it was made. Any thread adds and reads; each figure is exact,
// together they are not one moment.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "server/handles.h"

namespace lmn::server {

// The buckets of lmn_histogram: four for each power of two from 64 ns on.
class Histogram {
 public:
  void add(int64_t ns) {
    const auto value = static_cast<uint64_t>(ns < 0 ? 0 : ns);
    buckets_[bucket(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
    uint64_t most = max_.load(std::memory_order_relaxed);
    while (value > most && !max_.compare_exchange_weak(most, value, std::memory_order_relaxed)) {
    }
  }
  void read(const char* name, lmn_histogram* out) const;

 private:
  static size_t bucket(uint64_t ns) {
    if (ns < 64) return 0;
    const auto power = static_cast<size_t>(std::bit_width(ns)) - 1;
    const size_t at = (power - 6) * 4 + ((ns >> (power - 2)) & 3);
    return at < LMN_HISTOGRAM_BUCKETS ? at : LMN_HISTOGRAM_BUCKETS - 1;
  }

  std::array<std::atomic<uint64_t>, LMN_HISTOGRAM_BUCKETS> buckets_{};
  std::atomic<uint64_t> sum_{0}, max_{0};
};

struct Counters {
  std::atomic<uint64_t> connections{0};  // open
  std::atomic<uint64_t> requests{0};     // in work
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> answered{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> failed{0};
  std::atomic<uint64_t> aborted{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> body_bytes{0};  // of large requests that are held
  // The end of a request's body to the first byte of its answer, less what the engine had it for:
  // completions only.
  Histogram overhead;
};

}  // namespace lmn::server
