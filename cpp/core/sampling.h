// SPDX-License-Identifier: Apache-2.0
//
// How one token is drawn from one row of logits, as plain data and constants: what the engine tells
// a device that samples, and what both compute with (engine/sampler.h says in which order, engine/
// logits_row_kernels.h with which operations). Nothing here knows requests or devices.
#pragma once

#include <cstdint>

namespace lmn {

// Blocks of a row, whose weights are summed in one fixed order: 49k to 150k logits make 770 to
// 2,400 of them, as many maxima as a usual top_k needs to bound its k-th value, and small enough a
// block that looking through one for its few candidates costs little.
inline constexpr int32_t kRowBlock = 64;
inline constexpr int32_t row_blocks(int32_t vocab) { return (vocab + kRowBlock - 1) / kRowBlock; }

// 2^y for y <= 0: y = n + t, n whole and |t| <= 1/2; 2^t by its minimax polynomial (largest
// relative error with float rounding 1.9e-7; exactly 1 at 0); n is added to the exponent bits. Up
// to kLowestExponent, where the result is still a normal float, the weight is 0.
inline constexpr float kExp2[] = {0x1.5bba14p-10F, 0x1.3cea88p-7F, 0x1.c6b752p-5F,
                                  0x1.ebf9bcp-3F,  0x1.62e42ap-1F, 1.0F};
inline constexpr int kExp2Terms = 6;
inline constexpr float kLowestExponent = -125;
inline constexpr float kNoExponent = -127;    // makes all exponent bits 0: the float 0
inline constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves n in the low bits

// Of what is added up (weights of tokens, sums of blocks), each is first rounded to a multiple of
// this, to the nearest, ties to even. Weights are 1 at most, so up to 2^19 tokens every sum is
// exact in a double, and the same in any order.
inline constexpr float kMassUnit = 0x1p-34F;
inline constexpr double kMassRound = 0x1.8p52 * double{kMassUnit};  // added and taken away: rounds

// Which row a token comes from, and how: SamplingParams and a uniform number, boiled down to what
// one draw needs. engine/sampler.h: Sampler::sample is the reference.
struct SampleRow {
  double uniform = 0;   // in [0, 1)
  float scale = 0;      // log2(e) / temperature; 0: the largest logit, and nothing else counts
  float top_p = 1;      // 1 or more: all
  float min_p = 0;      // 0: all
  float min_depth = 0;  // with min_p: a logit this far below the largest weighs less than min_p
  int32_t top_k = 0;    // 0: all
  int32_t row = -1;     // of the logits; -1: no token is asked for
};

struct SampleChoice {
  int32_t token_id = -1;
  int32_t non_finite = -1;  // index of the first NaN or infinity in the row: nothing was chosen
  float value = 0;          // that logit
};

}  // namespace lmn
