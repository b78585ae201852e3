// SPDX-License-Identifier: Apache-2.0
//
// Layer norm and root mean square norm of rows, of a sum of up to three operands where the norm
// took the addition along: mean and then variance, both in float; results are rounded once.
#pragma once

#include "cuda/kernels/tensor/group.cuh"

namespace lmn::cuda::tensor {

// A tensor that may be absent. Element i of a row is at i * step, of row r from r % rows * columns.
struct NormOperand {
  const void* data;
  DType type;
  uint32_t step;
  uint32_t rows;  // that it has; 0: one, which repeats
};

struct NormParams {
  NormOperand x, skip, bias;  // what is summed
  NormOperand scale, offset;
  void* y;
  void* total;    // the sum
  void* mean;     // of each row
  void* inverse;  // of the root of the variance
  DType y_type, total_type, moment_type;
  Form form;
  bool centered;
  uint32_t rows, columns;
  float epsilon;
};

LMN_DEVICE float norm_element(const NormOperand& operand, uint32_t row, uint32_t columns,
                              uint32_t i) {
  const uint32_t first = operand.rows == 0 ? 0 : row % operand.rows * columns;
  return load<float>(operand.data, operand.type, first + i * operand.step);
}
LMN_DEVICE float norm_input(const NormParams& p, uint32_t row, uint32_t i) {
  float v = norm_element(p.x, row, p.columns, i);
  if (p.skip.data != nullptr) v += norm_element(p.skip, row, p.columns, i);
  if (p.bias.data != nullptr) v += norm_element(p.bias, row, p.columns, i);
  return v;
}

LMN_KERNEL(kGroupThreads, 4) void normalize(NormParams p) {
  simt::wait_for_previous();
  const Group group(p.form);
  const uint32_t row = group.output, columns = row < p.rows ? p.columns : 0;
  const auto n = static_cast<float>(p.columns);
  float mean = 0, squares = 0;
  if (p.centered) {
    for (uint32_t i = group.first; i < columns; i += group.step) mean += norm_input(p, row, i);
    mean = group.combine(Merge::kSum, mean) / n;
  }
  for (uint32_t i = group.first; i < columns; i += group.step) {
    const float distance = norm_input(p, row, i) - mean;
    squares = simt::fma(distance, distance, squares);
  }
  squares = group.combine(Merge::kSum, squares);
  const float inverse = 1.0f / simt::square_root(squares / n + p.epsilon);
  for (uint32_t i = group.first; i < columns; i += group.step) {
    const float v = norm_input(p, row, i);
    const uint32_t at = row * p.columns + i;
    if (p.total != nullptr) store(p.total, p.total_type, at, v);
    if (p.y == nullptr) continue;
    float y = (v - mean) * inverse * norm_element(p.scale, row, p.columns, i);
    if (p.offset.data != nullptr) y += norm_element(p.offset, row, p.columns, i);
    store(p.y, p.y_type, at, y);
  }
  if (columns > 0 && group.first == 0) {
    if (p.mean != nullptr) store(p.mean, p.moment_type, row, mean);
    if (p.inverse != nullptr) store(p.inverse, p.moment_type, row, inverse);
  }
}

}  // namespace lmn::cuda::tensor
