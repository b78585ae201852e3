// SPDX-License-Identifier: Apache-2.0
//
// Walking windows over images: which outputs of a row a tap of the window reaches, runs of outputs
// in one row, how many taps of a window lie in the image.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/infer/spatial.h"

namespace lmn::cpu {

// Positions [begin, end) of a row of `count` outputs, whose windows begin at `first`, `first +
// stride`, ..., that lie inside an input of `size`.
struct Reach {
  int64_t begin, end;
};
inline Reach reach(int64_t first, int64_t stride, int64_t size, int64_t count) {
  const int64_t begin = first >= 0 ? 0 : (-first + stride - 1) / stride;
  const int64_t end = first >= size ? 0 : (size - first + stride - 1) / stride;
  return {std::min(begin, count), std::max(std::min(begin, count), std::min(end, count))};
}

// The digits of `index` in a number system of these sizes, `rank` of them.
inline void unravel(int64_t index, const ops::SpatialSizes& sizes, int rank,
                    ops::SpatialSizes* digits) {
  for (int d = rank - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    (*digits)[i] = index % sizes[i];
    index /= sizes[i];
  }
}
// The next number.
inline void advance(const ops::SpatialSizes& sizes, int rank, ops::SpatialSizes* digits) {
  for (int d = rank - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    if (++(*digits)[i] < sizes[i]) return;
    (*digits)[i] = 0;
  }
}

// Calls f(digits, at, n) for the parts of positions [position, position + count) that lie in one
// row: digits of the first of n, and how many positions come before it.
template <typename F>
void for_rows(const ops::SpatialSizes& sizes, int rank, int64_t position, int64_t count, F&& f) {
  ops::SpatialSizes digits{};
  unravel(position, sizes, rank, &digits);
  const auto last = static_cast<size_t>(rank - 1);
  for (int64_t at = 0; at < count;) {
    const int64_t n = std::min(count - at, sizes[last] - digits[last]);
    f(digits, at, n);
    at += n;
    digits[last] += n - 1;
    advance(sizes, rank, &digits);
  }
}

// Offset of the first input of the row that output row `out` reads with tap `tap`, or -1 where that
// row is padding. The last dimension is left out.
inline int64_t row_offset(const ops::Windows& w, const ops::SpatialSizes& out,
                          const ops::SpatialSizes& tap) {
  int64_t offset = 0;
  for (int d = 0; d + 1 < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t at = out[i] * w.stride[i] - w.pad_begin[i] + tap[i] * w.dilation[i];
    if (at < 0 || at >= w.in[i]) return -1;
    offset = offset * w.in[i] + at;
  }
  return offset * w.in[static_cast<size_t>(w.rank - 1)];
}

// How many taps of every window count for an average.
struct TapCounter {
  ops::Windows w;
  bool with_padding;

  int64_t along(size_t d, int64_t out) const {
    const int64_t first = out * w.stride[d] - w.pad_begin[d];
    const int64_t end = with_padding ? w.in[d] + w.pad_end[d] : w.in[d];
    const Reach taps = reach(first, w.dilation[d], end, w.kernel[d]);
    return with_padding ? taps.end : taps.end - taps.begin;
  }
  int64_t of_row(const ops::SpatialSizes& out) const {  // without the last dimension
    int64_t n = 1;
    for (int d = 0; d + 1 < w.rank; ++d)
      n *= along(static_cast<size_t>(d), out[static_cast<size_t>(d)]);
    return n;
  }
};

}  // namespace lmn::cpu
