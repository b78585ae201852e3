// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling_params.h"

#include <cmath>
#include <limits>

namespace lmn::engine {
namespace {

// Written so that NaN is outside every range.
Status in_range(const char* field, float value, float low, float high, const char* meaning) {
  if (value >= low && value <= high) return {};
  return error(Code::kInvalidArgument, "%s is %g; it must be in [%g, %g] (%s)", field,
               static_cast<double>(value), static_cast<double>(low), static_cast<double>(high),
               meaning);
}

Status at_least_zero(const char* field, int32_t value, const char* meaning) {
  if (value >= 0) return {};
  return error(Code::kInvalidArgument, "%s is %d; it must be 0 or more (%s)", field, value,
               meaning);
}

}  // namespace

Status validate(const SamplingParams& params, int32_t vocab_size) {
  LMN_RETURN_IF_ERROR(in_range("temperature", params.temperature, 0, 100, "0 is greedy"));
  LMN_RETURN_IF_ERROR(at_least_zero("top_k", params.top_k, "0 keeps all tokens"));
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return error(Code::kInvalidArgument,
                 "top_p is %g; it must be above 0 and at most 1 (1 keeps all tokens)",
                 static_cast<double>(params.top_p));
  }
  LMN_RETURN_IF_ERROR(in_range("min_p", params.min_p, 0, 1, "0 keeps all tokens"));
  if (!(params.repetition_penalty > 0 &&
        params.repetition_penalty <= std::numeric_limits<float>::max())) {
    return error(Code::kInvalidArgument,
                 "repetition_penalty is %g; it must be above 0 and finite (1 is none)",
                 static_cast<double>(params.repetition_penalty));
  }
  LMN_RETURN_IF_ERROR(
      in_range("presence_penalty", params.presence_penalty, -100, 100, "0 is none"));
  LMN_RETURN_IF_ERROR(
      in_range("frequency_penalty", params.frequency_penalty, -100, 100, "0 is none"));
  LMN_RETURN_IF_ERROR(
      at_least_zero("penalty_last_n", params.penalty_last_n, "0 looks at all tokens"));
  if (params.logprobs < -1 || params.logprobs > kMaxTopLogprobs) {
    return error(Code::kInvalidArgument, "logprobs is %d; it must be in [-1, %d] (-1 is none)",
                 params.logprobs, kMaxTopLogprobs);
  }
  if (params.logprobs > vocab_size) {
    return error(Code::kInvalidArgument, "logprobs is %d; the vocabulary has %d tokens",
                 params.logprobs, vocab_size);
  }
  if (params.logit_bias.size() > static_cast<size_t>(kMaxLogitBias)) {
    return error(Code::kInvalidArgument, "logit_bias has %zu entries; at most %d are taken",
                 params.logit_bias.size(), kMaxLogitBias);
  }
  for (size_t i = 0; i < params.logit_bias.size(); ++i) {
    const LogitBias& entry = params.logit_bias[i];
    if (entry.token_id < 0 || entry.token_id >= vocab_size) {
      return error(Code::kInvalidArgument,
                   "logit_bias[%zu] names token %d; the vocabulary has %d tokens, ids from 0", i,
                   entry.token_id, vocab_size);
    }
    const bool forbids = std::isinf(entry.bias) && entry.bias < 0;
    if (!forbids && !(std::abs(entry.bias) <= 1e6F)) {
      return error(Code::kInvalidArgument,
                   "logit_bias[%zu] is %g; it must be in [-1e6, 1e6], or -infinity to forbid", i,
                   static_cast<double>(entry.bias));
    }
  }
  return {};
}

}  // namespace lmn::engine
