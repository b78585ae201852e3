// SPDX-License-Identifier: Apache-2.0
//
// Linear of many rows: a block takes 4 panels (128 channels) and 64 rows, a warp a panel and 16
// rows. Weights and activations come through shared memory, a stage ahead: one stage is computed,
// for some 2000 cycles, while the next is copied. What is multiplied, and in which order, is
// product.cuh's and float_product.cuh's.
//
// The floor is arithmetic: of q4_k with 16-bit activations, 4 matrix instructions and some 60
// others for 32 x 8 products of 32 columns, since every block of 32 columns has scales of its own.
// Bytes in flight on a multiprocessor: a stage of its one block (q4_k: 31 KB). 16 warps leave a
// thread 128 registers: a warp of more rows would unpack weights less often, and not keep its sums
// in them.
//
// A kind of weights (Kind) says how a stage of kSplit / kStages columns is copied and multiplied.
#pragma once

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/splits.cuh"
#include "cuda/kernels/linear/weight_types.h"

namespace lmn::cuda {

inline constexpr int kTilePanels = 4;
inline constexpr int kTileRows = 64;
inline constexpr int kWarpTiles = 2;  // of 8 rows
inline constexpr int kTileThreads = kTilePanels * (kTileRows / (kWarpTiles * 8)) * simt::kWarp;

// Sums of a warp: [tile of 8 rows][channels 16m and on][d of the fragment].
using WarpSums = float[kWarpTiles][2][4];

// The block's part of the operands.
struct TilePlace {
  int panel0;
  int panel_count;  // that there are, at most kTilePanels
  int row0;
  int rows;  // that there are, at most kTileRows
};

template <DType kType, bool kWide>
struct QuantizedKind {
  static constexpr int kStages = 2;  // of a split
  static constexpr WeightFormat kFormat = weight_format(kType);
  using W = StepWeights<kType, 4>;
  using X = ActivationStep<kWide, kTileRows>;

  // A panel's integers, and its scales with those of the super-block.
  static constexpr int kBody = kStepBlocks * kFormat.quant_bytes() + kFormat.high_bytes();
  static constexpr int kScales = kFormat.scale_bytes() + kFormat.super_bytes();
  static constexpr int kBodyStage = kTilePanels * kBody + X::kIntegerBytes;
  static constexpr int kScaleStage = kTilePanels * kScales + X::kScaleBytes;
  // Minimums are multiplied at the end of a split, by then another stage is on its way.
  static constexpr int kScaleStages = W::kHasMin ? 4 : 2;
  static constexpr int kSharedBytes = 2 * kBodyStage + kScaleStages * kScaleStage;

  LMN_DEVICE static int stages(const LinearParams& p) {
    return static_cast<int>(simt::div_up(p.x.columns, kStep));
  }
  LMN_DEVICE static std::byte* body(std::byte* shared, int stage) {
    return shared + stage % 2 * kBodyStage;
  }
  LMN_DEVICE static std::byte* scales(std::byte* shared, int stage) {
    return shared + 2 * kBodyStage + stage % kScaleStages * kScaleStage;
  }

  LMN_DEVICE static void copy(const LinearParams& p, const TilePlace& place, std::byte* shared,
                              int stage) {
    std::byte* to_body = body(shared, stage);
    std::byte* to_scales = scales(shared, stage);
    const int64_t rest = p.x.columns / kBlock - int64_t{stage} * kStepBlocks;
    const int blocks = rest < kStepBlocks ? static_cast<int>(rest) : kStepBlocks;
    const int64_t step = step_offset(kFormat, stage);
    const int64_t super = step_offset(kFormat, stage / 2 * 2) + 2 * kFormat.step_bytes();
    constexpr int kChunks = (kBody + kScales) / 16;
    LMN_ROLL
    for (int i = simt::thread_index(); i < kTilePanels * kChunks; i += kTileThreads) {
      const int panel = i / kChunks, at = i % kChunks * 16;
      const bool valid = panel < place.panel_count;
      const std::byte* from = p.weights + (place.panel0 + (valid ? panel : 0)) * p.panel_bytes;
      if (at < kStepBlocks * kFormat.quant_bytes()) {
        const int block = at / kFormat.quant_bytes(), last = blocks - 1;
        from += step + at - (block > last ? block - last : 0) * kFormat.quant_bytes();
      } else if (at < kBody + kFormat.scale_bytes()) {
        from += step + at - (kStepBlocks - blocks) * kFormat.quant_bytes();
      } else {
        from += super + at - kBody - kFormat.scale_bytes();
      }
      std::byte* to =
          at < kBody ? to_body + panel * kBody + at : to_scales + panel * kScales + at - kBody;
      simt::copy_async(to, from, valid);
    }
    X::copy(to_body + kTilePanels * kBody, to_scales + kTilePanels * kScales, p.x, place.row0,
            place.rows, stage, simt::thread_index(), kTileThreads);
  }

