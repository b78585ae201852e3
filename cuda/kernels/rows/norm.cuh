// SPDX-License-Identifier: Apache-2.0
//
// RMS norm, with and without quantisation of its result; quantisation alone. A block takes a row.
// Of the sum of squares, thread i adds elements i, i + 256 and so on in that order; then the lanes
// of a warp and the warps in the order of their numbers: fixed by the number of columns.
#pragma once

#include "cuda/core/simt.cuh"
#include "cuda/kernels/rows/quantize.cuh"
#include "ops/op_args.h"

namespace lmn::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr uint32_t kNormShared = kNormThreads / simt::kWarp * sizeof(float);

// 1 / sqrt(mean(x^2) + eps), for all threads of the block.
LMN_DEVICE float norm_scale(const float* x, int64_t columns, float eps) {
  auto* partial = reinterpret_cast<float*>(simt::shared_memory());
  float sum = 0;
  for (int64_t i = simt::thread_index(); i < columns; i += kNormThreads)
    sum = simt::fma(x[i], x[i], sum);
  sum = simt::warp_sum(sum);
  if (simt::lane() == 0) partial[simt::warp()] = sum;
  simt::sync_block();
  sum = 0;
  for (int w = 0; w < kNormThreads / simt::kWarp; ++w) sum += partial[w];
  return 1.0f / simt::square_root(sum / static_cast<float>(columns) + eps);
}

LMN_KERNEL(kNormThreads, 4) void rms_norm(ops::RmsNormArgs a) {
  simt::wait_for_previous();
  const int64_t row = simt::block_x();
  const float* x = a.x + row * a.columns;
  float* y = a.y + row * a.columns;
  const float scale = norm_scale(x, a.columns, a.eps);
  for (int64_t i = simt::thread_index(); i < a.columns; i += kNormThreads)
    y[i] = x[i] * scale * a.weight[i];
}

// Elements that a thread asks for at a time: one after the other they would be waited for one after
// the other.
inline constexpr int kNormAhead = 8;

// A warp's blocks b, b + 8 and so on of a row of weights; those past its end are 0. The weights do
// not depend on the kernel before.
LMN_DEVICE void load_norm_weights(const ops::RmsNormQuantizeArgs& a, int64_t b,
                                  float (&w)[kNormAhead]) {
  LMN_UNROLL
  for (int i = 0; i < kNormAhead; ++i) {
    const int64_t at = (b + i * (kNormThreads / simt::kWarp)) * 32 + simt::lane();
    w[i] = at < a.columns ? simt::load_once(a.weight + at) : 0;
  }
}

template <bool kWide>
LMN_KERNEL(kNormThreads, 4)
void rms_norm_quantize(ops::RmsNormQuantizeArgs a) {
  constexpr int kWarps = kNormThreads / simt::kWarp;
  float w[kNormAhead];
  load_norm_weights(a, simt::warp(), w);
  simt::wait_for_previous();
  const int64_t row = simt::block_x(), blocks = a.columns / 32;
  const float* x = a.x + row * a.columns;
  const QuantizedRow<kWide> y(a.y.base, a.columns, row);
  const float scale = norm_scale(x, a.columns, a.eps);
  for (int64_t b = simt::warp(); b < blocks; b += kNormAhead * kWarps) {
    if (b >= kNormAhead * kWarps) load_norm_weights(a, b, w);
    float v[kNormAhead];
    LMN_UNROLL
    for (int i = 0; i < kNormAhead; ++i) {
      const int64_t block = b + i * kWarps;
      v[i] = block < blocks ? x[block * 32 + simt::lane()] : 0;
    }
    LMN_UNROLL
    for (int i = 0; i < kNormAhead; ++i) {
      if (b + i * kWarps < blocks) quantize_block(v[i] * scale * w[i], y, b + i * kWarps);
    }
  }
}

// Blocks of all rows, one after the other, a warp each.
template <bool kWide>
LMN_KERNEL(kNormThreads, 4)
void quantize(ops::QuantizeArgs a) {
  simt::wait_for_previous();
  const int64_t per_row = a.columns / 32;
  const int64_t b = int64_t{simt::block_x()} * (kNormThreads / simt::kWarp) + simt::warp();
  if (b >= a.rows * per_row) return;
  const int64_t row = b / per_row;
  const QuantizedRow<kWide> y(a.y.base, a.columns, row);
  quantize_block(a.x[b * 32 + simt::lane()], y, b % per_row);
}

}  // namespace lmn::cuda
