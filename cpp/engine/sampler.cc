// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/philox.h"

namespace lmn::engine {
namespace {

constexpr uint32_t kSeen = uint32_t{1} << 31;
constexpr float kInfinite = std::numeric_limits<float>::infinity();

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

bool keeps_all(const SampleRow& how, int32_t vocab) {
  return (how.top_k == 0 || how.top_k >= vocab) && how.top_p >= 1 && how.min_p <= 0;
}

int32_t index_of(std::span<const float> row, int32_t block, float value) {
  const auto begin = row.begin() + static_cast<ptrdiff_t>(block) * kRowBlock;
  return static_cast<int32_t>(std::find(begin, row.end(), value) - row.begin());
}

template <typename T>
int64_t bytes_of(const std::vector<T>& of) {
  return static_cast<int64_t>(of.size() * sizeof(T));
}

SampleChoice not_finite(std::span<const float> logits) {
  const int32_t at = first_non_finite(logits);
  return {-1, at, logits[static_cast<size_t>(at)]};
}

}  // namespace

bool is_plain(const SamplingParams& params) {
  return params.logit_bias.empty() && !has_penalties(params) && params.logprobs < 0;
}

SampleRow sample_row(const SamplingParams& params, double uniform, int32_t row) {
  SampleRow how;
  how.row = row;
  if (params.temperature == 0) return how;
  how.uniform = uniform;
  how.scale = weight_scale(params.temperature);
  how.top_p = params.top_p;
  how.min_p = params.min_p;
  // A little low, for rounding; the weight decides.
  if (params.min_p > 0) how.min_depth = params.temperature * (std::log(params.min_p) - 1e-3F);
  how.top_k = params.top_k;
  return how;
}

Sampler::Sampler(int32_t vocab_size, memory::Ledger& ledger, const RowKernels& kernels)
    : kernels_(kernels) {
  const auto vocab = static_cast<size_t>(vocab_size);
  const auto blocks = static_cast<size_t>(row_blocks(vocab_size));
  row_.resize(vocab);
  block_max_.resize(blocks);
  upper_max_.resize(static_cast<size_t>(row_blocks(static_cast<int32_t>(blocks))));
  running_sum_.resize(blocks);
  weights_.resize(blocks * kRowBlock);
  marks_.resize(vocab);
  candidates_.resize(vocab);
  ledger_ = memory::LedgerEntry(&ledger, memory::Owner::kScratch,
                                bytes_of(row_) + bytes_of(block_max_) + bytes_of(upper_max_) +
                                    bytes_of(running_sum_) + bytes_of(weights_) + bytes_of(marks_) +
                                    bytes_of(candidates_));
}

SampleChoice Sampler::sample(std::span<const float> logits, const SampleRow& how) {
  const RowScan raw =
      kernels_.scan(logits.data(), static_cast<int32_t>(logits.size()), block_max_.data(), nullptr);
  if (!raw.finite) return not_finite(logits);
  return {pick(how, {logits, raw.max, raw.block}), -1, 0};
}

Sampler::Choice Sampler::choose(const SamplingParams& params, const Input& input,
                                const TopLogprobs& top) {
  Choice choice;
  const auto vocab = static_cast<int32_t>(input.logits.size());
  const bool changed =
      !params.logit_bias.empty() || (has_penalties(params) && !input.tokens.empty());
  const RowScan raw =
      kernels_.scan(input.logits.data(), vocab, block_max_.data(), changed ? row_.data() : nullptr);
  if (!raw.finite) return {not_finite(input.logits), 0};
  Row row{input.logits, raw.max, raw.block};
  if (changed) row = adjusted(params, input);
  if (row.max == -kInfinite) return choice;
  const auto index =
      static_cast<uint64_t>(input.tokens.size()) - static_cast<uint64_t>(input.prompt_tokens);
  const SampleRow how = sample_row(params, uniform(input.seed, index), 0);
  choice.token_id = pick(how, row);
  if (params.logprobs >= 0) {
    if (changed) (void)kernels_.scan(input.logits.data(), vocab, block_max_.data(), nullptr);
    const bool drawn_from_all = !changed && params.temperature == 1 && keeps_all(how, vocab);
    const double sum =
        drawn_from_all
            ? running_sum_.back()
            : kernels_.weigh(view(input.logits),
                             {{raw.max, weight_scale(1)}, nullptr, 0, nullptr, nullptr, nullptr});
    fill_logprobs(input, raw.max, sum, choice, top);
  }
  return choice;
}

// Steps 1 to 3, in row_, which holds the logits and has its block maxima in place.
Sampler::Row Sampler::adjusted(const SamplingParams& params, const Input& input) {
  for (const LogitBias& bias : params.logit_bias)
    set_logit(bias.token_id, row_[static_cast<size_t>(bias.token_id)] + bias.bias);
  if (has_penalties(params)) penalize(params, input);
  const RowScan upper = kernels_.scan(block_max_.data(), static_cast<int32_t>(block_max_.size()),
                                      upper_max_.data(), nullptr);
  return {row_, upper.max, index_of(block_max_, upper.block, upper.max)};
}

void Sampler::set_logit(int32_t token_id, float value) {
  float& logit = row_[static_cast<size_t>(token_id)];
  const int32_t block = token_id / kRowBlock;
  float& max = block_max_[static_cast<size_t>(block)];
  const bool was_max = logit == max;
  logit = value;
  if (value >= max) {
    max = value;
  } else if (was_max) {
    const RowView row = view(row_);
    const int32_t begin = block * kRowBlock;
    (void)kernels_.scan(row.logits + begin, std::min(kRowBlock, row.vocab - begin), &max, nullptr);
  }
}

void Sampler::penalize(const SamplingParams& params, const Input& input) {
  const size_t count = input.tokens.size();
  const size_t window = params.penalty_last_n == 0
                            ? count
                            : std::min(count, static_cast<size_t>(params.penalty_last_n));
  size_t distinct = 0;
  for (size_t i = count - window; i < count; ++i) {
    uint32_t& mark = marks_[static_cast<size_t>(input.tokens[i])];
    if (mark == 0) candidates_[distinct++].id = input.tokens[i];
    mark = (mark | kSeen) + (i >= static_cast<size_t>(input.prompt_tokens) ? 1 : 0);
  }
  for (size_t i = 0; i < distinct; ++i) {
    const int32_t id = candidates_[i].id;
    const uint32_t occurrences = marks_[static_cast<size_t>(id)] & ~kSeen;
    marks_[static_cast<size_t>(id)] = 0;
    float logit = row_[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (occurrences > 0)
      logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(occurrences);
    // A tiny penalty divides to infinity.
    set_logit(id, std::min(logit, std::numeric_limits<float>::max()));
  }
}

int32_t Sampler::pick(const SampleRow& how, const Row& row) {
  return how.scale > 0 ? draw(how, row) : index_of(row.logits, row.max_block, row.max);
}

int32_t Sampler::draw(const SampleRow& how, const Row& row) {
  const WeightScale scale{row.max, how.scale};
  const auto vocab = static_cast<int32_t>(row.logits.size());
  const bool all = keeps_all(how, vocab);
  RowCut cut = cut_nothing();
  if (!all) {
    cut = cutoff(how, row, scale);
    if (how.min_p > 0 && row.max + how.min_depth > cut.bound) cut = cut_at(row.max + how.min_depth);
  }
  const double total =
      kernels_.weigh(view(row.logits), {scale, all ? nullptr : &cut, how.min_p, running_sum_.data(),
                                        nullptr, how.top_p < 1 ? weights_.data() : nullptr});

  // The block in which the cumulative sum passes the target, then the token in it; where rounding
  // leaves none, the last token of that block that has any weight.
  const double target = std::min(how.uniform * total, std::nextafter(total, 0.0));
  const auto block =
      std::upper_bound(running_sum_.begin(), running_sum_.end(), target) - running_sum_.begin();
  const auto first = static_cast<int32_t>(block) * kRowBlock;
  double passed = block == 0 ? 0 : running_sum_[static_cast<size_t>(block) - 1];
  const RowView here{row.logits.data() + first, block_max_.data() + block,
                     std::min(kRowBlock, vocab - first)};
  float weights[kRowBlock];
  cut.last_id -= first;  // ids count from this block here
  (void)kernels_.weigh(here, {scale, &cut, how.min_p, nullptr, weights, nullptr});
  int32_t chosen = -1;
  for (int32_t i = 0; i < here.vocab; ++i) {
    if (weights[i] == 0) continue;
    chosen = first + i;
    passed += weights[i];
    if (passed > target) break;
  }
  return chosen;
}

RowCut Sampler::cutoff(const SampleRow& how, const Row& row, const WeightScale& scale) {
  const RowView logits = view(row.logits);
  int32_t kept = logits.vocab;
  RowCut cut = cut_nothing();
  if (how.top_k > 0 && how.top_k < logits.vocab) {
    kept = how.top_k;
    cut = kth_likeliest(kernels_, logits, kept, row.max, candidates_);
  }
  if (how.top_p >= 1) return cut;
  const double total = kernels_.weigh(logits, {scale, &cut, 0, nullptr, weights_.data(), nullptr});
  return nucleus_cut(kernels_, logits,
                     {weights_.data(), total, how.top_p * total, scale, cut, kept}, candidates_);
}

void Sampler::fill_logprobs(const Input& input, float max, double sum, Choice& choice,
                            const TopLogprobs& top) {
  const double log_sum = std::log(sum);
  const auto logprob_of = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - max) - log_sum);
  };
  choice.logprob = logprob_of(input.logits[static_cast<size_t>(choice.token_id)]);
  if (top.token_ids.empty()) return;
  const auto n = std::min<size_t>(top.token_ids.size(), input.logits.size());
  const RowView row = view(input.logits);
  const RowCut cut = kth_likeliest(kernels_, row, static_cast<int32_t>(n), max, candidates_);
  const int32_t count = kernels_.gather(row, cut, kInfinite, nullptr, candidates_.data());
  std::sort(candidates_.begin(), candidates_.begin() + count, likelier);
  for (size_t i = 0; i < n; ++i) {
    top.token_ids[i] = candidates_[i].id;
    top.logprobs[i] = logprob_of(candidates_[i].logit);
  }
}

RowView Sampler::view(std::span<const float> logits) const {
  return {logits.data(), block_max_.data(), static_cast<int32_t>(logits.size())};
}

}  // namespace lmn::engine
