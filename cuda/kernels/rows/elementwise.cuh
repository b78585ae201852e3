// SPDX-License-Identifier: Apache-2.0
//
// Element by element: a thread takes an element of the output.
#pragma once

#include "cuda/kernels/rows/activation.cuh"
#include "ops/op_args.h"

namespace lmn::cuda {

inline constexpr int kElementThreads = 256;

LMN_DEVICE int64_t element_index() {
  return int64_t{simt::block_x()} * kElementThreads + simt::thread_index();
}

LMN_KERNEL(kElementThreads, 4) void silu_mul(ops::SiluMulArgs a) {
  simt::wait_for_previous();
  const int64_t i = element_index();
  if (i >= a.rows * a.columns) return;
  const int64_t row = i / a.columns, column = i % a.columns;
  a.y[i] = silu(a.gate[row * a.gate_stride + column]) * a.up[row * a.up_stride + column];
}

LMN_KERNEL(kElementThreads, 4) void residual_add(ops::AddArgs a) {
  simt::wait_for_previous();
  const int64_t i = element_index();
  if (i < a.rows * a.columns) a.y[i] = a.a[i] + a.b[i];
}

LMN_KERNEL(kElementThreads, 4) void gather_rows(ops::GatherRowsArgs a) {
  simt::wait_for_previous();
  const int64_t i = element_index();
  if (i >= a.rows * a.columns) return;
  a.y[i] = a.x[a.indices[i / a.columns] * a.columns + i % a.columns];
}

}  // namespace lmn::cuda
