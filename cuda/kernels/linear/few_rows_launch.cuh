// SPDX-License-Identifier: Apache-2.0
//
// The shape of linear_few_rows' launches.
#pragma once

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/few_rows.cuh"
#include "cuda/kernels/linear/linear.h"

namespace lmn::cuda {

// Warps that an H200 holds at once: 132 multiprocessors, 65536 registers each, 128 of them a
// thread. Blocks are as large as leaves all of them resident together: a second wave of few blocks
// would leave most of the device idle.
inline constexpr int64_t kResidentWarps = 132 * 16;
inline constexpr int kLeastWarps = 4;  // an SM's schedulers
// Of eight rows, the most whose activations and sums fit 99 KB of shared memory (sm_120).
inline constexpr int kMostWarpsOfEight = 8;

template <class Split>
void launch_splits(const LinearParams& p, ops::LaunchQueue& queue) {
  const int64_t groups = p.gated ? p.panels / 2 : p.panels;
  const int64_t grid = groups * simt::div_up(p.rows, Split::kRows);
  const int64_t units = simt::div_up(p.x.columns, kSplit) * (p.gated ? 2 : 1);
  const int most = Split::kRows == 1 ? kFewRowsThreads / simt::kWarp : kMostWarpsOfEight;
  int warps = kLeastWarps;
  while (warps < most && warps < units && grid * warps * 2 <= kResidentWarps) warps *= 2;
  simt::launch<linear_few_rows<Split>>(
      queue,
      {blocks(grid), 1, 1, static_cast<uint32_t>(warps) * simt::kWarp,
       few_rows_shared<Split>(warps, p.gated)},
      p);
}

template <DType kType, bool kWide>
void launch_quantized_splits(const LinearParams& p, ops::LaunchQueue& queue) {
  if (p.rows == 1) return launch_splits<QuantizedSplit<kType, kWide, 1>>(p, queue);
  launch_splits<QuantizedSplit<kType, kWide, 8>>(p, queue);
}

template <bool kWide>
void launch_few_rows(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  switch (weight) {
    case DType::kQ4_0:
      return launch_quantized_splits<DType::kQ4_0, kWide>(p, queue);
    case DType::kQ4_1:
      return launch_quantized_splits<DType::kQ4_1, kWide>(p, queue);
    case DType::kQ5_0:
      return launch_quantized_splits<DType::kQ5_0, kWide>(p, queue);
    case DType::kQ5_1:
      return launch_quantized_splits<DType::kQ5_1, kWide>(p, queue);
    case DType::kQ4_K:
      return launch_quantized_splits<DType::kQ4_K, kWide>(p, queue);
    case DType::kQ5_K:
      return launch_quantized_splits<DType::kQ5_K, kWide>(p, queue);
    case DType::kQ6_K:
      return launch_quantized_splits<DType::kQ6_K, kWide>(p, queue);
    default:
      return launch_quantized_splits<DType::kQ8_0, kWide>(p, queue);
  }
}

}  // namespace lmn::cuda
