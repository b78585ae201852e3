// SPDX-License-Identifier: Apache-2.0
//
// Linear of one row, or up to eight: weights go from memory to registers once, so the floor is
// their bytes (packed_layout.h: 4.7 bits a weight of q4_k) over the memory's rate: 4.8 TB/s on an
// H200, 36 GB/s for each of 132 multiprocessors; at 0.8 us from request to answer that is 29 KB in
// flight on each.
//
// A block takes a panel of 32 channels (gated: a pair), a warp every so many splits of it. A warp
// asks for a whole split at once, 4.7 KB of q4_k, and for the next before it waits for the others.
// 16 warps, at 128 registers a thread, are 75 KB on a multiprocessor at most, half of it at any
// time; types of more bits need more registers, and have 12 warps with up to 8.7 KB each. The host
// makes blocks so large that all of them are resident together (few_rows_launch.cuh).
//
// In numbers of instructions, a split of q4_k by one row of 16 bits is 38 for each of 8 blocks and
// some 200 around them: 2 for each weight of a lane, where the memory's rate allows 3.6.
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

template <class Split>
LMN_KERNEL(Split::kWarps* simt::kWarp, 1)
void linear_few_rows(LinearParams p) {
  constexpr int kRows = Split::kRows;
  constexpr int kUnit = kRows * kSumStride;  // floats
  const int warp = simt::warp(), warps = simt::block_size() / simt::kWarp;
  const int gated = p.gated ? 1 : 0, panels = 1 + gated;
  const int64_t splits = simt::div_up(p.x.columns, kSplit);
  const int units = static_cast<int>(splits) * panels;
  const int64_t row0 = int64_t{simt::block_x()} * kRows;
  const int64_t group = simt::block_y();
  const std::byte* first = p.weights + group * panels * p.panel_bytes;
  std::byte* mine = simt::shared_memory() + warp * Split::kSharedBytes;
  auto* partial = reinterpret_cast<float*>(simt::shared_memory() + warps * Split::kSharedBytes);
  float* total = partial + 2 * warps * kUnit;
  const int outputs = panels * kRows * kPanel;
  LMN_ROLL
  for (int o = simt::thread_index(); o < outputs; o += simt::block_size())
    total[o / kPanel * kSumStride + o % kPanel] = 0;

  // What comes next is asked for before this round's sums are waited for.
  Split split;
  float* sums = partial + warps * kUnit;
  for (int begin = -warps; begin < units; begin += warps) {
    const int unit = begin + warp, next = unit + warps;
    if (begin >= 0 && unit < units)
      split.end(p, first + (unit & gated) * p.panel_bytes, unit >> gated, mine,
                sums + warp * kUnit);
    if (next < units) split.begin_weights(p, first + (next & gated) * p.panel_bytes, next >> gated);
    // Weights do not depend on the kernel before: the first of them come while it ends.
    if (begin < 0) simt::wait_for_previous();
    if (next < units) split.begin_rows(p, next >> gated, row0, mine);
    if (begin >= 0) {
      simt::sync_block();
      const int here = units - begin < warps ? units - begin : warps;
      LMN_ROLL
      for (int o = simt::thread_index(); o < outputs; o += simt::block_size()) {
        const int panel = o / (kRows * kPanel);
        const int at = o / kPanel % kRows * kSumStride + o % kPanel;
        float sum = total[panel * kUnit + at];
        for (int w = panel ^ (begin & gated); w < here; w += panels) sum += sums[w * kUnit + at];
        total[panel * kUnit + at] = sum;
      }
    }
    sums = sums == partial ? partial + warps * kUnit : partial;
  }
  if (p.gated) simt::sync_block();
  LMN_ROLL
  for (int o = simt::thread_index(); o < kRows * kPanel; o += simt::block_size()) {
    const int row = o / kPanel;
    const float* sum = total + row * kSumStride + o % kPanel;
    const float y =
        put_output(p, row0 + row, group * kPanel + o % kPanel, *sum, p.gated ? sum[kUnit] : 0);
    // A warp has a row's 32 channels: a block of what the next product reads.
    if (p.quantized == nullptr || row0 + row >= p.rows) continue;
    if (p.quantized_wide) {
      quantize_block(y, QuantizedRow<true>(p.quantized, p.stride, row0 + row), group);
    } else {
      quantize_block(y, QuantizedRow<false>(p.quantized, p.stride, row0 + row), group);
    }
  }
}

}  // namespace lmn::cuda
