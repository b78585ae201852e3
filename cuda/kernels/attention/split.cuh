// SPDX-License-Identifier: Apache-2.0
//
// What the attention kernels have in common, and what makes their results the same bits (DESIGN
// section 7). A context is cut into splits of 128 positions, from the first on, whatever the page
// size. For one row (a token's query head) and one split:
//
//   S = Q K^T         Q times scale log2(e), rounded to float16; matrix instructions of 16 along
//                     head_dim, ascending, from 0
//   m = max S         over the positions that the row attends to; others are -infinity
//   P = exp2(S - m)   rounded to float16
//   l = P 1, O = P V  matrix instructions of 16 positions, ascending, from 0
//
// and splits are merged in ascending order: merge_factors() and merged(). A kernel may share these
// elements out among warps as it likes: each is one fixed chain of instructions. Head_dim is padded
// with zeros to 64, 96, 128 or 256 (kWidth).
//
// A position that a row does not attend to has P = 0, and its V counts as nothing as long as it is
// finite: behind the last position of a sequence, where pages hold anything, it is not read. NaNs
// of one sequence reach no other. Quarters of a split, 32 positions, that no row of a product
// attends to are left out: their P are zeros, and adding products with zeros changes no sum.
#pragma once

#include "core/dtype.h"
#include "cuda/core/simt.cuh"
#include "ops/op_args.h"

namespace lmn::cuda {

inline constexpr int kSplit = 128;   // positions
inline constexpr int kQuarter = 32;  // positions
inline constexpr int kAttentionThreads = 128;
inline constexpr int kAttentionWarps = kAttentionThreads / simt::kWarp;
inline constexpr uint32_t kTwoOnes = 0x3C003C00;  // of float16
inline constexpr uint32_t kMinusInfinity = 0xFF800000;

// By value to every kernel: AttentionArgs with what they point at on the host.
struct Attention {
  int64_t first_row;  // of this launch
  int64_t rows;       // of the operator
  const float* q;
  int64_t q_stride;
  ops::KvLayer kv;
  const int32_t* positions;
  const int32_t* sequence_index;
  const int32_t* block_tables;
  int64_t table_stride;
  float* y;
  // Null, or rows of quantize(y) in kQA8 or kQA16 (wide), which attention_merge writes.
  std::byte* quantized;
  bool quantized_wide;
  int32_t heads, group;  // group: query heads of a KV head
  float q_scale;
  // Partial results of this launch's rows where a row has several splits, or is quantised:
  // [rows, splits, heads] of m and l, and [rows, splits, heads, head_dim] of O.
  simt::F32x2* sums;
  float* outputs;
  int32_t splits;
};

// Where 16 bytes of a row of `kChunks` such lie in a tile in shared memory. Eight rows' chunks of
// the same number are in different banks.
template <int kChunks>
LMN_DEVICE std::byte* chunk_at(std::byte* tile, int row, int chunk) {
  const int swizzle = kChunks % 8 == 0 ? row & 7 : row >> 1 & 3;
  return tile + (row * kChunks + (chunk ^ swizzle)) * 16;
}

// Tiles of float16: keys [kWidth, kSplit], values [kSplit, kWidth], Q [rows, kWidth], P [rows,
// kSplit].
inline constexpr int kSplitChunks = kSplit / 8;
template <int kWidth>
inline constexpr int kTileBytes = kWidth* kSplit * 2;

// 16 rows of a tile from `row`, columns 16 step to 16 step + 15: the first operand of a product.
template <int kChunks>
LMN_DEVICE void load_rows(uint32_t (&a)[4], std::byte* tile, int row, int step) {
  const int matrix = simt::lane() / 8;
  simt::load_matrix_x4(
      a, chunk_at<kChunks>(tile, row + simt::lane() % 8 + matrix % 2 * 8, 2 * step + matrix / 2));
}

// 32 rows of a tile from `row`, 8 columns: the second operand of two steps.
struct TwoSteps {
  uint32_t first[2], second[2];
};
template <int kChunks>
LMN_DEVICE TwoSteps load_columns(std::byte* tile, int row, int chunk) {
  uint32_t r[4];
  simt::load_matrix_x4_transposed(r, chunk_at<kChunks>(tile, row + simt::lane(), chunk));
  return {{r[0], r[1]}, {r[2], r[3]}};
}

// Quarters of a split that have positions up to `limit`, which counts from its first.
LMN_DEVICE int quarters_of(int limit) { return limit < kSplit ? limit / kQuarter + 1 : 4; }

// s = 16 rows of Q times the tokens of `count` quarters, the first of which is `quarter`.
template <int kWidth, int kTiles>
LMN_DEVICE void scores(float (&s)[kTiles][4], std::byte* q, int row, std::byte* keys, int quarter,
                       int count) {
  LMN_UNROLL
  for (int n = 0; n < kTiles; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
  for (int step = 0; step < kWidth / 16; step += 2) {
    uint32_t first[4], second[4];
    load_rows<kWidth / 8>(first, q, row, step);
    load_rows<kWidth / 8>(second, q, row, step + 1);
    LMN_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      if (n / 4 >= count) break;
      const TwoSteps k = load_columns<kSplitChunks>(keys, step * 16, quarter * 4 + n);
      simt::mma_f16(s[n], first, k.first);
      simt::mma_f16(s[n], second, k.second);
    }
  }
}

// Rows g and g + 8 of the warp's 16 attend to positions up to limit[0] and limit[1] of the split,
// whose column 2t is the first of s.
template <int kTiles>
LMN_DEVICE void mask(float (&s)[kTiles][4], int first_column, const int (&limit)[2]) {
  const float none = simt::float_of_bits(kMinusInfinity);
  LMN_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    LMN_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (first_column + 8 * n + i % 2 > limit[i / 2]) s[n][i] = none;
    }
  }
}

