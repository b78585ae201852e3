// SPDX-License-Identifier: Apache-2.0
//
// Float activations in shared memory, and their product with 16 columns of float16 or bfloat16
// weights. A float is the sum of two bfloat16 (what is left is under 2^-17 of it), a float16 is so
// exactly. The order, the same in all kernels: of each 16 columns in turn, w times the upper part
// of x, w times the lower, the lower part of a float16 w times the upper of x; from 0 in each split
// of 256 columns, and splits are added up in ascending order.
#pragma once

#include "cuda/kernels/linear/product.cuh"

namespace lmn::cuda {

// kColumns columns of kRows rows of float32. Rows are so far apart that the 8-byte loads of a
// fragment meet every bank once.
template <int kRows, int kColumns = kSplit>
struct FloatRows {
  static constexpr int kStride = (kColumns + 8) * 4;
  static constexpr int kBytes = kRows * kStride;

  LMN_DEVICE static const float* at(const std::byte* rows, int row) {
    return reinterpret_cast<const float*>(rows + row * kStride);
  }

  // As ActivationStep::copy.
  LMN_DEVICE static void copy(std::byte* to, const ActivationRows& x, int64_t row0, int valid,
                              int64_t column0, int thread, int threads) {
    constexpr int kChunks = kColumns / 4;
    LMN_ROLL
    for (int i = thread; i < kRows * kChunks; i += threads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int64_t column = column0 + chunk * 4;
      const auto* from =
          reinterpret_cast<const float*>(x.base + (row0 + (row < valid ? row : 0)) * x.row_bytes);
      std::byte* at = to + row * kStride + chunk * 16;
      if (x.aligned) {
        const bool inside = row < valid && column < x.columns;
        simt::copy_async(at, from + (inside ? column : 0), inside);
      } else {
        LMN_ROLL
        for (int w = 0; w < 4; ++w) {
          const bool inside = row < valid && column + w < x.columns;
          reinterpret_cast<float*>(at)[w] = inside ? from[column + w] : 0;
        }
      }
    }
  }
};

// Two floats as two pairs of bfloat16.
LMN_DEVICE void split_pair(float first, float second, uint32_t* upper, uint32_t* lower) {
  *upper = simt::bfloats(first, second);
  *lower = simt::bfloats(first - simt::float_of_bits(*upper << 16),
                         second - simt::float_of_bits(*upper & 0xFFFF0000u));
}

// w[m]: a lane's weights of channels 16m to 16m + 15. Tiles of 8 rows from row0 on, columns 16
// chunk and the following of the copy; sums as in multiply_step.
template <DType kType, int kRows, int kTiles, int kColumns = kSplit>
LMN_DEVICE void multiply_chunk(const simt::U32x4 (&w)[2], const std::byte* x, int row0, int chunk,
                               float (&sums)[kTiles][2][4]) {
  constexpr bool kBoth = kType == DType::kF16;
  uint32_t upper[2][4], lower[2][4];
  LMN_UNROLL
  for (int m = 0; m < 2; ++m) {
    LMN_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t v = word_of(w[m], i);
      if constexpr (kBoth) {
        split_pair(low_half(v), high_half(v), &upper[m][i], &lower[m][i]);
      } else {
        upper[m][i] = v;
      }
    }
  }
  const int t = simt::lane() % 4;
  LMN_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    const int row = kRows == 1 ? 0 : row0 + n * 8 + simt::lane() / 4;
    const float* from = FloatRows<kRows, kColumns>::at(x, row) + chunk * 16 + 2 * t;
    uint32_t x_upper[2], x_lower[2];
    LMN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto v = *reinterpret_cast<const simt::F32x2*>(from + 8 * h);
      split_pair(v.x, v.y, &x_upper[h], &x_lower[h]);
    }
    LMN_UNROLL
    for (int m = 0; m < 2; ++m) {
      simt::mma_bf16(sums[n][m], upper[m], x_upper);
      simt::mma_bf16(sums[n][m], upper[m], x_lower);
      if constexpr (kBoth) simt::mma_bf16(sums[n][m], lower[m], x_upper);
    }
  }
}

}  // namespace lmn::cuda
