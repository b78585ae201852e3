// SPDX-License-Identifier: Apache-2.0
//
// Dimensions that several tensors are walked along together, for host and device. Those that all of
// them run through alike are merged first, so that most walks are of one or two.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lmn::cuda::tensor {

inline constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

// One dimension of a walk over `n` tensors, the strides of each in elements.
struct Dimension {
  int64_t size = 1;
  std::vector<int64_t> strides;
};

class Walk {
 public:
  // Adds a dimension inside the others.
  void add(int64_t size, std::vector<int64_t> strides) {
    if (size == 1) return;
    if (!dimensions_.empty()) {
      Dimension& last = dimensions_.back();
      bool merges = true;
      for (size_t t = 0; t < strides.size(); ++t) merges &= last.strides[t] == strides[t] * size;
      if (merges) {
        last.size *= size;
        last.strides = std::move(strides);
        return;
      }
    }
    dimensions_.push_back({size, std::move(strides)});
  }
  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  int64_t elements() const {
    int64_t n = 1;
    for (const Dimension& d : dimensions_) n *= d.size;
    return n;
  }

 private:
  std::vector<Dimension> dimensions_;
};

inline std::array<int64_t, kMaxRank> dense_strides(const Shape& shape) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t next = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = next;
    next *= shape[i];
  }
  return strides;
}

// Of an operand that broadcasts to an output of this rank: its stride in dimension d of the output.
inline int64_t broadcast_stride(const Shape& operand, int out_rank, int d) {
  const int at = d - (out_rank - operand.rank);
  return at < 0 || operand[at] == 1 ? 0 : dense_strides(operand)[static_cast<size_t>(at)];
}

// All dimensions of the output, with a stride for each operand.
inline Walk broadcast_walk(const Shape& out, std::span<const Shape* const> operands) {
  Walk walk;
  for (int d = 0; d < out.rank; ++d) {
    std::vector<int64_t> strides;
    for (const Shape* operand : operands)
      strides.push_back(broadcast_stride(*operand, out.rank, d));
    walk.add(out[d], std::move(strides));
  }
  return walk;
}

}  // namespace lmn::cuda::tensor
