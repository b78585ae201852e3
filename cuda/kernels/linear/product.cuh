// SPDX-License-Identifier: Apache-2.0
//
// Quantised activations in shared memory, and their product with a step of weights: the arithmetic
// of every quantised Linear, and the order that makes results the same bits in all kernels
// (DESIGN section 7):
//
//   of a block of 32 (q6_k: of each half)  an exact integer: the dot product. 16-bit activations
//   are
//                 two planes, x = 256 hi + lo with hi signed and lo unsigned, and so are two matrix
//                 instructions: |256 hi . w + lo . w| < 2^27 (q8_0), q6_k's halves, four times the
//                 product, < 2^26, so no sum overflows
//   of a step of 4 blocks   sum = fma(weight scale * activation scale, dot, sum) block by block;
//                 then sum = fma(minimum, activation sum, sum) block by block
//   of a split of 2 steps   the sum, from 0, divided by unpacked_factor() (a power of two)
//   of a row      total += split, in ascending order
#pragma once

#include "cuda/kernels/linear/weights.cuh"

namespace lmn::cuda {

// Rows in memory (ops/quantized_rows.h).
struct ActivationRows {
  const std::byte* base;
  int64_t row_bytes;
  int64_t columns;
  bool aligned;  // to 16 bytes, the scales of every step, too
};

// One step of kRows rows in shared memory: integers as in memory, rows kStride apart, so that the
// 8-byte (or 4-byte) loads of a fragment meet every bank once; then scales [row][4 blocks], then
// sums.
template <bool kWide, int kRows>
struct ActivationStep {
  static constexpr int kQuantBytes = kStep * (kWide ? 2 : 1);
  static constexpr int kStride = kQuantBytes + (kWide ? 32 : 16);
  static constexpr int kBytes = kRows * (kStride + 2 * kStepBlocks * 4);

  // By `threads` threads of which this is `thread`; complete after copy_commit, copy_wait and a
  // barrier. Rows from `valid` on, and columns past the last, are zeros.
  LMN_DEVICE static void copy(std::byte* to, const ActivationRows& x, int64_t row0, int valid,
                              int64_t step, int thread, int threads) {
    constexpr int kQuantChunks = kQuantBytes / 16;
    constexpr int kChunks = kQuantChunks + 2;
    const int64_t quants_end = x.columns * (kWide ? 2 : 1);
    const int64_t scales_size = x.columns / kBlock * 4;
    for (int i = thread; i < kRows * kChunks; i += threads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const std::byte* from = x.base + (row0 + (row < valid ? row : 0)) * x.row_bytes;
      std::byte* at;
      int64_t begin, end;  // of what this row has
      if (chunk < kQuantChunks) {
        at = to + row * kStride + chunk * 16;
        begin = step * kQuantBytes + chunk * 16;
        end = quants_end;
      } else {
        const int which = chunk - kQuantChunks;
        at = to + kRows * kStride + (which * kRows + row) * 16;
        begin = quants_end + which * scales_size + step * 16;
        end = quants_end + (which + 1) * scales_size;
      }
      if (x.aligned) {
        simt::copy_async(at, from + begin, row < valid);
      } else {
        uint32_t words[4];
        LMN_UNROLL
        for (int w = 0; w < 4; ++w) {
          words[w] = 0;
          if (row < valid && begin + w * 4 < end)
            words[w] = *reinterpret_cast<const uint32_t*>(from + begin + w * 4);
        }
        *reinterpret_cast<simt::U32x4*>(at) = {words[0], words[1], words[2], words[3]};
      }
    }
  }

  // The fragment of block b of rows row0 to row0 + 7, and the plane above it. kRows == 1: of one
  // row in all eight places.
  LMN_DEVICE static void fragments(const std::byte* at, int row0, int b, uint32_t (&low)[2],
                                   uint32_t (&high)[2]) {
    const int row = kRows == 1 ? 0 : row0 + simt::lane() / 4;
    const std::byte* mine =
        at + row * kStride + (b * kBlock + simt::lane() % 4 * 4) * (kWide ? 2 : 1);
    LMN_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (kWide) {
        const auto v = *reinterpret_cast<const simt::U32x2*>(mine + h * 32);
        low[h] = simt::byte_permute(v.x, v.y, 0x6420);
        high[h] = simt::byte_permute(v.x, v.y, 0x7531);
      } else {
        low[h] = *reinterpret_cast<const uint32_t*>(mine + h * 16);
      }
    }
  }

