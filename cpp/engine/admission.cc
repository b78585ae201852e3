// SPDX-License-Identifier: Apache-2.0
#include "engine/admission.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kv_cache.h"

namespace lmn::engine {
namespace {

Status check_ids(const char* field, const std::vector<int32_t>& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return error(Code::kInvalidArgument,
                   "%s[%zu] is token %d; the vocabulary has %d tokens, ids from 0", field, i,
                   ids[i], vocab_size);
    }
  }
  return {};
}

Status check_logits(const RequestOptions& options, int32_t prompt_tokens) {
  if (options.kind == RequestKind::kScore && options.logits == nullptr) {
    return error(Code::kInvalidArgument, "logits is null; a score writes %d rows there",
                 prompt_tokens);
  }
  if (options.logits == nullptr) return {};
  if (options.kind == RequestKind::kGenerate && options.max_tokens == 0) {
    return error(Code::kInvalidArgument,
                 "logits are asked for and max_tokens is 0; say how many tokens there is room for");
  }
  const int32_t rows = options.kind == RequestKind::kScore ? prompt_tokens : options.max_tokens;
  if (options.logits_rows >= rows) return {};
  return error(Code::kInvalidArgument, "logits_rows is %lld; this request writes up to %d rows",
               static_cast<long long>(options.logits_rows), rows);
}

Result<int32_t> resolve_max_tokens(const RequestOptions& options, int32_t prompt_tokens,
                                   const AdmissionLimits& limits) {
  if (options.max_tokens < 0) {
    return error(Code::kInvalidArgument,
                 "max_tokens is %d; it must be 0 (until the context ends) or more",
                 options.max_tokens);
  }
  const int64_t kv_tokens = limits.kv_pages * kKvPageTokens;
  if (options.kind == RequestKind::kScore) {
    if (options.max_tokens != 0) {
      return error(Code::kInvalidArgument,
                   "max_tokens is %d; a score generates nothing, leave it 0", options.max_tokens);
    }
    if (prompt_tokens > limits.context_tokens) {
      return error(
          Code::kInvalidArgument,
          "the prompt has %d tokens and the context %d; shorten it or raise context_tokens",
          prompt_tokens, limits.context_tokens);
    }
  } else if (prompt_tokens >= limits.context_tokens) {
    return error(Code::kInvalidArgument,
                 "the prompt has %d tokens and the context %d, which leaves no room for an answer; "
                 "shorten it or raise "
                 "context_tokens",
                 prompt_tokens, limits.context_tokens);
  }
  int64_t max_tokens = 0;
  if (options.kind == RequestKind::kGenerate) {
    max_tokens = std::max<int64_t>(1, answer_limit(options.max_tokens, prompt_tokens, limits));
  }
  if (prompt_tokens + max_tokens > kv_tokens) {
    return error(Code::kOutOfMemory,
                 "the request needs a KV cache of %lld tokens (prompt %d, answer %lld) and there "
                 "is one of %lld; raise "
                 "kv_tokens or ask for less",
                 static_cast<long long>(prompt_tokens + max_tokens), prompt_tokens,
                 static_cast<long long>(max_tokens), static_cast<long long>(kv_tokens));
  }
  return static_cast<int32_t>(max_tokens);
}

}  // namespace

int64_t answer_limit(int64_t asked, int64_t prompt_tokens, const AdmissionLimits& limits) {
  const int64_t context_room = limits.context_tokens - prompt_tokens;
  if (asked > 0) return std::min(context_room, asked);
  return std::min(context_room, limits.kv_pages * kKvPageTokens - prompt_tokens);
}

Result<Admission> admit(const RequestOptions& options, const AdmissionLimits& limits) {
  if (options.kind != RequestKind::kGenerate && options.kind != RequestKind::kScore) {
    return error(Code::kInvalidArgument, "kind is %d; it must be 0 (generate) or 1 (score)",
                 static_cast<int>(options.kind));
  }
  if (options.prompt.empty()) {
    return error(Code::kInvalidArgument, "the prompt has no tokens; give at least one");
  }
  if (options.prompt.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max() / 2)) {
    return error(Code::kInvalidArgument,
                 "the prompt has %zu tokens and the context %d; shorten it or raise context_tokens",
                 options.prompt.size(), limits.context_tokens);
  }
  const auto prompt_tokens = static_cast<int32_t>(options.prompt.size());
  LMN_RETURN_IF_ERROR(check_ids("prompt", options.prompt, limits.vocab_size));
  LMN_RETURN_IF_ERROR(check_ids("stop_token_ids", options.stop_token_ids, limits.vocab_size));
  LMN_RETURN_IF_ERROR(validate(options.sampling, limits.vocab_size));
  if (options.priority < kMinPriority || options.priority > kMaxPriority) {
    return error(Code::kInvalidArgument, "priority is %d; it must be in [%d, %d], 0 is normal",
                 options.priority, kMinPriority, kMaxPriority);
  }
  const bool score = options.kind == RequestKind::kScore;
  if (options.samples < 1 || options.samples > (score ? 1 : kMaxSamples)) {
    return error(Code::kInvalidArgument, "%d samples are asked for; there are 1 to %d%s",
                 options.samples, score ? 1 : kMaxSamples, score ? " of a score" : "");
  }
  if (options.callback != nullptr && options.news != nullptr) {
    return error(Code::kInvalidArgument,
                 "callback and a news queue are both set; news goes to one of them");
  }
  if (options.prefill_chunk_tokens < 0) {
    return error(Code::kInvalidArgument,
                 "prefill_chunk_tokens is %d; it must be 0 (the engine's) or more",
                 options.prefill_chunk_tokens);
  }
  const std::pair<const char*, int64_t> times[] = {
      {"deadline_ns", options.deadline_ns}, {"token_interval_ns", options.token_interval_ns}};
  for (const auto& [name, value] : times) {
    if (value >= 0) continue;
    return error(Code::kInvalidArgument, "%s is %lld; it must be 0 (none) or more", name,
                 static_cast<long long>(value));
  }

  Admission admission;
  LMN_ASSIGN_OR_RETURN(admission.max_tokens, resolve_max_tokens(options, prompt_tokens, limits));
  LMN_RETURN_IF_ERROR(check_logits(options, prompt_tokens));
  if (!options.stop.empty()) {
    if (limits.tokenizer == nullptr) {
      return error(Code::kInvalidArgument,
                   "stop strings need a tokenizer, and this model has none; use stop_token_ids");
    }
    const std::vector<std::string_view> views(options.stop.begin(), options.stop.end());
    Result<text::StopMatcher> stops = text::StopMatcher::create(views);
    if (!stops.ok()) return std::move(stops).status().with_context("stop");
    admission.stops = std::move(stops).value();
  }
  return admission;
}

}  // namespace lmn::engine
