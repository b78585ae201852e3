// SPDX-License-Identifier: Apache-2.0
//
// What sampling reads of one row of logits: weights, their masses, and a walk over the tokens that
// can matter. The arithmetic is core/sampling.h's and engine/logits_row_kernels.h's, operation by
// operation, so that a token is the one that the engine would have chosen.
//
// Masses are whole numbers, multiples of kMassUnit of a weight: their sums are the same in any
// order, so threads add them as they come.
#pragma once

#include "core/sampling.h"
#include "cuda/core/simt.cuh"

namespace lmn::cuda {

struct LogitsRow {
  const float* logits;     // [vocab], finite
  const float* block_max;  // [blocks]
  int32_t vocab, blocks;
  float max, scale;

  LMN_DEVICE float exponent(float logit) const { return (logit - max) * scale; }
};

LMN_DEVICE float exp2_weight(float y) {
  constexpr float c0 = kExp2[0], c1 = kExp2[1], c2 = kExp2[2], c3 = kExp2[3], c4 = kExp2[4],
                  c5 = kExp2[5];
  static_assert(kExp2Terms == 6);
  if (!(y > kLowestExponent)) return 0;
  const float n = y + kRound - kRound;
  const float t = y - n;
  const float p = ((((c0 * t + c1) * t + c2) * t + c3) * t + c4) * t + c5;
  return p * simt::float_of_bits(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

// In units of kMassUnit, to the nearest, ties to even.
LMN_DEVICE uint64_t mass_of(float weight) {
  constexpr float kUnits = 1 / kMassUnit;
  return static_cast<uint64_t>(static_cast<int64_t>(simt::round_even(weight * kUnits)));
}

// Logits in the order of integers; -0 is 0.
LMN_DEVICE int32_t key_of(float logit) {
  const auto bits = static_cast<int32_t>(simt::bits_of_float(logit + 0.0f));
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

LMN_DEVICE float logit_of(int32_t key) {
  return simt::float_of_bits(static_cast<uint32_t>(key ^ ((key >> 31) & 0x7FFFFFFF)));
}

// Keeps keys above `key`, and of those equal to it ids up to last_id.
struct KeyCut {
  int32_t key, last_id;
  LMN_DEVICE bool keeps(int32_t of, int32_t id) const {
    return of > key || (of == key && id <= last_id);
  }
};

// What is dropped for a low weight, after all else.
struct LeastWeight {
  float weight, bound;  // logits below `bound` weigh less; weight 0: nothing is dropped
  LMN_DEVICE bool keeps(float logit, float w) const {
    return !(weight > 0) || (logit >= bound && w >= weight);
  }
};

// What this lane has of block b: tokens 64 b + lane and 64 b + lane + 32; -infinity beyond the
// row's end, and where b is -1.
LMN_DEVICE void load_block(const float* logits, int32_t vocab, int32_t b, float (&v)[2]) {
  for (int h = 0; h < 2; ++h) {
    const int32_t id = b * kRowBlock + h * simt::kWarp + simt::lane();
    v[h] = b >= 0 && id < vocab ? logits[id] : -simt::kInfinity;
  }
}

// The sums of two blocks' weights, as lane l has them of tokens l and l + 32: of block 0 for lanes
// 0 to 15, of block 1 for the others.
LMN_DEVICE float block_sums(const float (&w0)[2], const float (&w1)[2]) {
  // Lane i of a block adds tokens i, i + 16, i + 32, i + 48: the half of the warp that sums the
  // other block gives its part.
  const bool upper = simt::lane() >= 16;
  const float other0 = simt::shuffle_xor(upper ? w0[0] : w1[0], 16);
  const float other1 = simt::shuffle_xor(upper ? w0[1] : w1[1], 16);
  float sum = upper ? ((other0 + w1[0]) + other1) + w1[1] : ((w0[0] + other0) + w0[1]) + other1;
  for (int mask = 8; mask > 0; mask /= 2) sum += simt::shuffle_xor(sum, mask);
  return sum;
}

inline constexpr int kWalkBlocks = 4;  // at once, so that their loads wait together

// Calls visit(blocks, values) with the blocks whose maximum reaches `low`, for each warp of the
// thread block with some of them; blocks[i] is -1 where there is none.
template <typename Visit>
LMN_DEVICE void walk(const LogitsRow& row, int32_t low, Visit visit) {
  for (int32_t first = simt::warp() * simt::kWarp; first < row.blocks;
       first += simt::block_size()) {
    const int32_t mine = first + simt::lane();
    uint32_t left = simt::ballot(mine < row.blocks && key_of(row.block_max[mine]) >= low);
    while (left != 0) {
      int32_t b[kWalkBlocks];
      float v[kWalkBlocks][2];
      for (int i = 0; i < kWalkBlocks; ++i) {
        b[i] = left == 0 ? -1 : first + simt::lowest_bit(left);
        left &= left - 1;
      }
      for (int i = 0; i < kWalkBlocks; ++i) load_block(row.logits, row.vocab, b[i], v[i]);
      visit(b, v);
    }
  }
}

// Calls visit(logit, key, id) with every token of these blocks, each by one lane.
template <typename Visit>
LMN_DEVICE void walk_tokens(const LogitsRow& row, int32_t low, Visit visit) {
  walk(row, low, [&](const int32_t(&b)[kWalkBlocks], const float(&v)[kWalkBlocks][2]) {
    for (int i = 0; i < kWalkBlocks; ++i) {
      for (int h = 0; h < 2; ++h) {
        const int32_t id = b[i] * kRowBlock + h * simt::kWarp + simt::lane();
        if (b[i] >= 0 && id < row.vocab) visit(v[i][h], key_of(v[i][h]), id);
      }
    }
  });
}

}  // namespace lmn::cuda
