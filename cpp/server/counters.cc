// SPDX-License-Identifier: Apache-2.0
#include "server/counters.h"

namespace lmn::server {

void Histogram::read(const char* name, lmn_histogram* out) const {
  *out = {};
  out->name = name;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    out->buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    out->count += out->buckets[i];
  }
  out->sum_ns = sum_.load(std::memory_order_relaxed);
  out->max_ns = max_.load(std::memory_order_relaxed);
  // The upper end of the bucket that holds it, and no more than the longest.
  const auto percentile = [&](uint64_t percent) {
    const uint64_t rank = (out->count * percent + 99) / 100;
    uint64_t seen = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      seen += out->buckets[i];
      if (seen < rank || seen == 0) continue;
      const size_t next = i + 1;
      const uint64_t end = (4 + next % 4) << (next / 4 + 4);
      return end < out->max_ns ? end : out->max_ns;
    }
    return out->max_ns;
  };
  out->p50_ns = percentile(50);
  out->p90_ns = percentile(90);
  out->p99_ns = percentile(99);
}

}  // namespace lmn::server
