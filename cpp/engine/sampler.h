// SPDX-License-Identifier: Apache-2.0
//
// Sampler: one row of logits to one token. A pure function of logits, parameters, seed and history,
// so the same request gives the same tokens in any batch. Scratch is allocated once; choose()
// allocates nothing.
//
// The fields of SamplingParams act in this order:
//   1. logit_bias is added.
//   2. repetition_penalty, on tokens of the window: positive logits are divided by it, others
//      multiplied (Keskar et al., CTRL, 2019).
//   3. presence_penalty, and frequency_penalty times the count, are subtracted from tokens of the
//      generated part of the window, which is the last penalty_last_n tokens of prompt and output.
//   4. temperature 0: the largest logit, the lowest id among equals. Nothing below applies.
//   5. the weight of a token is exp((logit - largest logit) / temperature), computed as
//      exp2_weight((logit - largest) * weight_scale(temperature)) of logits_row.h;
//   6. top_k;
//   7. top_p, of the probabilities renormalised after top_k (sums of masses, logits_row_kernels.h);
//   8. min_p: tokens whose weight is below it are dropped; the likeliest has 1;
//   9. the draw: the cumulative distribution over the kept tokens, by ascending id, inverted at
//      uniform(seed, index of the generated token) (philox.h).
// Equal logits are ordered by ascending id. Logprobs are those of the model: log softmax of the
// logits before step 1.
//
// Steps 4 to 9 of a row are sample(), with what a SampleRow says: those a device may do instead
// (StepRunner::samples), and then chooses the same token from the same logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sampling.h"
#include "engine/logits_row.h"
#include "engine/sampling_params.h"
#include "memory/ledger.h"

namespace lmn::engine {

// Room for the likeliest tokens of one row, [params.logprobs] each; filled likeliest first.
struct TopLogprobs {
  std::span<int32_t> token_ids;
  std::span<float> logprobs;
};

// Whether a SampleRow says all that the parameters ask for: no bias, no penalties, no logprobs.
bool is_plain(const SamplingParams& params);
// Steps 4 to 9 of the parameters, for row `row` of logits.
SampleRow sample_row(const SamplingParams& params, double uniform, int32_t row);

class Sampler {
 public:
  // Every table of kernels gives the same tokens.
  Sampler(int32_t vocab_size, memory::Ledger& ledger, const RowKernels& kernels = row_kernels());

  struct Input {
    std::span<const float> logits;    // [vocab_size]
    std::span<const int32_t> tokens;  // the sequence so far: prompt, then generated
    int32_t prompt_tokens = 0;
    uint64_t seed = 0;
  };
  struct Choice : SampleChoice {  // token_id -1 without non_finite: bias and penalties leave none
    float logprob = 0;            // when params.logprobs >= 0
  };
  // Fills `top` when params.logprobs > 0.
  Choice choose(const SamplingParams& params, const Input& input, const TopLogprobs& top);
  // Of a row as it is; how.row is not looked at.
  SampleChoice sample(std::span<const float> logits, const SampleRow& how);

 private:
  struct Row {
    std::span<const float> logits;  // after steps 1 to 3
    float max;
    int32_t max_block;
  };
  Row adjusted(const SamplingParams& params, const Input& input);
  void penalize(const SamplingParams& params, const Input& input);
  void set_logit(int32_t token_id, float value);
  // max, and the sum of the weights at temperature 1, are those of the model's logits.
  void fill_logprobs(const Input& input, float max, double sum, Choice& choice,
                     const TopLogprobs& top);
  int32_t pick(const SampleRow& how, const Row& row);
  int32_t draw(const SampleRow& how, const Row& row);
  // What top_k and top_p keep.
  RowCut cutoff(const SampleRow& how, const Row& row, const WeightScale& scale);
  RowView view(std::span<const float> logits) const;

  const RowKernels& kernels_;
  std::vector<float>
      row_;  // logits after steps 1 to 3, where they are not the model's [vocab_size]
  std::vector<float> block_max_;     // of the row in use
  std::vector<float> upper_max_;     // of block_max_
  std::vector<double> running_sum_;  // [blocks]
  std::vector<float> weights_;       // [blocks * kRowBlock]
  std::vector<uint32_t>
      marks_;  // [vocab_size], zero between calls: kSeen, and occurrences in the output
  std::vector<Candidate> candidates_;  // [vocab_size], scratch
  memory::LedgerEntry ledger_;
};

}  // namespace lmn::engine
