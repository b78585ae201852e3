// SPDX-License-Identifier: Apache-2.0
//
// What the sampler asks of one row of logits, float32 [vocab], without sorting it: the k likeliest
// tokens, the likeliest that hold a given mass. The passes underneath, and the order of every sum,
// are RowKernels (logits_row_kernels.h): results are the same bits on every instruction set.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "engine/logits_row_kernels.h"

namespace lmn::engine {

// Index of the first NaN or infinity, or -1.
int32_t first_non_finite(std::span<const float> row);

// 2^y for y <= 0, within 2e-7 relative; 0 up to -125. What every table computes, lane by lane.
float exp2_weight(float y);

// The factor that makes exp2_weight((logit - max) * scale) the weight exp((logit - max) /
// temperature): log2(e) / temperature, at most the largest float. temperature > 0.
float weight_scale(float temperature);

// Likelier first, lower id first among equals: a strict order, so "the k likeliest" is always one
// set.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Keeps logits from `bound` on, and of those equal to it ids up to `last_id`.
RowCut cut_at(float bound, int32_t last_id = std::numeric_limits<int32_t>::max());
// Keeps all that are not forbidden.
inline RowCut cut_nothing() { return cut_at(std::numeric_limits<float>::lowest()); }

// A bound that at least min(k, as many as are not -infinity) of the values reach, and unless there
// are equals not many more. k >= 1; no value above `max`.
float bound_of_largest(const RowKernels& kernels, std::span<const float> values, int32_t k,
                       float max);

// Keeps the k likeliest, k >= 1. scratch: [vocab].
RowCut kth_likeliest(const RowKernels& kernels, const RowView& row, int32_t k, float max,
                     std::span<Candidate> scratch);

struct Nucleus {
  const float* weights;  // of the row, made with `cut`
  double total;          // their sum
  double mass;           // at most the total
  WeightScale scale;
  RowCut cut;
  int32_t kept;  // the cut keeps no more tokens than this
};
// Keeps the smallest set of likeliest tokens whose masses sum to `mass`; all of the cut, where its
// tokens, rounded one by one, do not. scratch: [vocab].
RowCut nucleus_cut(const RowKernels& kernels, const RowView& row, const Nucleus& nucleus,
                   std::span<Candidate> scratch);

}  // namespace lmn::engine
