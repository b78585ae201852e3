// SPDX-License-Identifier: Apache-2.0
//
// Walking several tensors of broadcast shapes together. Dimensions that all operands run through
// alike are merged first, so that most walks are one or two loops.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace lmn::cpu {

// Strides in elements; 0 where an operand repeats.
template <int kOperands>
struct BroadcastWalk {
  int rank = 0;  // 1 at least
  std::array<int64_t, kMaxRank> sizes{};
  std::array<std::array<int64_t, kMaxRank>, kOperands> strides{};

  int64_t inner() const { return sizes[static_cast<size_t>(rank - 1)]; }
  int64_t inner_stride(int operand) const {
    return strides[static_cast<size_t>(operand)][static_cast<size_t>(rank - 1)];
  }
  int64_t rows() const {  // runs of the innermost dimension
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= sizes[static_cast<size_t>(i)];
    return n;
  }
  // First element of each operand in run `row`.
  std::array<int64_t, kOperands> offsets(int64_t row) const {
    std::array<int64_t, kOperands> at{};
    for (int i = rank - 2; i >= 0; --i) {
      const auto d = static_cast<size_t>(i);
      const int64_t index = row % sizes[d];
      row /= sizes[d];
      for (size_t o = 0; o < kOperands; ++o) at[o] += index * strides[o][d];
    }
    return at;
  }
};

template <int kOperands>
BroadcastWalk<kOperands> make_walk(const Shape& out,
                                   const std::array<const Shape*, kOperands>& operands) {
  // Strides of every operand over the dimensions of the output.
  std::array<std::array<int64_t, kMaxRank>, kOperands> strides{};
  for (size_t o = 0; o < kOperands; ++o) {
    const Shape& shape = *operands[o];
    int64_t stride = 1;
    for (int i = shape.rank - 1; i >= 0; --i) {
      const int d = i + out.rank - shape.rank;
      strides[o][static_cast<size_t>(d)] = shape[i] == 1 ? 0 : stride;
      stride *= shape[i];
    }
  }
  BroadcastWalk<kOperands> walk;
  for (int i = 0; i < out.rank; ++i) {
    const auto d = static_cast<size_t>(i);
    if (out[i] == 1) continue;
    bool merges = walk.rank > 0;
    for (size_t o = 0; o < kOperands && merges; ++o)
      merges = walk.strides[o][static_cast<size_t>(walk.rank - 1)] == strides[o][d] * out[i];
    const auto at = static_cast<size_t>(merges ? walk.rank - 1 : walk.rank++);
    walk.sizes[at] = merges ? walk.sizes[at] * out[i] : out[i];
    for (size_t o = 0; o < kOperands; ++o) walk.strides[o][at] = strides[o][d];
  }
  if (walk.rank == 0) {  // one element
    walk.rank = 1;
    walk.sizes[0] = 1;
  }
  return walk;
}

}  // namespace lmn::cpu
