// SPDX-License-Identifier: Apache-2.0
//
// The shape of linear_few_rows' launches.
#pragma once

#include <algorithm>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/few_rows.cuh"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/linear/weight_types.h"

namespace lmn::cuda {

// Blocks are as large as leaves all of them resident together (a second wave of few blocks would
// leave most of the device idle), and no larger than as many rounds of splits take.
inline constexpr int kLeastWarps = 4;  // a multiprocessor's schedulers
// Of eight rows, activations and sums of so many warps fit in 99 KB of shared memory (sm_120), and
// two such blocks on a multiprocessor.
inline constexpr int kMostWarpsOfEight = 8;

template <class Split>
void launch_splits(const LinearParams& p, ops::LaunchQueue& queue) {
  const int64_t groups = p.gated ? p.panels / 2 : p.panels;
  const int64_t row_tiles = simt::div_up(p.rows, Split::kRows);
  const int64_t grid = groups * row_tiles;
  const int64_t units = simt::div_up(p.x.columns, kSplit) * (p.gated ? 2 : 1);
  const int64_t most =
      Split::kRows == 1 ? Split::kWarps : std::min(Split::kWarps / 2, kMostWarpsOfEight);
  // Warps of a block, where a multiprocessor has as many blocks as it gets and kWarps in all.
  const int64_t each = Split::kWarps / simt::div_up(grid, queue.multiprocessors);
  int64_t warps = std::max<int64_t>(kLeastWarps, std::min({most, each, units}) / 2 * 2);
  const int64_t rounds = simt::div_up(units, warps);
  warps = std::max<int64_t>(kLeastWarps, simt::div_up(simt::div_up(units, rounds), 2) * 2);
  simt::launch<linear_few_rows<Split>>(
      queue,
      {blocks(row_tiles), blocks(groups), 1, static_cast<uint32_t>(warps) * simt::kWarp,
       few_rows_shared<Split>(static_cast<int>(warps), p.gated)},
      p);
}

template <bool kWide>
void launch_few_rows(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  with_quantized_type(weight, [&]<DType kType>() {
    if (p.rows == 1) return launch_splits<QuantizedSplit<kType, kWide, 1>>(p, queue);
    launch_splits<QuantizedSplit<kType, kWide, 8>>(p, queue);
  });
}

}  // namespace lmn::cuda
