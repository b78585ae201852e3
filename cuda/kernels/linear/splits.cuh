// SPDX-License-Identifier: Apache-2.0
//
// What a warp does with a split of one panel, for up to eight rows: it begins by asking for
// activations (to its own part of shared memory) and weights (to registers), and ends with sums
// [row][channel] in shared memory, rows kSumStride apart. A split may end after another of the same
// warp has not begun. kRows == 1 is a variant for one row.
//
//   begin(p, panel, split, row0, shared)    end(p, shared, sums)
#pragma once

#include "cuda/kernels/linear/float_product.cuh"
#include "cuda/kernels/linear/output.cuh"

namespace lmn::cuda {

// Rows of sums are so far apart that a warp that stores a fragment's meets every bank once.
inline constexpr int kSumStride = kPanel + 4;

// A lane's sums of a fragment pair, to where they are added up.
template <int kRows>
LMN_DEVICE void store_sums(const float (&d)[2][4], float factor, float* sums) {
  const int lane = simt::lane();
  LMN_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (kRows == 1 && (i % 2 != 0 || lane % 4 != 0)) continue;
    const int row = kRows == 1 ? 0 : lane % 4 * 2 + i % 2;
    sums[row * kSumStride + i / 2 * 8 + lane / 4] = d[i / 4][i % 4] * factor;
  }
}

// Of the rows from row0 on, those that there are, at most `most`.
LMN_DEVICE int rows_from(const LinearParams& p, int64_t row0, int most) {
  return p.rows - row0 < most ? static_cast<int>(p.rows - row0) : most;
}

// Quantised weights.
template <DType kType, bool kWide, int kRowCount>
struct QuantizedSplit {
  static constexpr int kRows = kRowCount;
  static constexpr WeightFormat kFormat = weight_format(kType);
  // Steps in flight: both where their registers leave room for sums and activations.
  static constexpr int kAhead =
      kFormat.bits == 4 || (kFormat.bits == 5 && !kFormat.has_min) ? 2 : 1;
  using X = ActivationStep<kWide, kRows>;
  static constexpr int kSharedBytes = 2 * X::kBytes;

  StepWeights<kType> weights[kAhead];
  const std::byte* panel;
  int64_t split;

  LMN_DEVICE void load_step(const LinearParams& p, int s) {
    const int64_t step = split * 2 + s;
    const int64_t rest = p.x.columns / kBlock - step * kStepBlocks;
    weights[s % kAhead].template load<true>(
        panel + step_offset(kFormat, step),
        rest < kStepBlocks ? static_cast<int>(rest) : kStepBlocks,
        panel + step_offset(kFormat, split * 2) + 2 * kFormat.step_bytes());
  }
  LMN_DEVICE int steps(const LinearParams& p) const {
    return p.x.columns > split * kSplit + kStep ? 2 : 1;
  }

  LMN_DEVICE void begin(const LinearParams& p, const std::byte* from, int64_t of, int64_t row0,
                        std::byte* shared) {
    panel = from;
    split = of;
    const int valid = rows_from(p, row0, kRows);
    for (int s = 0; s < steps(p); ++s) {
      X::copy(shared + s * X::kBytes, p.x, row0, valid, split * 2 + s, simt::lane(), simt::kWarp);
    }
    simt::copy_commit();
    load_step(p, 0);
    if (kAhead == 2 && steps(p) == 2) load_step(p, 1);
  }
  LMN_DEVICE void end(const LinearParams& p, const std::byte* shared, float* sums) {
    float out[1][2][4] = {};
    simt::copy_wait<0>();
    simt::sync_warp();
    multiply_step<kType, kWide, kRows>(weights[0], shared, 0, out);
    if (steps(p) == 2) {
      if (kAhead == 1) load_step(p, 1);
      multiply_step<kType, kWide, kRows>(weights[kAhead - 1], shared + X::kBytes, 0, out);
    }
    store_sums<kRows>(out[0], 1.0f / static_cast<float>(kFormat.unpacked_factor()), sums);
    simt::sync_warp();
  }
};

