// SPDX-License-Identifier: Apache-2.0
//
// What a warp does with a split of one panel, for up to eight rows: it begins by asking for weights
// (to registers) and activations (to its own part of shared memory), and ends with sums
// [row][channel] in shared memory, rows kSumStride apart. A split may end after another of the same
// warp has not begun. kRows == 1 is a variant for one row.
//
//   begin_weights(p, panel, split)    begin_rows(p, split, row0, shared)
//   end(p, panel, split, shared, sums)
#pragma once

#include "cuda/kernels/linear/float_product.cuh"
#include "cuda/kernels/linear/output.cuh"

namespace lmn::cuda {

// Rows of sums are so far apart that a warp that stores a fragment's meets every bank once.
inline constexpr int kSumStride = kPanel + 4;

// A lane's sums of a fragment pair, to where they are added up.
template <int kRows>
LMN_DEVICE void store_sums(const float (&d)[2][4], float* sums) {
  const int lane = simt::lane();
  LMN_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (kRows == 1 && (i % 2 != 0 || lane % 4 != 0)) continue;
    const int row = kRows == 1 ? 0 : lane % 4 * 2 + i % 2;
    sums[row * kSumStride + i / 2 * 8 + lane / 4] = d[i / 4][i % 4];
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
  // Warps on a multiprocessor: as many as leave the registers that a split needs.
  static constexpr int kWarps = kFormat.bits == 4 && !kFormat.has_min ? 16 : 12;
  using X = ActivationStep<kWide, kRows>;
  static constexpr int kSharedBytes = 2 * X::kBytes;

  static constexpr int kChannels = kRows == 1 ? 1 : 4;  // whose scales a lane has
  using W = StepWeights<kType, kChannels>;

  W weights[2];

  LMN_DEVICE void load_step(const LinearParams& p, const std::byte* panel, int split, int s) {
    const int64_t step = split * 2 + s;
    const int64_t rest = p.x.columns / kBlock - step * kStepBlocks;
    weights[s].load(panel + step_offset(kFormat, step),
                    rest < kStepBlocks ? static_cast<int>(rest) : kStepBlocks);
  }
  LMN_DEVICE static int steps(const LinearParams& p, int split) {
    return p.x.columns > int64_t{split} * kSplit + kStep ? 2 : 1;
  }

  LMN_DEVICE void begin_weights(const LinearParams& p, const std::byte* panel, int split) {
    load_step(p, panel, split, 0);
    if (steps(p, split) == 2) load_step(p, panel, split, 1);
  }
  LMN_DEVICE void begin_rows(const LinearParams& p, int split, int64_t row0, std::byte* shared) {
    const int valid = rows_from(p, row0, kRows);
    for (int s = 0; s < steps(p, split); ++s) {
      std::byte* to = shared + s * X::kBytes;
      X::copy(to, to + X::kIntegerBytes, p.x, row0, valid, split * 2 + s, simt::lane(),
              simt::kWarp);
    }
    simt::copy_commit();
  }
  LMN_DEVICE void end(const LinearParams& p, const std::byte* panel, int split,
                      const std::byte* shared, float* sums) {
    float t[1][2][4] = {}, m[2][4] = {};
    uint32_t super[kChannels];
    load_super(panel, split, super);
    simt::copy_wait<0>();
    simt::sync_warp();
    multiply(weights[0], shared, t, m);
    if (steps(p, split) == 2) {
      multiply(weights[1], shared + X::kBytes, t, m);
    }
    if constexpr (kRows == 1) {
      sums[W::channel(0)] = W::finish(super[0], t[0][0][0], m[0][0]);
    } else {
      LMN_UNROLL
      for (int i = 0; i < 8; ++i)
        t[0][i / 4][i % 4] = W::finish(super[i / 2], t[0][i / 4][i % 4], m[i / 4][i % 4]);
      store_sums<kRows>(t[0], sums);
    }
    simt::sync_warp();
  }

 private:
  // Needed last, so it is asked for last: registers are scarce until then.
  LMN_DEVICE static void load_super(const std::byte* panel, int split,
                                    uint32_t (&super)[kChannels]) {
    if constexpr (kFormat.is_super) {
      const std::byte* at = panel + step_offset(kFormat, int64_t{split} * 2) +
                            2 * kFormat.step_bytes() + simt::lane() / 4 * 16;
      if constexpr (kChannels == 1) {
        super[0] = simt::load_once(reinterpret_cast<const uint32_t*>(at) + simt::lane() % 4);
      } else {
        const auto v = simt::load_once(reinterpret_cast<const simt::U32x4*>(at));
        LMN_UNROLL
        for (int c = 0; c < 4; ++c) super[c] = word_of(v, c);
      }
    } else {
      LMN_UNROLL
      for (int c = 0; c < kChannels; ++c) super[c] = 0;
    }
  }
  LMN_DEVICE static void multiply(W& w, const std::byte* x, float (&t)[1][2][4], float (&m)[2][4]) {
    const std::byte* scales = x + X::kIntegerBytes;
    if constexpr (kRows == 1) {
      multiply_row<kType, kWide>(w, x, scales, &t[0][0][0], &m[0][0]);
    } else {
      multiply_tiles<kType, kWide, kRows, false>(w, nullptr, nullptr, x, scales, 0, t);
      if constexpr (W::kHasMin) multiply_minimums<kType>(w, X::sums(scales), 0, m);
    }
  }
};

// Weights of float16 or bfloat16: 16 columns at a time, 1 KB of a panel, 8 KB in flight.
template <DType kType, int kRowCount>
struct HalfSplit {
  static constexpr int kRows = kRowCount;
  static constexpr int kChunks = kSplit / 16;
  static constexpr int kAhead = 8;  // chunks
  static constexpr int kSharedBytes = FloatRows<kRows>::kBytes;
  static constexpr int kWarps = 16;

