// SPDX-License-Identifier: Apache-2.0
//
// SamplingParams: how a token is chosen, as plain data, with its validation. The order in which the
// fields act is the contract of sampler.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/status.h"

namespace lmn::engine {

struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;  // added to the logit; -infinity forbids the token
};

struct SamplingParams {
  // [0, 100]. 0: greedy (the highest logit, the lowest id among equals).
  float temperature = 1;
  // >= 0. Keeps the k likeliest; 0: all.
  int32_t top_k = 0;
  // (0, 1]. Keeps the smallest set of likeliest tokens that holds this much probability.
  float top_p = 1;
  // [0, 1]. Keeps tokens at least this fraction as likely as the likeliest.
  float min_p = 0;
  // > 0. Positive logits of tokens in prompt and output are divided by it, others multiplied.
  float repetition_penalty = 1;
  // [-100, 100]. Subtracted once from the logit of tokens in the output.
  float presence_penalty = 0;
  // [-100, 100]. Subtracted once per occurrence in the output.
  float frequency_penalty = 0;
  // >= 0. The penalties look at this many last tokens; 0: all.
  int32_t penalty_last_n = 0;
  // Same seed, same tokens. Absent: from the system's entropy, and reported in RequestStats.
  std::optional<uint64_t> seed;
  // -1: none. n >= 0: of the chosen token, and of the n likeliest; at most kMaxTopLogprobs.
  int32_t logprobs = -1;
  std::vector<LogitBias> logit_bias;
};

inline constexpr int32_t kMaxTopLogprobs = 64;
inline constexpr int32_t kMaxLogitBias = 4096;

// INVALID_ARGUMENT names the field, its value and the range.
Status validate(const SamplingParams& params, int32_t vocab_size);

}  // namespace lmn::engine
