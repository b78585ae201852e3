// SPDX-License-Identifier: Apache-2.0
//
// What kernels of Linear are told, and what becomes of a finished sum.
#pragma once

#include "cuda/kernels/linear/product.cuh"
#include "cuda/kernels/rows/activation.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace lmn::cuda {

// One launch: a segment of a packed matrix, or neighbours of one type.
struct LinearParams {
  const std::byte* weights;  // its first panel
  int64_t panel_bytes;
  int64_t panels;
  ActivationRows x;
  int64_t rows;
  bool gated;         // panels alternate gate, up; an output is of a pair of channels
  int64_t outputs;    // of this launch
  const float* bias;  // null, or of output 0; so is what follows
  const float* bias_up;
  const float* residual;
  float* y;
  int64_t stride;  // from one row of y and residual to the next
  // Null, or rows of `stride` columns in kQA8 or kQA16 (wide) that are quantize(y): of launches
  // that have all outputs, and these in blocks of 32.
  std::byte* quantized;
  bool quantized_wide;
};

// Output `at` of a row, and what it is. `up` is read where it is gated alone.
LMN_DEVICE float put_output(const LinearParams& p, int64_t row, int64_t at, float sum, float up) {
  if (row >= p.rows || at >= p.outputs) return 0;
  if (p.bias != nullptr) sum += p.bias[at];
  if (p.gated) {
    if (p.bias_up != nullptr) up += p.bias_up[at];
    sum = silu(sum) * up;
  }
  const int64_t i = row * p.stride + at;
  if (p.residual != nullptr) sum += p.residual[i];
  p.y[i] = sum;
  return sum;
}

}  // namespace lmn::cuda
