// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace lmn::plan {
namespace {

bool alive_together(const Interval& a, const Interval& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The start of the smallest gap between `taken` (sorted by offset) that holds `bytes`; the end of
// all if none does.
int64_t best_fit(const std::vector<const Interval*>& taken, int64_t bytes) {
  int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), end = 0;
  for (const Interval* next : taken) {
    const int64_t gap = next->offset - end;
    if (gap >= bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, next->offset + align_up(next->bytes));
  }
  return best >= 0 ? best : end;
}

}  // namespace

int64_t assign_offsets(std::span<Interval> intervals) {
  return assign_offsets(intervals, [intervals](size_t a, size_t b) {
    return alive_together(intervals[a], intervals[b]);
  });
}

int64_t assign_offsets(std::span<Interval> intervals,
                       const std::function<bool(size_t, size_t)>& meet) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].bytes > intervals[b].bytes; });
  std::vector<const Interval*> placed, taken;  // sorted by offset
  int64_t size = 0;
  for (size_t i : order) {
    Interval& interval = intervals[i];
    taken.clear();
    for (const Interval* other : placed) {
      if (meet(i, static_cast<size_t>(other - intervals.data()))) taken.push_back(other);
    }
    interval.offset = best_fit(taken, align_up(interval.bytes));
    size = std::max(size, interval.offset + align_up(interval.bytes));
    placed.insert(std::upper_bound(
                      placed.begin(), placed.end(), interval.offset,
                      [](int64_t offset, const Interval* other) { return offset < other->offset; }),
                  &interval);
  }
  return size;
}

bool is_valid_assignment(std::span<const Interval> intervals, int64_t size) {
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& a = intervals[i];
    if (a.offset < 0 || a.offset % kAlignment != 0 || a.offset + a.bytes > size) return false;
    for (size_t j = 0; j < i; ++j) {
      const Interval& b = intervals[j];
      const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (share && alive_together(a, b)) return false;
    }
  }
  return true;
}

}  // namespace lmn::plan
