// SPDX-License-Identifier: Apache-2.0
//
// Einsum's equation, for inference and for kernels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ops/tensor_op.h"

namespace lmn::ops {

inline constexpr int kMaxLabels = 24;

struct Einsum {
  int labels = 0;  // those of the output first, in its order; then those that are summed over
  int output_labels = 0;
  std::array<int64_t, kMaxLabels> size{};
  // Per operand: the stride of every label in elements, 0 where it does not have it. Only
  // meaningful if all sizes are known.
  std::vector<std::array<int64_t, kMaxLabels>> strides;
  std::vector<uint32_t> has;  // per operand: bits of its labels
};

Status read_einsum(const TensorNode& node, Einsum* einsum);

}  // namespace lmn::ops
