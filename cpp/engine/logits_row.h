// SPDX-License-Identifier: Apache-2.0
//
// Passes over one row of logits, float32 [vocab]: what the sampler needs, each in time linear in
// the vocabulary and without sorting it. Rows are looked at in blocks of kRowBlock; the maximum of
// each block lets later passes skip most of them. The order of every sum is fixed by the row's
// length.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lmn::engine {

// 49k to 150k logits make 770 to 2,400 blocks: as many maxima as a usual top_k needs to bound its
// k-th value, and small enough a block that looking through one for its few candidates costs
// little.
inline constexpr int32_t kRowBlock = 64;
inline constexpr int32_t row_blocks(int32_t vocab) { return (vocab + kRowBlock - 1) / kRowBlock; }

// Index of the first NaN or infinity, or -1.
int32_t first_non_finite(std::span<const float> row);

// Fills block_max [row_blocks] and returns the largest value. -infinity is legal here (forbidden
// tokens), NaN is not.
float block_maxima(std::span<const float> row, std::span<float> block_max);

// Lowest index that holds `value`, which is in the row.
int32_t index_of(std::span<const float> row, std::span<const float> block_max, float value);

// exp(x) for x <= 0, within 2e-7 relative; 0 below -87. The sums below use exactly this function.
float exp_weight(float x);

// Sum of exp_weight((row[i] - max) / temperature). Fills block_sum [row_blocks] when it is not
// empty.
double sum_weights(std::span<const float> row, float max, float temperature,
                   std::span<double> block_sum = {});

struct Candidate {
  float logit;
  float weight;  // exp_weight((logit - max) / temperature), where it was asked for
  int32_t id;
};
// Likelier first, lower id first among equals: a strict order, so "the k likeliest" is always one
// set.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// No token that is not forbidden (-infinity) is behind this one.
inline constexpr Candidate kLastOfAll{std::numeric_limits<float>::lowest(), 0,
                                      std::numeric_limits<int32_t>::max()};

// Appends to `out`, by ascending id, the tokens that are not behind `last` in that order (its
// weight is ignored).
void gather(std::span<const float> row, std::span<const float> block_max, const Candidate& last,
            std::vector<Candidate>& out);

// Fills the weights, and returns their sum.
double weigh(std::span<Candidate> candidates, float max, float temperature);

// The k-th likeliest token, k >= 1; kLastOfAll where fewer are not forbidden. The contents of both
// scratch vectors are lost.
Candidate kth_likeliest(std::span<const float> row, std::span<const float> block_max, int32_t k,
                        std::vector<Candidate>& scratch, std::vector<float>& float_scratch);

// The last member of the smallest set of likeliest candidates whose weights sum to `mass` or more
// (all of them, where they do not). At least one candidate, by ascending id, none forbidden; the
// contents are lost.
Candidate nucleus_end(std::span<Candidate> candidates, double mass);

}  // namespace lmn::engine
