// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of float16 or bfloat16 by matrix instructions, for operands whose rows, or whose
// columns on the right, are whole units of 16 bytes: what products.cuh says of order holds, with an
// instruction's 16 products for one. Whether this kernel is chosen depends on types and strides,
// never on the number of rows.
#pragma once

#include "cuda/kernels/tensor/products.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kHalfThreads = 128, kHalfWarps = kHalfThreads / simt::kWarp;
inline constexpr int kHalfDepth = 32, kHalfStages = 3, kUnit = 8;  // elements of 16 bytes
// Rows of tiles in shared memory are a unit longer: eight of them lie in different banks.
inline constexpr int kHalfRow = kHalfDepth + kUnit, kHalfColumns = kProductColumns + kUnit;
inline constexpr int kHalfWeights = kProductColumns * kHalfRow;  // the larger of both layouts
static_assert(kHalfWeights >= kHalfDepth * kHalfColumns);

template <int kRows>
inline constexpr uint32_t kHalfShared = sizeof(uint16_t) * kHalfStages*(kRows* kHalfRow +
                                                                        kHalfWeights);

// A tile of kRows x kProductColumns: of 64 rows a warp has 16 and all columns, of 16 rows all and a
// quarter of the columns.
template <bool kBrain, int kRows>
LMN_KERNEL(kHalfThreads, 4)
void half_product(ProductParams p) {
  simt::wait_for_previous();
  constexpr int kWarpColumns = kRows == 16 ? kProductColumns / kHalfWarps : kProductColumns;
  constexpr int kPairs = kWarpColumns / 16;  // of 8 columns, which one load brings
  auto* x_tiles = reinterpret_cast<uint16_t*>(simt::shared_memory());  // [stage][kRows][kHalfRow]
  // [stage][kProductColumns][kHalfRow], or [stage][kHalfDepth][kHalfColumns]
  uint16_t* w_tiles = x_tiles + kHalfStages * kRows * kHalfRow;
  const bool w_by_depth = p.w_column == 1;

  const BlockTile tile = block_tile<kRows>(p);
  const uint32_t row = tile.row, column = tile.column;
  const auto* x = static_cast<const uint16_t*>(p.x) + tile.x_at;
  const auto* w = static_cast<const uint16_t*>(p.w) + tile.w_at;

  const int lane = simt::lane(), warp = simt::warp();
  const auto fetch = [&](uint32_t depth, uint32_t end, int stage) {
    for (int i = simt::thread_index(); i < kRows * kHalfDepth / kUnit; i += kHalfThreads) {
      const int r = i / (kHalfDepth / kUnit), k = i % (kHalfDepth / kUnit) * kUnit;
      const uint32_t at_row = row + static_cast<uint32_t>(r);
      const uint32_t at = depth + static_cast<uint32_t>(k);
      const bool inside = at_row < p.rows && at < end;
      simt::copy_async(x_tiles + (stage * kRows + r) * kHalfRow + k,
                       inside ? x + at_row * p.x_row + at : x, inside);
    }
    for (int i = simt::thread_index(); i < kProductColumns * kHalfDepth / kUnit;
         i += kHalfThreads) {
      // Units along the dimension in which the weights are dense.
      constexpr int kInRow = kProductColumns / kUnit;
      const int line = w_by_depth ? i / kInRow : i / (kHalfDepth / kUnit);
      const int unit = (w_by_depth ? i % kInRow : i % (kHalfDepth / kUnit)) * kUnit;
      const uint32_t c = column + static_cast<uint32_t>(w_by_depth ? unit : line);
      const uint32_t k = depth + static_cast<uint32_t>(w_by_depth ? line : unit);
      const bool inside = c < p.columns && k < end;
      simt::copy_async(
          w_tiles + stage * kHalfWeights + line * (w_by_depth ? kHalfColumns : kHalfRow) + unit,
          inside ? w + k * p.w_inner + c * p.w_column : w, inside);
    }
  };

  const int own_row = kRows == 16 ? 0 : warp * 16;
  const int own_column = kRows == 16 ? warp * kWarpColumns : 0;
  const int matrix = lane / 8, line = lane % 8;  // whose address this lane gives
  float total[kPairs * 2][4] = {};
  for (uint32_t chunk = tile.first_chunk; chunk < tile.end_chunk; ++chunk) {
    const uint32_t begin = chunk * kChunk;
    const uint32_t end = p.inner - begin < kChunk ? p.inner : begin + kChunk;
    const int steps = static_cast<int>((end - begin + kHalfDepth - 1) / kHalfDepth);
    float sum[kPairs * 2][4] = {};
    for (int s = 0; s < kHalfStages - 1; ++s) {
      if (s < steps) fetch(begin + static_cast<uint32_t>(s * kHalfDepth), end, s);
      simt::copy_commit();
    }
    for (int s = 0; s < steps; ++s) {
      simt::copy_wait<kHalfStages - 2>();
      simt::sync_block();  // the tile is there, and nobody reads the one that is fetched next
      const int ahead = s + kHalfStages - 1;
      if (ahead < steps) {
        fetch(begin + static_cast<uint32_t>(ahead * kHalfDepth), end, ahead % kHalfStages);
      }
      simt::copy_commit();
      const uint16_t* x_tile = x_tiles + s % kHalfStages * kRows * kHalfRow;
      const uint16_t* w_tile = w_tiles + s % kHalfStages * kHalfWeights;
      for (int k = 0; k < kHalfDepth; k += 16) {
        uint32_t a[4];
        simt::load_matrix_x4(
            a, x_tile + (own_row + matrix % 2 * 8 + line) * kHalfRow + k + matrix / 2 * 8);
        for (int pair = 0; pair < kPairs; ++pair) {
          const int n = own_column + pair * 16 + matrix / 2 * 8;
          uint32_t b[4];
          if (w_by_depth) {
            simt::load_matrix_x4_transposed(
                b, w_tile + (k + matrix % 2 * 8 + line) * kHalfColumns + n);
          } else {
            simt::load_matrix_x4(b, w_tile + (n + line) * kHalfRow + k + matrix % 2 * 8);
          }
          for (int half = 0; half < 2; ++half) {
            const uint32_t own[2] = {b[2 * half], b[2 * half + 1]};
            if constexpr (kBrain) {
              simt::mma_bf16(sum[2 * pair + half], a, own);
            } else {
              simt::mma_f16(sum[2 * pair + half], a, own);
            }
          }
        }
      }
    }
    simt::copy_wait<0>();
    simt::sync_block();  // before the next chunk's copies
    for (int n = 0; n < kPairs * 2; ++n) {
      for (int i = 0; i < 4; ++i) total[n][i] += sum[n][i];
    }
  }
  for (int n = 0; n < kPairs * 2; ++n) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t at_row = row + static_cast<uint32_t>(own_row + lane / 4 + i / 2 * 8);
      const uint32_t at_column =
          column + static_cast<uint32_t>(own_column + n * 8 + lane % 4 * 2 + i % 2);
      if (at_row >= p.rows || at_column >= p.columns) continue;
      put_output(p, tile.first_chunk, tile.batch * p.rows + at_row, at_column, total[n][i]);
    }
  }
}

}  // namespace lmn::cuda::tensor
