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
//   of a split of 8 blocks  t = fma(weight scale * activation scale, dot, t) block by block from 0,
//                 m = fma(minimum, activation sum, m) block by block from 0; what both become is
//                 StepWeights::finish. K-quants multiply scales and dots as integers
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
// 8-byte (or 4-byte) loads of a fragment meet every bank once. And scales [row][4 blocks], then
// sums.
template <bool kWide, int kRows>
struct ActivationStep {
  static constexpr int kQuantBytes = kStep * (kWide ? 2 : 1);
  static constexpr int kStride = kQuantBytes + (kWide ? 32 : 16);
  static constexpr int kIntegerBytes = kRows * kStride;
  static constexpr int kScaleBytes = kRows * 2 * kStepBlocks * 4;
  static constexpr int kBytes = kIntegerBytes + kScaleBytes;

  // By `threads` threads of which this is `thread`; complete after copy_commit, copy_wait and a
  // barrier. Rows from `valid` on, and columns past the last, are zeros.
  LMN_DEVICE static void copy(std::byte* to, std::byte* scales, const ActivationRows& x,
                              int64_t row0, int valid, int64_t step, int thread, int threads) {
    constexpr int kQuantChunks = kQuantBytes / 16;
    constexpr int kChunks = kQuantChunks + 2;
    const int64_t quants_end = x.columns * (kWide ? 2 : 1);
    const int64_t scales_size = x.columns / kBlock * 4;
    LMN_ROLL
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
        at = scales + (which * kRows + row) * 16;
        begin = quants_end + which * scales_size + step * 16;
        end = quants_end + (which + 1) * scales_size;
      }
      if (x.aligned) {
        simt::copy_async(at, from + begin, row < valid);
      } else {
        LMN_ROLL
        for (int w = 0; w < 16; w += 4) {
          const bool inside = row < valid && begin + w < end;
          *reinterpret_cast<uint32_t*>(at + w) =
              inside ? *reinterpret_cast<const uint32_t*>(from + begin + w) : 0;
        }
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

  LMN_DEVICE static float scale(const std::byte* scales, int row, int b) {
    return reinterpret_cast<const float*>(scales)[row * kStepBlocks + b];
  }
  LMN_DEVICE static const float* sums(const std::byte* scales) {
    return reinterpret_cast<const float*>(scales + kRows * kStepBlocks * 4);
  }
};

// Dot products of block b and 16 channels (a: their fragment) with eight rows, q6_k: of half h.
template <DType kType, bool kWide>
LMN_DEVICE void dots(const uint32_t (&a)[4], const uint32_t (&low)[2], const uint32_t (&high)[2],
                     int h, int (&dot)[4]) {
  LMN_UNROLL
  for (int i = 0; i < 4; ++i) dot[i] = 0;
  const uint32_t half[2] = {a[2 * h], a[2 * h + 1]};
  constexpr bool kHalves = weight_format(kType).bits == 6;
  if constexpr (kWide) {
    if constexpr (kHalves) {
      simt::mma_s8_k16(dot, half, high[h]);
    } else {
      simt::mma_s8_k32(dot, a, high);
    }
    LMN_UNROLL
    for (int i = 0; i < 4; ++i) dot[i] *= 256;
    if constexpr (kHalves) {
      simt::mma_s8_u8_k16(dot, half, low[h]);
    } else {
      simt::mma_s8_u8_k32(dot, a, low);
    }
  } else if constexpr (kHalves) {
    simt::mma_s8_k16(dot, half, low[h]);
  } else {
    simt::mma_s8_k32(dot, a, low);
  }
}

// A step of one row: all lanes of a fragment's row have the same products, and each keeps those of
// its own channel.
template <DType kType, bool kWide>
LMN_DEVICE void multiply_row(const StepWeights<kType, 1>& w, const std::byte* x,
                             const std::byte* scales, float* t, float* m) {
  using X = ActivationStep<kWide, 1>;
  using W = StepWeights<kType, 1>;
  const int place = simt::lane() % 4;
  LMN_UNROLL
  for (int b = 0; b < kStepBlocks; ++b) {
    uint32_t a[2][4], low[2], high[2];
    w.fragments(b, a);
    X::fragments(x, 0, b, low, high);
    LMN_UNROLL
    for (int h = 0; h < W::kScales; ++h) {
      int first[4], second[4];
      dots<kType, kWide>(a[0], low, high, h, first);
      dots<kType, kWide>(a[1], low, high, h, second);
      const int even = place / 2 == 0 ? first[0] : second[0];
      const int odd = place / 2 == 0 ? first[2] : second[2];
      *t = w.weighted(0, b, h, place % 2 == 0 ? even : odd, X::scale(scales, 0, b), *t);
    }
    if constexpr (W::kHasMin) *m = simt::fma(w.minimum(0, b), X::sums(scales)[b], *m);
  }
}

// A step of tiles of 8 rows, from row0 on, of kRows. t[n][m][i] is d[i] of the fragment of channels
// 16m to 16m + 15 and rows 8n to 8n + 7 behind row0. kShared: w is still to be loaded, block by
// block from `step` and `step_scales`.
template <DType kType, bool kWide, int kRows, bool kShared, int kTiles>
LMN_DEVICE void multiply_tiles(StepWeights<kType, 4>& w, const std::byte* step,
                               const std::byte* step_scales, const std::byte* x,
                               const std::byte* scales, int row0, float (&t)[kTiles][2][4]) {
  using X = ActivationStep<kWide, kRows>;
  using W = StepWeights<kType, 4>;
  const int column = row0 + simt::lane() % 4 * 2;  // of d[0]
  LMN_UNROLL
  for (int b = 0; b < kStepBlocks; ++b) {
    if constexpr (kShared) w.load_block(step, step_scales, b);
    uint32_t a[2][4];
    w.fragments(b, a);
    LMN_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      uint32_t low[2], high[2];
      X::fragments(x, row0 + n * 8, b, low, high);
      const float x_scales[2] = {X::scale(scales, column + n * 8, b),
                                 X::scale(scales, column + n * 8 + 1, b)};
      LMN_UNROLL
      for (int m = 0; m < 2; ++m) {
        LMN_UNROLL
        for (int h = 0; h < W::kScales; ++h) {
          int dot[4];
          dots<kType, kWide>(a[m], low, high, h, dot);
          LMN_UNROLL
          for (int i = 0; i < 4; ++i) {
            t[n][m][i] = w.weighted(2 * m + i / 2, b, h, dot[i], x_scales[i % 2], t[n][m][i]);
          }
        }
      }
      // What is behind is not begun before its time: registers would not suffice.
      if (W::kScales == 2 || n == kTiles - 1) simt::sync_warp();
    }
  }
}

// The minimums of a step with eight rows from row0 on, `sums` [row][4 blocks].
template <DType kType>
LMN_DEVICE void multiply_minimums(const StepWeights<kType, 4>& w, const float* sums, int row0,
                                  float (&m)[2][4]) {
  const float* mine = sums + (row0 + simt::lane() % 4 * 2) * kStepBlocks;
  LMN_UNROLL
  for (int b = 0; b < kStepBlocks; ++b) {
    const float x[2] = {mine[b], mine[kStepBlocks + b]};
    LMN_UNROLL
    for (int c = 0; c < 4; ++c) {
      const float minimum = w.minimum(c, b);
      LMN_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& sum = m[c / 2][c % 2 * 2 + i];
        sum = simt::fma(minimum, x[i], sum);
      }
    }
  }
}

}  // namespace lmn::cuda