  LMN_DEVICE static void multiply(const LinearParams&, std::byte* shared, int stage, int panel,
                                  int row0, WarpSums& t) {
    W w;
    multiply_tiles<kType, kWide, kTileRows, true>(
        w, body(shared, stage) + panel * kBody, scales(shared, stage) + panel * kScales,
        body(shared, stage) + kTilePanels * kBody, scales(shared, stage) + kTilePanels * kScales,
        row0, t);
  }

  // `stage` was the split's last.
  LMN_DEVICE static void finish(std::byte* shared, int stage, int panel, int row0,
                                const WarpSums& t, WarpSums& total) {
    W w[kStages];
    if constexpr (W::kHasMin) {
      LMN_UNROLL
      for (int s = 0; s < kStages; ++s) {
        const int of = s == 0 ? stage / 2 * 2 : stage;
        w[s].template load_scales<false>(scales(shared, of) + panel * kScales);
      }
    }
    uint32_t super[4] = {};
    if constexpr (kFormat.is_super) {
      const auto v = *reinterpret_cast<const simt::U32x4*>(
          scales(shared, stage) + panel * kScales + kFormat.scale_bytes() + simt::lane() / 4 * 16);
      LMN_UNROLL
      for (int c = 0; c < 4; ++c) super[c] = word_of(v, c);
    }
    LMN_UNROLL
    for (int n = 0; n < kWarpTiles; ++n) {
      float m[2][4] = {};
      if constexpr (W::kHasMin) {
        LMN_UNROLL
        for (int s = 0; s < kStages; ++s) {
          const int of = s == 0 ? stage / 2 * 2 : stage;
          if (s == 1 && stage % 2 == 0) break;
          multiply_minimums<kType>(w[s], X::sums(scales(shared, of) + kTilePanels * kScales),
                                   row0 + n * 8, m);
        }
      }
      LMN_UNROLL
      for (int i = 0; i < 8; ++i)
        total[n][i / 4][i % 4] += W::finish(super[i / 2], t[n][i / 4][i % 4], m[i / 4][i % 4]);
    }
  }
};

template <DType kType>
struct HalfKind {
  static constexpr int kStages = 4;
  static constexpr int kColumns = kSplit / kStages;
  static constexpr int kChunkBytes = 16 * kPanel * 2;
  static constexpr int kWeights = kColumns / 16 * kChunkBytes;  // of a panel
  using X = FloatRows<kTileRows, kColumns>;
  static constexpr int kStage = kTilePanels * kWeights + X::kBytes;
  static constexpr int kSharedBytes = 2 * kStage;

  LMN_DEVICE static int stages(const LinearParams& p) {
    return static_cast<int>(simt::div_up(p.x.columns, kColumns));
  }

  LMN_DEVICE static void copy(const LinearParams& p, const TilePlace& place, std::byte* shared,
                              int stage) {
    std::byte* to = shared + stage % 2 * kStage;
    LMN_ROLL
    for (int i = simt::thread_index(); i < kTilePanels * kWeights / 16; i += kTileThreads) {
      const int panel = i / (kWeights / 16);
      const int64_t at = int64_t{stage} * kWeights + i % (kWeights / 16) * 16;
      const bool valid = panel < place.panel_count && at < p.panel_bytes;
      const std::byte* from = p.weights + place.panel0 * p.panel_bytes;
      simt::copy_async(to + i * 16, from + (valid ? panel * p.panel_bytes + at : 0), valid);
    }
    X::copy(to + kTilePanels * kWeights, p.x, place.row0, place.rows, stage * kColumns,
            simt::thread_index(), kTileThreads);
  }

  LMN_DEVICE static void multiply(const LinearParams& p, std::byte* shared, int stage, int panel,
                                  int row0, WarpSums& t) {
    const std::byte* from = shared + stage % 2 * kStage;
    const auto* weights =
        reinterpret_cast<const simt::U32x4*>(from + panel * kWeights) + simt::lane();
    LMN_UNROLL
    for (int i = 0; i < kColumns / 16; ++i) {
      if (stage * kColumns + i * 16 >= p.x.columns) break;
      const simt::U32x4 w[2] = {weights[i * 64], weights[i * 64 + 32]};
      multiply_chunk<kType, kTileRows, kWarpTiles, kColumns>(w, from + kTilePanels * kWeights, row0,
                                                             i, t);
    }
  }

