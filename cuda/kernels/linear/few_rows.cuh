// SPDX-License-Identifier: Apache-2.0
//
// Linear of one row, or up to eight: weights go from memory to registers once, so the floor is
// their bytes (packed_layout.h: 4.7 bits a weight of q4_k) over the memory's rate: 4.8 TB/s on an
// H200, 36 GB/s for each of 132 multiprocessors; at 0.8 us from request to answer that is 29 KB in
// flight on each.
//
// A block takes a panel of 32 channels (gated: a pair), a warp every so many splits of it. A warp
// asks for a whole split at once: 4.7 KB of q4_k, and for the next before it waits for the others.
// 128 registers a thread hold 16 warps on a multiprocessor: 75 KB at most, half of it at any time.
// Where there are fewer than two blocks for each, blocks are larger instead (few_rows.cu).
//
// Partial sums of a round of splits meet in shared memory and are added in ascending order by the
// thread that has the output.
#pragma once

#include "cuda/kernels/linear/splits.cuh"

namespace lmn::cuda {

template <class Split>
constexpr uint32_t few_rows_shared(int warps, bool gated) {
  const int unit = Split::kRows * kSumStride * 4;
  return static_cast<uint32_t>(warps * (Split::kSharedBytes + 2 * unit) + (gated ? 2 : 1) * unit);
}

inline constexpr int kFewRowsThreads = 512;

template <class Split>
LMN_KERNEL(kFewRowsThreads, 1)
void linear_few_rows(LinearParams p) {
  constexpr int kRows = Split::kRows;
  constexpr int kUnit = kRows * kSumStride;  // floats
  const int warp = simt::warp(), warps = simt::block_size() / simt::kWarp;
  const int panels = p.gated ? 2 : 1;
  const int64_t splits = simt::div_up(p.x.columns, kSplit);
  const int units = static_cast<int>(splits) * panels;
  const int64_t row0 = int64_t{simt::block_x()} % simt::div_up(p.rows, kRows) * kRows;
  const int64_t group = int64_t{simt::block_x()} / simt::div_up(p.rows, kRows);
  const std::byte* first = p.weights + group * panels * p.panel_bytes;
  std::byte* mine = simt::shared_memory() + warp * Split::kSharedBytes;
  auto* partial = reinterpret_cast<float*>(simt::shared_memory() + warps * Split::kSharedBytes);
  float* total = partial + 2 * warps * kUnit;
  const int outputs = panels * kRows * kPanel;
  for (int o = simt::thread_index(); o < outputs; o += simt::block_size())
    total[o / kPanel * kSumStride + o % kPanel] = 0;

  Split split;
  int unit = warp;
  if (unit < units)
    split.begin(p, first + unit % panels * p.panel_bytes, unit / panels, row0, mine);
  for (int begin = 0; begin < units; begin += warps) {
    float* sums = partial + begin / warps % 2 * warps * kUnit;
    if (unit < units) {
      split.end(p, mine, sums + warp * kUnit);
      unit += warps;
      if (unit < units)
        split.begin(p, first + unit % panels * p.panel_bytes, unit / panels, row0, mine);
    }
    simt::sync_block();
    const int here = units - begin < warps ? units - begin : warps;
    for (int o = simt::thread_index(); o < outputs; o += simt::block_size()) {
      const int panel = o / (kRows * kPanel);
      const int at = o / kPanel % kRows * kSumStride + o % kPanel;
      float sum = total[panel * kUnit + at];
      for (int w = (panel + begin) % panels; w < here; w += panels) sum += sums[w * kUnit + at];
      total[panel * kUnit + at] = sum;
    }
  }
  if (p.gated) simt::sync_block();
  for (int o = simt::thread_index(); o < kRows * kPanel; o += simt::block_size()) {
    const int row = o / kPanel;
    const float* sum = total + row * kSumStride + o % kPanel;
    put_output(p, row0 + row, group * kPanel + o % kPanel, *sum, p.gated ? sum[kUnit] : 0);
  }
}

}  // namespace lmn::cuda
