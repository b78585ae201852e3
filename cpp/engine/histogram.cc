// SPDX-License-Identifier: Apache-2.0
#include "engine/histogram.h"

#include <algorithm>
#include <cmath>

namespace lmn::engine {

HistogramSnapshot Histogram::snapshot() const {
  HistogramSnapshot out;
  out.name = name_;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    out.buckets[b] = buckets_[b].load(std::memory_order_relaxed);
    out.count += out.buckets[b];
  }
  out.sum_ns = sum_.load(std::memory_order_relaxed);
  out.max_ns = max_.load(std::memory_order_relaxed);
  return out;
}

int64_t HistogramSnapshot::percentile(double p) const {
  if (count == 0) return 0;
  const auto rank = static_cast<int64_t>(std::ceil(p * static_cast<double>(count)));
  int64_t passed = 0;
  for (int b = 0; b < kHistogramBuckets; ++b) {
    passed += buckets[static_cast<size_t>(b)];
    if (passed < std::max<int64_t>(rank, 1)) continue;
    const int64_t low = b == 0 ? 0 : histogram_lower(b);
    return std::min((low + histogram_lower(b + 1)) / 2, max_ns);
  }
  return max_ns;
}

}  // namespace lmn::engine
