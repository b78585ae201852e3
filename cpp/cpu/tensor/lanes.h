// SPDX-License-Identifier: Apache-2.0
//
// Lanes: the runs of a tensor along one axis, and what sums are made in. Element a of lane (o, i)
// is at (o · size + a) · inner + i. Kernels take lanes of one o in blocks of neighbouring i, so
// that inner loops run over adjacent elements; what a lane gives never depends on its block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/tensor.h"
#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {

// What sums and products of T are made in: floats of 16 bits in float, integers modulo 2^64.
template <typename T>
using TotalOf = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                   std::conditional_t<std::is_same_v<T, double>, double, float>>;

struct Lanes {
  static constexpr int64_t kBlock = 64;  // lanes: one to four cache lines of each row

  int64_t outer = 1, size = 1, inner = 1;

  Lanes() = default;
  Lanes(const Shape& shape, int axis) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    if (shape.rank > 0) size = shape[axis];
    for (int i = axis + 1; i < shape.rank; ++i) inner *= shape[i];
  }
  int64_t count() const { return outer * inner; }
  int64_t blocks() const { return (inner + kBlock - 1) / kBlock; }  // of one o

  // f(first element, number of lanes, index of the first lane) for a worker's share.
  template <typename F>
  void for_each_block(const ops::Worker& worker, F&& f) const {
    const auto [begin, end] = ops::share_of(outer * blocks(), worker);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t o = unit / blocks(), i = unit % blocks() * kBlock;
      f(o * size * inner + i, std::min(kBlock, inner - i), o * inner + i);
    }
  }
};

// Floats: whether a NaN. Integers: never.
template <typename T>
bool is_nan(const T& x) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return x != x;
  }
}

}  // namespace lmn::cpu