// Of rows g and g + 8, over the warp's columns.
template <int kTiles>
LMN_DEVICE void row_max(float (&m)[2], const float (&s)[kTiles][4]) {
  LMN_UNROLL
  for (int half = 0; half < 2; ++half) {
    float largest = s[0][2 * half];
    LMN_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      LMN_UNROLL
      for (int i = 0; i < 2; ++i)
        largest = s[n][2 * half + i] > largest ? s[n][2 * half + i] : largest;
    }
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      const float other = simt::shuffle_xor(largest, lanes);
      largest = other > largest ? other : largest;
    }
    m[half] = largest;
  }
}

// P of row g + 8 half, two columns, of which the first is even.
LMN_DEVICE uint32_t weights(const float (&s)[4], int half, float m) {
  return simt::halves(simt::exp2_fast(s[2 * half] - m), simt::exp2_fast(s[2 * half + 1] - m));
}

// l of rows g and g + 8, from P as the first operand of eight steps, of which the first quarters
// are there.
LMN_DEVICE simt::F32x2 weight_sums(const uint32_t (&p)[8][4], int quarters) {
  const uint32_t ones[2] = {kTwoOnes, kTwoOnes};
  float l[4] = {0, 0, 0, 0};
  LMN_UNROLL
  for (int step = 0; step < 8 && step < 2 * quarters; ++step) simt::mma_f16(l, p[step], ones);
  return {l[0], l[2]};
}

// o = P times the 8 kTiles dimensions of V from `chunk` on.
template <int kWidth, int kTiles>
LMN_DEVICE void weighted_values(float (&o)[kTiles][4], const uint32_t (&p)[8][4], std::byte* values,
                                int chunk, int quarters) {
  LMN_UNROLL
  for (int n = 0; n < kTiles; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
  LMN_UNROLL
  for (int step = 0; step < 8 && step < 2 * quarters; step += 2) {
    LMN_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      const TwoSteps v = load_columns<kWidth / 8>(values, step * 16, chunk + n);
      simt::mma_f16(o[n], p[step], v.first);
      simt::mma_f16(o[n], p[step + 1], v.second);
    }
  }
}

// How the splits up to one, whose largest score is `before`, and the next, with m, are weighed.
// Nothing is merged into kNothing, and gives the same bits: what comes first is kept as it is.
inline constexpr float kNothing = -0.0f;
struct MergeFactors {
  float keep, take;
};
LMN_DEVICE float larger(float a, float b) { return b > a ? b : a; }
LMN_DEVICE MergeFactors merge_factors(bool nothing_before, float before, float m, float after) {
  return {nothing_before ? 1.0f : simt::exp2_fast(before - after), simt::exp2_fast(m - after)};
}
LMN_DEVICE float merged(float before, float next, const MergeFactors& f) {
  return simt::fma(before, f.keep, next * f.take);
}

// Row `row` of a tile of Q, by the lanes of a warp; null: zeros.
template <int kWidth>
LMN_DEVICE void bring_query(const Attention& a, std::byte* tile, int row, const float* q) {
  for (int d = simt::lane() * 2; d < kWidth; d += 2 * simt::kWarp) {
    const bool there = q != nullptr && d < a.kv.head_dim;
    const float low = there ? q[d] * a.q_scale : 0, high = there ? q[d + 1] * a.q_scale : 0;
    *reinterpret_cast<uint32_t*>(chunk_at<kWidth / 8>(tile, row, d / 8) + d % 8 * 2) =
        simt::halves(low, high);
  }
}

}  // namespace lmn::cuda