  LMN_DEVICE static float scale(const std::byte* at, int row, int b) {
    return reinterpret_cast<const float*>(at + kRows * kStride)[row * kStepBlocks + b];
  }
  LMN_DEVICE static float sum(const std::byte* at, int row, int b) {
    return scale(at, kRows + row, b);
  }
};

// Tiles of 8 rows, from row0 on, of a step of kRows. sums[n][m][i] is d[i] of the fragment of
// channels 16m to 16m + 15 and rows 8n to 8n + 7 behind row0; of one row alone, d[0] and d[2], the
// same in four neighbouring lanes.
template <DType kType, bool kWide, int kRows, int kTiles>
LMN_DEVICE void multiply_step(const StepWeights<kType>& w, const std::byte* x, int row0,
                              float (&sums)[kTiles][2][4]) {
  using X = ActivationStep<kWide, kRows>;
  using W = StepWeights<kType>;
  constexpr int kEvery = kRows == 1 ? 2 : 1;
  const int column = kRows == 1 ? 0 : row0 + simt::lane() % 4 * 2;  // of d[0]
  LMN_UNROLL
  for (int b = 0; b < kStepBlocks; ++b) {
    uint32_t a[2][4];
    w.fragments(b, a);
    float scales[4][W::kScales];
    LMN_UNROLL
    for (int c = 0; c < 4; ++c) {
      LMN_UNROLL
      for (int h = 0; h < W::kScales; ++h) scales[c][h] = w.scale(c, b, h);
    }
    LMN_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      uint32_t low[2], high[2];
      X::fragments(x, row0 + n * 8, b, low, high);
      float x_scales[2];
      LMN_UNROLL
      for (int i = 0; i < 2; i += kEvery) x_scales[i] = X::scale(x, column + n * 8 + i, b);
      LMN_UNROLL
      for (int m = 0; m < 2; ++m) {
        LMN_UNROLL
        for (int h = 0; h < W::kScales; ++h) {
          int dot[4] = {}, upper[4] = {};
          if constexpr (W::kScales == 2) {
            const uint32_t half[2] = {a[m][2 * h], a[m][2 * h + 1]};
            if constexpr (kWide) {
              simt::mma_s8_u8_k16(dot, half, low[h]);
              simt::mma_s8_k16(upper, half, high[h]);
            } else {
              simt::mma_s8_k16(dot, half, low[h]);
            }
          } else if constexpr (kWide) {
            simt::mma_s8_u8_k32(dot, a[m], low);
            simt::mma_s8_k32(upper, a[m], high);
          } else {
            simt::mma_s8_k32(dot, a[m], low);
          }
          LMN_UNROLL
          for (int i = 0; i < 4; i += kEvery) {
            if constexpr (kWide) dot[i] += upper[i] * 256;
            sums[n][m][i] = simt::fma(scales[2 * m + i / 2][h] * x_scales[i % 2],
                                      static_cast<float>(dot[i]), sums[n][m][i]);
          }
        }
      }
    }
  }
  if constexpr (W::kHasMin) {
    LMN_UNROLL
    for (int b = 0; b < kStepBlocks; ++b) {
      float minimums[4];
      LMN_UNROLL
      for (int c = 0; c < 4; ++c) minimums[c] = w.minimum(c, b);
      LMN_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        LMN_UNROLL
        for (int i = 0; i < 2; i += kEvery) {
          const float x_sum = X::sum(x, column + n * 8 + i, b);
          LMN_UNROLL
          for (int c = 0; c < 4; ++c) {
            float& sum = sums[n][c / 2][c % 2 * 2 + i];
            sum = simt::fma(minimums[c], x_sum, sum);
          }
        }
      }
    }
  }
}

}  // namespace lmn::cuda