  LMN_DEVICE static void finish(std::byte*, int64_t, int, int, const WarpSums& t, WarpSums& total) {
    LMN_UNROLL
    for (int i = 0; i < kWarpTiles * 8; ++i)
      total[i / 8][i / 4 % 2][i % 4] += t[i / 8][i / 4 % 2][i % 4];
  }
};

// Outputs meet in shared memory, rows so far apart that a warp's stores of a fragment meet every
// bank once, and go out by rows.
inline constexpr int kOutputStride = kTilePanels * kPanel + 4;
inline constexpr int kOutputBytes = kTileRows * kOutputStride * 4;

template <class Kind>
constexpr uint32_t tiles_shared() {
  return static_cast<uint32_t>(Kind::kSharedBytes > kOutputBytes ? Kind::kSharedBytes
                                                                 : kOutputBytes);
}

template <class Kind>
LMN_KERNEL(kTileThreads, 1)
void linear_tiles(LinearParams p) {
  simt::wait_for_previous();
  TilePlace place;
  place.panel0 = simt::block_y() * kTilePanels;
  place.panel_count = p.panels - place.panel0 < kTilePanels
                          ? static_cast<int>(p.panels - place.panel0)
                          : kTilePanels;
  place.row0 = simt::block_x() * kTileRows;
  place.rows = rows_from(p, place.row0, kTileRows);
  std::byte* shared = simt::shared_memory();
  const int panel = simt::warp() % kTilePanels;
  const int row0 = simt::warp() / kTilePanels * (kWarpTiles * 8);

  const bool idle = panel >= place.panel_count || row0 >= place.rows;
  WarpSums total = {}, t = {};
  const int stages = Kind::stages(p);
  LMN_ROLL
  for (int stage = -1; stage < stages; ++stage) {
    if (stage >= 0) {
      simt::copy_wait<0>();
      simt::sync_block();
    }
    if (stage + 1 < stages) Kind::copy(p, place, shared, stage + 1);
    simt::copy_commit();
    if (stage < 0 || idle) continue;
    Kind::multiply(p, shared, stage, panel, row0, t);
    if (stage % Kind::kStages == Kind::kStages - 1 || stage + 1 == stages) {
      Kind::finish(shared, stage, panel, row0, t, total);
      LMN_UNROLL
      for (int i = 0; i < kWarpTiles * 8; ++i) t[i / 8][i / 4 % 2][i % 4] = 0;
    }
  }
  simt::copy_wait<0>();
  simt::sync_block();

  auto* out = reinterpret_cast<float*>(shared);
  LMN_UNROLL
  for (int i = 0; i < kWarpTiles * 8; ++i) {
    const int row = row0 + i / 8 * 8 + simt::lane() % 4 * 2 + i % 2;
    const int channel = panel * kPanel + i % 8 / 2 * 8 + simt::lane() / 4;
    out[row * kOutputStride + channel] = total[i / 8][i / 4 % 2][i % 4];
  }
  simt::sync_block();
  const int width = p.gated ? kTilePanels * kPanel / 2 : kTilePanels * kPanel;
  const int64_t first = int64_t{simt::block_y()} * width;
  LMN_ROLL
  for (int o = simt::thread_index(); o < kTileRows * width; o += kTileThreads) {
    const int row = o / width, at = o % width;
    const float* from =
        out + row * kOutputStride + (p.gated ? at / kPanel * 2 * kPanel + at % kPanel : at);
    put_output(p, int64_t{place.row0} + row, first + at, *from, p.gated ? from[kPanel] : 0);
  }
}

template <class Kind>
void launch_kind(const LinearParams& p, ops::LaunchQueue& queue) {
  const auto row_tiles = static_cast<uint32_t>(simt::div_up(p.rows, kTileRows));
  const auto panel_tiles = static_cast<uint32_t>(simt::div_up(p.panels, kTilePanels));
  static_assert(tiles_shared<Kind>() <= kMostSharedBytes);
  simt::launch<linear_tiles<Kind>>(
      queue, {row_tiles, panel_tiles, 1, kTileThreads, tiles_shared<Kind>()}, p);
}

template <bool kWide>
void launch_quantized_tiles(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  with_quantized_type(weight,
                      [&]<DType kType>() { launch_kind<QuantizedKind<kType, kWide>>(p, queue); });
}

}  // namespace lmn::cuda