// Weights of float16 or bfloat16: 16 columns at a time, 1 KB of a panel, 8 KB in flight.
template <DType kType, int kRowCount>
struct HalfSplit {
  static constexpr int kRows = kRowCount;
  static constexpr int kChunks = kSplit / 16;
  static constexpr int kAhead = 8;  // chunks
  static constexpr int kSharedBytes = FloatRows<kRows>::kBytes;

  simt::U32x4 weights[kAhead][2];
  const std::byte* chunks;
  int count;

  LMN_DEVICE void load_chunk(int i) {
    const std::byte* at = chunks + (i < count ? i : count - 1) * 1024 + simt::lane() * 16;
    LMN_UNROLL
    for (int m = 0; m < 2; ++m) {
      weights[i % kAhead][m] = simt::load_once(reinterpret_cast<const simt::U32x4*>(at + m * 512));
    }
  }

  LMN_DEVICE void begin(const LinearParams& p, const std::byte* panel, int64_t split, int64_t row0,
                        std::byte* shared) {
    const int64_t rest = simt::div_up(p.x.columns - split * kSplit, 16);
    count = rest < kChunks ? static_cast<int>(rest) : kChunks;
    chunks = panel + split * kChunks * 1024;
    FloatRows<kRows>::copy(shared, p.x, row0, rows_from(p, row0, kRows), split * kSplit,
                           simt::lane(), simt::kWarp);
    simt::copy_commit();
    LMN_UNROLL
    for (int i = 0; i < kAhead; ++i) load_chunk(i);
  }
  LMN_DEVICE void end(const LinearParams&, const std::byte* shared, float* sums) {
    simt::copy_wait<0>();
    simt::sync_warp();
    float out[1][2][4] = {};
    LMN_UNROLL
    for (int i = 0; i < kChunks; ++i) {
      if (i < count) multiply_chunk<kType, kRows>(weights[i % kAhead], shared, 0, i, out);
      if (i + kAhead < kChunks) load_chunk(i + kAhead);
    }
    store_sums<kRows>(out[0], 1, sums);
    simt::sync_warp();
  }
};

// float32: a lane has a channel.
template <int kRowCount>
struct FloatSplit {
  static constexpr int kRows = kRowCount;
  static constexpr int kAhead = 16;  // columns in flight, 128 bytes each
  static constexpr int kSharedBytes = FloatRows<kRows>::kBytes;

  float weights[kAhead];
  const float* from;
  int count;

  LMN_DEVICE void load(int k) {
    LMN_UNROLL
    for (int i = 0; i < kAhead; ++i)
      weights[i] = k + i < count ? simt::load_once(from + (k + i) * kPanel) : 0;
  }

  LMN_DEVICE void begin(const LinearParams& p, const std::byte* panel, int64_t split, int64_t row0,
                        std::byte* shared) {
    const int64_t rest = p.x.columns - split * kSplit;
    count = rest < kSplit ? static_cast<int>(rest) : kSplit;
    from = reinterpret_cast<const float*>(panel) + split * kSplit * kPanel + simt::lane();
    FloatRows<kRows>::copy(shared, p.x, row0, rows_from(p, row0, kRows), split * kSplit,
                           simt::lane(), simt::kWarp);
    simt::copy_commit();
    load(0);
  }
  LMN_DEVICE void end(const LinearParams&, const std::byte* shared, float* sums) {
    simt::copy_wait<0>();
    simt::sync_warp();
    float out[kRows] = {};
    for (int k = 0; k < count; k += kAhead) {
      float w[kAhead];
      LMN_UNROLL
      for (int i = 0; i < kAhead; ++i) w[i] = weights[i];
      if (k + kAhead < count) load(k + kAhead);
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        LMN_UNROLL
        for (int i = 0; i < kAhead; ++i)
          out[r] = simt::fma(w[i], FloatRows<kRows>::at(shared, r)[k + i], out[r]);
      }
    }
    LMN_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r * kSumStride + simt::lane()] = out[r];
    simt::sync_warp();
  }
};

}  // namespace lmn::cuda
