// SPDX-License-Identifier: Apache-2.0
//
// Dot products of rows that lie along the inner dimension. Each is summed in a fixed number of
// lanes, which are added in a tree at the end: the order depends on the length of the row alone,
// whichever rows are computed together.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/tensor/product.h"

namespace lmn::cpu {

template <typename S>
struct DotLanes {
  typedef S Vector __attribute__((vector_size(16)));
  static constexpr int64_t kVector = 16 / sizeof(S), kLanes = 2 * kVector;

  static Vector load(const S* from) {
    Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }

  // to[r * to_stride + o] += w[o] . x[r] for a tile of kOutputs and kRows.
  template <int kOutputs, int kRows>
  static void tile(const S* w, int64_t w_stride, const S* x, int64_t x_stride, int64_t inner, S* to,
                   int64_t to_stride) {
    Vector acc[kOutputs][kRows][2] = {};
    int64_t k = 0;
    for (; k + kLanes <= inner; k += kLanes) {
      for (int r = 0; r < kRows; ++r) {
        const Vector x0 = load(x + r * x_stride + k), x1 = load(x + r * x_stride + k + kVector);
        for (int o = 0; o < kOutputs; ++o) {
          acc[o][r][0] += load(w + o * w_stride + k) * x0;
          acc[o][r][1] += load(w + o * w_stride + k + kVector) * x1;
        }
      }
    }
    for (int o = 0; o < kOutputs; ++o) {
      for (int r = 0; r < kRows; ++r) {
        S lanes[kLanes];
        std::memcpy(lanes, acc[o][r], sizeof lanes);
        for (int64_t i = k; i < inner; ++i)
          lanes[i - k] += w[o * w_stride + i] * x[r * x_stride + i];
        for (int64_t width = kLanes / 2; width > 0; width /= 2) {
          for (int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
        }
        to[r * to_stride + o] += lanes[0];
      }
    }
  }

  static void add(const S* w, int64_t w_stride, int64_t outputs, const S* x, int64_t x_stride,
                  int64_t rows, int64_t inner, S* to, int64_t to_stride) {
    int64_t o = 0;
    for (; o + 4 <= outputs; o += 4) {
      for (int64_t r = 0; r < rows; ++r)
        tile<4, 1>(w + o * w_stride, w_stride, x + r * x_stride, x_stride, inner,
                   to + r * to_stride + o, to_stride);
    }
    for (; o < outputs; ++o) {
      for (int64_t r = 0; r < rows; ++r)
        tile<1, 1>(w + o * w_stride, w_stride, x + r * x_stride, x_stride, inner,
                   to + r * to_stride + o, to_stride);
    }
  }
};

// to[r * to_stride + o] += w[o] . x[r]. `row` has room for `inner` numbers.
template <typename T>
void add_dots(const T* w, int64_t w_stride, int64_t outputs, const Sum<T>* x, int64_t x_stride,
              int64_t rows, int64_t inner, Sum<T>* to, int64_t to_stride, Sum<T>* row) {
  if constexpr (std::is_same_v<T, Sum<T>>) {
    DotLanes<T>::add(w, w_stride, outputs, x, x_stride, rows, inner, to, to_stride);
  } else {
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < inner; ++i) row[i] = static_cast<Sum<T>>(w[o * w_stride + i]);
      DotLanes<Sum<T>>::add(row, inner, 1, x, x_stride, rows, inner, to + o, to_stride);
    }
  }
}

}  // namespace lmn::cpu