  simt::U32x4 weights[kAhead][2];

  // Of the split's `count`.
  LMN_DEVICE void load_chunk(const std::byte* chunks, int count, int i) {
    const std::byte* at = chunks + (i < count ? i : count - 1) * 1024 + simt::lane() * 16;
    LMN_UNROLL
    for (int m = 0; m < 2; ++m) {
      weights[i % kAhead][m] = simt::load_once(reinterpret_cast<const simt::U32x4*>(at + m * 512));
    }
  }

  LMN_DEVICE static int chunk_count(const LinearParams& p, int split) {
    const int64_t rest = simt::div_up(p.x.columns - int64_t{split} * kSplit, 16);
    return rest < kChunks ? static_cast<int>(rest) : kChunks;
  }

  LMN_DEVICE void begin_weights(const LinearParams& p, const std::byte* panel, int split) {
    LMN_UNROLL
    for (int i = 0; i < kAhead; ++i)
      load_chunk(panel + int64_t{split} * kChunks * 1024, chunk_count(p, split), i);
  }
  LMN_DEVICE void begin_rows(const LinearParams& p, int split, int64_t row0, std::byte* shared) {
    FloatRows<kRows>::copy(shared, p.x, row0, rows_from(p, row0, kRows), int64_t{split} * kSplit,
                           simt::lane(), simt::kWarp);
    simt::copy_commit();
  }
  LMN_DEVICE void end(const LinearParams& p, const std::byte* panel, int split,
                      const std::byte* shared, float* sums) {
    const int count = chunk_count(p, split);
    simt::copy_wait<0>();
    simt::sync_warp();
    float out[1][2][4] = {};
    LMN_UNROLL
    for (int i = 0; i < kChunks; ++i) {
      if (i < count) multiply_chunk<kType, kRows>(weights[i % kAhead], shared, 0, i, out);
      if (i + kAhead < kChunks)
        load_chunk(panel + int64_t{split} * kChunks * 1024, count, i + kAhead);
    }
    store_sums<kRows>(out[0], sums);
    simt::sync_warp();
  }
};

// float32: a lane has a channel.
template <int kRowCount>
struct FloatSplit {
  static constexpr int kRows = kRowCount;
  static constexpr int kAhead = 16;  // columns in flight, 128 bytes each
  static constexpr int kSharedBytes = FloatRows<kRows>::kBytes;
  static constexpr int kWarps = 16;

  float weights[kAhead];

  LMN_DEVICE static int columns(const LinearParams& p, int split) {
    const int64_t rest = p.x.columns - int64_t{split} * kSplit;
    return rest < kSplit ? static_cast<int>(rest) : kSplit;
  }
  // From column k of the split's `count`.
  LMN_DEVICE void load(const std::byte* panel, int split, int count, int k) {
    const float* from = reinterpret_cast<const float*>(panel) +
                        (int64_t{split} * kSplit + k) * kPanel + simt::lane();
    LMN_UNROLL
    for (int i = 0; i < kAhead; ++i)
      weights[i] = k + i < count ? simt::load_once(from + i * kPanel) : 0;
  }

  LMN_DEVICE void begin_weights(const LinearParams& p, const std::byte* panel, int split) {
    load(panel, split, columns(p, split), 0);
  }
  LMN_DEVICE void begin_rows(const LinearParams& p, int split, int64_t row0, std::byte* shared) {
    FloatRows<kRows>::copy(shared, p.x, row0, rows_from(p, row0, kRows), int64_t{split} * kSplit,
                           simt::lane(), simt::kWarp);
    simt::copy_commit();
  }
  LMN_DEVICE void end(const LinearParams& p, const std::byte* panel, int split,
                      const std::byte* shared, float* sums) {
    const int count = columns(p, split);
    simt::copy_wait<0>();
    simt::sync_warp();
    float out[kRows] = {};
    for (int k = 0; k < count; k += kAhead) {
      float w[kAhead];
      LMN_UNROLL
      for (int i = 0; i < kAhead; ++i) w[i] = weights[i];
      if (k + kAhead < count) load(panel, split, count, k + kAhead);
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
