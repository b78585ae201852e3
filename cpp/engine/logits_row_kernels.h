// SPDX-License-Identifier: Apache-2.0
//
// RowKernels: the passes over a row of logits that every token pays for, one table per instruction
// set. Plain data and pointers only (DESIGN section 6: logits_row_kernels-inl.h is compiled for
// several sets).
//
// Every table gives the same bits (of the maxima: the same values; which of -0 and 0 is left open,
// and nothing below depends on it). A row is seen as blocks of 64, the last one as if filled up
// with -infinity; the arithmetic of one block is that of 16 lanes, element i in lane i % 16:
//   weight    w = 2^y, y = (logit - max) * scale, as exp2_weight (logits_row.h) computes it
//   block sum each lane adds its four weights in ascending order; then lane i adds lane i + 8,
//             then i + 4, i + 2, i + 1; all in float
//   row sum   the block sums, each rounded to a multiple of kMassUnit, in double: exact, so in any
//             order
//   mass      of a token: its weight, so rounded; sums of masses are exact too
// max and scale are such that y <= 0.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "core/sampling.h"

namespace lmn::engine {

struct RowView {
  const float* logits;     // [vocab], no NaN; -infinity is a forbidden token
  const float* block_max;  // [row_blocks(vocab)]
  int32_t vocab;
};

struct RowScan {
  float max;      // max and block are arbitrary where there is a NaN
  int32_t block;  // the first that holds the maximum
  bool finite;    // no NaN, no infinity
};

// What top_k and top_p keep: logits above `bound`, and those equal to it up to id `last_id`.
struct RowCut {
  float bound;
  float beyond;  // the next float above `bound`
  int32_t last_id;
};

struct WeightScale {
  float max;    // of the row
  float scale;  // weight_scale(temperature)
};

struct WeightPass {
  WeightScale weight;
  const RowCut* cut;    // null keeps all; weights of tokens it drops are 0
  float min_weight;     // smaller weights become 0; only with a cut
  double* running_sum;  // out: the row sum up to and with each block [row_blocks]; or null
  // Out, only with a cut: [row_blocks * 64] or null; blocks of which the cut keeps nothing are
  // left.
  float* weights;
  const float* known;  // `weights` of an earlier pass whose cut kept at least as much; or null
};

inline constexpr int kBounds = 4;

struct Candidate {
  float logit;
  float weight;  // where it was asked for
  int32_t id;
};

struct RowKernels {
  const char* name;
  // Fills block_max, and copies the logits to `copy` [vocab] where that is not null. A NaN may
  // stand anywhere.
  RowScan (*scan)(const float* logits, int32_t vocab, float* block_max, float* copy);
  // Returns the row sum.
  double (*weigh)(const RowView& row, const WeightPass& pass);
  // sums[i]: of the weights (as `weigh` filled them) of logits >= bounds[i]; bounds ascend, and lie
  // above the bound of the cut that the weights were made with. Four blocks that hold such logits
  // are added lane by lane, then as a block sum.
  void (*sums_above)(const RowView& row, const float* weights, const float* bounds, double* sums);
  // Of the masses of logits >= bound, which lies as those above.
  double (*mass_above)(const RowView& row, const float* weights, float bound);
  // How many of `count` values are >= bound.
  int32_t (*count_above)(const float* values, int32_t count, float bound);
  // Writes, by ascending id, the tokens that `cut` keeps and that are below `ceiling`; their number
  // is returned. Takes their weights from `weights`, where that is not null.
  int32_t (*gather)(const RowView& row, const RowCut& cut, float ceiling, const float* weights,
                    Candidate* out);
};

// The best for this machine.
const RowKernels& row_kernels();
// All that this machine can run, best first.
std::span<const RowKernels* const> all_row_kernels();

}  // namespace lmn::engine
