// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/philox.h"

namespace lmn::engine {
namespace {

constexpr uint32_t kSeen = uint32_t{1} << 31;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

}  // namespace

Sampler::Sampler(int32_t vocab_size, memory::Ledger& ledger) {
  const auto vocab = static_cast<size_t>(vocab_size);
  const auto blocks = static_cast<size_t>(row_blocks(vocab_size));
  row_.resize(vocab);
  block_max_.resize(blocks);
  block_sum_.resize(blocks);
  float_scratch_.reserve(blocks);
  marks_.resize(vocab);
  candidates_.reserve(vocab);
  const size_t bytes = vocab * (sizeof(float) + sizeof(uint32_t) + sizeof(Candidate)) +
                       blocks * (2 * sizeof(float) + sizeof(double));
  ledger_ = memory::LedgerEntry(&ledger, memory::Owner::kScratch, static_cast<int64_t>(bytes));
}

Sampler::Choice Sampler::choose(const SamplingParams& params, const Input& input,
                                const TopLogprobs& top) {
  Choice choice;
  choice.non_finite = first_non_finite(input.logits);
  if (choice.non_finite >= 0) return choice;

  const std::span<const float> row = adjusted(params, input);
  const float max = block_maxima(row, block_max_);
  if (max == -kInfinity) return choice;
  if (params.temperature == 0) {
    choice.token_id = index_of(row, block_max_, max);
  } else {
    const auto index =
        static_cast<uint64_t>(input.tokens.size()) - static_cast<uint64_t>(input.prompt_tokens);
    choice.token_id = draw(params, row, max, uniform(input.seed, index));
  }
  if (params.logprobs >= 0) {
    const float raw_max =
        row.data() == input.logits.data() ? max : block_maxima(input.logits, block_max_);
    fill_logprobs(input, raw_max, choice.token_id, &choice.logprob, top);
  }
  return choice;
}

// Steps 1 to 3. Without any of them, the logits themselves.
std::span<const float> Sampler::adjusted(const SamplingParams& params, const Input& input) {
  const bool penalties = has_penalties(params) && !input.tokens.empty();
  if (params.logit_bias.empty() && !penalties) return input.logits;
  std::copy(input.logits.begin(), input.logits.end(), row_.begin());
  for (const LogitBias& bias : params.logit_bias)
    row_[static_cast<size_t>(bias.token_id)] += bias.bias;
  if (penalties) penalize(params, input);
  return row_;
}

void Sampler::penalize(const SamplingParams& params, const Input& input) {
  const size_t count = input.tokens.size();
  const size_t window = params.penalty_last_n == 0
                            ? count
                            : std::min(count, static_cast<size_t>(params.penalty_last_n));
  for (size_t i = count - window; i < count; ++i) {
    uint32_t& mark = marks_[static_cast<size_t>(input.tokens[i])];
    mark = (mark | kSeen) + (i >= static_cast<size_t>(input.prompt_tokens) ? 1 : 0);
  }
  for (size_t i = count - window; i < count; ++i) {
    const auto id = static_cast<size_t>(input.tokens[i]);
    if (marks_[id] == 0) continue;  // done at an earlier occurrence
    const uint32_t occurrences = marks_[id] & ~kSeen;
    marks_[id] = 0;
    float& logit = row_[id];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (occurrences > 0)
      logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(occurrences);
    logit =
        std::min(logit, std::numeric_limits<float>::max());  // a tiny penalty divides to infinity
  }
}

int32_t Sampler::draw(const SamplingParams& params, std::span<const float> row, float max,
                      double u) {
  const bool top_k = params.top_k > 0 && params.top_k < static_cast<int32_t>(row.size());
  if (!top_k && params.top_p >= 1 && params.min_p <= 0)
    return draw_from_all(row, max, params.temperature, u);

  Candidate last = cutoff(params, row, max);
  if (params.min_p > 0) {
    // The bound is a little low, for rounding; the weight decides.
    const float bound = max + params.temperature * (std::log(params.min_p) - 1e-3F);
    if (bound > last.logit) last = {bound, 0, std::numeric_limits<int32_t>::max()};
  }
  candidates_.clear();
  gather(row, block_max_, last, candidates_);
  weigh(candidates_, max, params.temperature);
  double total = 0;
  for (Candidate& c : candidates_) {
    if (c.weight < params.min_p) c.weight = 0;
    total += c.weight;
  }
  const double target = u * total;
  double passed = 0;
  int32_t chosen = -1;
  for (const Candidate& c : candidates_) {
    if (c.weight == 0) continue;
    chosen = c.id;
    passed += c.weight;
    if (passed > target) break;
  }
  return chosen;
}

Candidate Sampler::cutoff(const SamplingParams& params, std::span<const float> row, float max) {
  const bool top_k = params.top_k > 0 && params.top_k < static_cast<int32_t>(row.size());
  Candidate last = top_k ? kth_likeliest(row, block_max_, params.top_k, candidates_, float_scratch_)
                         : kLastOfAll;
  if (params.top_p >= 1) return last;

  if (top_k) {
    candidates_.clear();
    gather(row, block_max_, last, candidates_);
    return nucleus_end(candidates_, params.top_p * weigh(candidates_, max, params.temperature));
  }
  // Nearly always a few likely tokens hold the mass, so look at those first: all tokens above a
  // weight of 2^-7, then 2^-14 and so on, until they hold enough.
  const double mass = params.top_p * sum_weights(row, max, params.temperature);
  constexpr float kStep = 7 * 0.6931472F;
  constexpr float kLowestWeight = -87;  // exp_weight is zero from here on
  for (float depth = -kStep;; depth -= kStep) {
    const bool everything = depth < kLowestWeight;
    candidates_.clear();
    gather(row, block_max_,
           everything ? kLastOfAll : Candidate{max + depth * params.temperature, 0, kLastOfAll.id},
           candidates_);
    if (weigh(candidates_, max, params.temperature) >= mass || everything)
      return nucleus_end(candidates_, mass);
  }
}

int32_t Sampler::draw_from_all(std::span<const float> row, float max, float temperature, double u) {
  const double target = u * sum_weights(row, max, temperature, block_sum_);
  // The block in which the cumulative sum passes the target, then the token in it; where rounding
  // leaves neither, the last token that has any weight.
  double passed = 0;
  int32_t chosen = -1;
  for (size_t block = 0; block < block_sum_.size(); ++block) {
    if (block_sum_[block] == 0 ||
        (passed + block_sum_[block] <= target && block + 1 < block_sum_.size())) {
      passed += block_sum_[block];
      continue;
    }
    const size_t end = std::min(row.size(), (block + 1) * kRowBlock);
    for (size_t id = block * kRowBlock; id < end; ++id) {
      const float weight = exp_weight((row[id] - max) / temperature);
      if (weight == 0) continue;
      chosen = static_cast<int32_t>(id);
      passed += weight;
      if (passed > target) return chosen;
    }
  }
  return chosen >= 0 ? chosen : index_of(row, block_max_, max);
}

void Sampler::fill_logprobs(const Input& input, float max, int32_t token_id, float* logprob,
                            const TopLogprobs& top) {
  const double log_sum = std::log(sum_weights(input.logits, max, 1));
  const auto logprob_of = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - max) - log_sum);
  };
  *logprob = logprob_of(input.logits[static_cast<size_t>(token_id)]);
  if (top.token_ids.empty()) return;
  const auto n = std::min<size_t>(top.token_ids.size(), input.logits.size());
  const Candidate last =
      kth_likeliest(input.logits, block_max_, static_cast<int32_t>(n), candidates_, float_scratch_);
  candidates_.clear();
  gather(input.logits, block_max_, last, candidates_);
  std::sort(candidates_.begin(), candidates_.end(), likelier);
  for (size_t i = 0; i < n; ++i) {
    top.token_ids[i] = candidates_[i].id;
    top.logprobs[i] = logprob_of(candidates_[i].logit);
  }
}

}  // namespace lmn::engine
