// SPDX-License-Identifier: Apache-2.0
//
// lmn_request_options -> engine::RequestOptions: zeros become defaults, text becomes tokens,
// everything that is pointed to is copied. Ranges that depend on the model or are the sampler's
// business are checked by the engine.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "capi/available_memory.h"
#include "capi/engine_handle.h"
#include "capi/options.h"
#include "capi/tensor.h"
#include "capi/tri_state.h"

namespace lmn::capi {
namespace {

constexpr uint32_t kKnownFlags = LMN_REQUEST_PARSE_SPECIAL | LMN_REQUEST_SEED |
                                 LMN_REQUEST_IGNORE_EOS | LMN_REQUEST_LOGPROBS |
                                 LMN_REQUEST_LOGITS | LMN_REQUEST_KEEP_SPECIAL | LMN_REQUEST_NOTIFY;

// A pointer with a count behind it: NULL needs a count of 0.
Status check_array(const void* pointer, uint64_t count, const char* field) {
  if (pointer == nullptr && count > 0) {
    return error(Code::kInvalidArgument, "lmn_request_options.%s is NULL and its count is %llu",
                 field, static_cast<unsigned long long>(count));
  }
  if (count > std::numeric_limits<int32_t>::max()) {
    return error(Code::kInvalidArgument,
                 "lmn_request_options.%s has %llu elements; 2147483647 at most", field,
                 static_cast<unsigned long long>(count));
  }
  return {};
}

Result<std::vector<int32_t>> read_prompt(const BuiltEngine& engine,
                                         const lmn_request_options& given) {
  if ((given.prompt == nullptr) == (given.prompt_ids == nullptr)) {
    return error(Code::kInvalidArgument, "give either lmn_request_options.prompt or prompt_ids; %s",
                 given.prompt == nullptr ? "both are NULL" : "both are set");
  }
  if (given.prompt_ids != nullptr) {
    LMN_RETURN_IF_ERROR(check_array(given.prompt_ids, given.prompt_id_count, "prompt_ids"));
    return std::vector<int32_t>(given.prompt_ids, given.prompt_ids + given.prompt_id_count);
  }
  if (engine.tokenizer == nullptr) return engine.tokenizer_error;
  text::EncodeOptions how;
  how.parse_special = (given.flags & LMN_REQUEST_PARSE_SPECIAL) != 0;
  LMN_ASSIGN_OR_RETURN(how.add_bos, tri_state(given.add_bos, "lmn_request_options.add_bos"));
  how.add_eos = false;
  const std::string_view text(given.prompt, static_cast<size_t>(given.prompt_bytes));
  Result<std::vector<int32_t>> ids = engine.tokenizer->encode(text, how);
  if (!ids.ok()) return std::move(ids).status().with_context("lmn_request_options.prompt");
  return ids;
}

// [low, high], which NaN is not in.
Status check_range(float value, float low, float high, const char* field) {
  if (value >= low && value <= high) return {};
  return error(Code::kInvalidArgument, "lmn_request_options.%s is %g; it is %g to %g", field,
               static_cast<double>(value), static_cast<double>(low), static_cast<double>(high));
}

// The ranges that engine.h promises. 0 in a field whose neutral value is 1 means 1.
Result<engine::SamplingParams> read_sampling(const lmn_request_options& given) {
  constexpr float kMax = std::numeric_limits<float>::max();
  LMN_RETURN_IF_ERROR(check_range(given.temperature, 0, 100, "temperature"));
  LMN_RETURN_IF_ERROR(check_range(given.top_p, 0, 1, "top_p"));
  LMN_RETURN_IF_ERROR(check_range(given.min_p, 0, 1, "min_p"));
  LMN_RETURN_IF_ERROR(check_range(given.repetition_penalty, 0, kMax, "repetition_penalty"));
  LMN_RETURN_IF_ERROR(check_range(given.presence_penalty, -100, 100, "presence_penalty"));
  LMN_RETURN_IF_ERROR(check_range(given.frequency_penalty, -100, 100, "frequency_penalty"));
  if (given.top_k < 0) {
    return error(Code::kInvalidArgument, "lmn_request_options.top_k is %d; it is 0 (all) or more",
                 given.top_k);
  }
  engine::SamplingParams out;
  out.temperature = given.temperature;
  out.top_k = given.top_k;
  out.top_p = given.top_p == 0 ? 1 : given.top_p;
  out.min_p = given.min_p;
  out.repetition_penalty = given.repetition_penalty == 0 ? 1 : given.repetition_penalty;
  out.presence_penalty = given.presence_penalty;
  out.frequency_penalty = given.frequency_penalty;
  out.penalty_last_n = static_cast<int32_t>(std::min<uint32_t>(given.penalty_last_n, INT32_MAX));
  if ((given.flags & LMN_REQUEST_SEED) != 0) {
    out.seed = given.seed;
  } else if (given.seed != 0) {
    return error(Code::kInvalidArgument,
                 "lmn_request_options.seed is set without LMN_REQUEST_SEED in flags");
  }
  if (given.top_logprobs > static_cast<uint32_t>(engine::kMaxTopLogprobs)) {
    return error(Code::kInvalidArgument, "lmn_request_options.top_logprobs is %u; it is 0 to %d",
                 given.top_logprobs, engine::kMaxTopLogprobs);
  }
  if ((given.flags & LMN_REQUEST_LOGPROBS) != 0 || given.top_logprobs > 0) {
    out.logprobs = static_cast<int32_t>(given.top_logprobs);
  }
  LMN_RETURN_IF_ERROR(check_array(given.logit_bias, given.logit_bias_count, "logit_bias"));
  for (uint64_t i = 0; i < given.logit_bias_count; ++i) {
    out.logit_bias.push_back({given.logit_bias[i].id, given.logit_bias[i].bias});
  }
  return out;
}

Status read_stops(const lmn_request_options& given, engine::RequestOptions* out) {
  LMN_RETURN_IF_ERROR(check_array(given.stop, given.stop_count, "stop"));
  LMN_RETURN_IF_ERROR(
      check_array(given.stop_token_ids, given.stop_token_id_count, "stop_token_ids"));
  for (uint64_t i = 0; i < given.stop_count; ++i) {
    if (given.stop[i].data == nullptr || given.stop[i].bytes == 0) {
      return error(Code::kInvalidArgument, "lmn_request_options.stop[%llu] is empty",
                   static_cast<unsigned long long>(i));
    }
    out->stop.emplace_back(given.stop[i].data, static_cast<size_t>(given.stop[i].bytes));
  }
  out->stop_token_ids.assign(given.stop_token_ids,
                             given.stop_token_ids + given.stop_token_id_count);
  return {};
}

// Memory for the logits of every sample, where the caller wants them: [n, max_tokens, vocab].
Status allocate_logits(const BuiltEngine& engine, engine::RequestOptions* options,
                       lmn_request* request) {
  const int64_t limit = engine.object->answer_limit(options->max_tokens,
                                                    static_cast<int64_t>(options->prompt.size()));
  // 0: the engine refuses the prompt.
  options->max_tokens = static_cast<int32_t>(std::max<int64_t>(limit, 0));
  if (options->max_tokens == 0) return {};
  const int64_t rows = int64_t{options->samples} * options->max_tokens;
  const int64_t bytes = rows * engine.object->vocab_size() * int64_t{sizeof(float)};
  LMN_RETURN_IF_ERROR(check_fits(bytes, "the logits of a request (LMN_REQUEST_LOGITS)",
                                 "set a lower max_tokens, or a lower n"));
  LMN_ASSIGN_OR_RETURN(request->logits,
                       allocate_zeroed(static_cast<size_t>(bytes), "logits of a request"));
  request->ledger = engine.ledger;
  request->booked = memory::LedgerEntry(engine.ledger.get(), memory::Owner::kRequests, bytes);
  options->logits = reinterpret_cast<float*>(request->logits.get());
  options->logits_rows = options->max_tokens;
  return {};
}

// From the engine to the caller. The handle may be gone when the caller's function returns. What
// that throws, the engine ignores.
void call_back(void* user) {
  auto* request = static_cast<lmn_request*>(user);
  request->callback(request->callback_user, request);
}

// The handle where the caller looks for it, before the first callback; gone again when the scope is
// left by a failure.
class Placed {
 public:
  Placed(lmn_request** out, lmn_request* request)
      : out_(out), before_(std::exchange(*out, request)) {}
  ~Placed() {
    if (out_ != nullptr) *out_ = before_;
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  void keep() { out_ = nullptr; }

 private:
  lmn_request** out_;
  lmn_request* before_;
};

Result<int32_t> read_samples(const lmn_request_options& given) {
  if (given.n <= static_cast<uint32_t>(engine::kMaxSamples))
    return static_cast<int32_t>(std::max(given.n, 1u));
  return error(Code::kInvalidArgument, "lmn_request_options.n is %u; it is 1 to %d, or 0 for 1",
               given.n, engine::kMaxSamples);
}

}  // namespace

Status submit(const lmn_engine& handle, const lmn_request_options& given, lmn_request** out) {
  const BuiltEngine& engine = handle.built;
  LMN_RETURN_IF_ERROR(check_flags(given.flags, kKnownFlags, "lmn_request_options.flags"));
  LMN_RETURN_IF_ERROR(check_reserved(given.reserved, "lmn_request_options.reserved"));
  constexpr uint32_t kMax = std::numeric_limits<int32_t>::max();
  engine::RequestOptions options;
  LMN_ASSIGN_OR_RETURN(options.samples, read_samples(given));
  LMN_ASSIGN_OR_RETURN(options.sampling, read_sampling(given));
  LMN_RETURN_IF_ERROR(read_stops(given, &options));
  LMN_ASSIGN_OR_RETURN(options.prompt, read_prompt(engine, given));
  options.max_tokens = static_cast<int32_t>(std::min(given.max_tokens, kMax));
  options.priority = given.priority;
  options.tenant = given.tenant;
  options.ignore_eos = (given.flags & LMN_REQUEST_IGNORE_EOS) != 0;
  options.skip_special = (given.flags & LMN_REQUEST_KEEP_SPECIAL) == 0;
  options.text = engine.tokenizer != nullptr;
  const auto time = [](uint64_t ns) {
    return static_cast<int64_t>(std::min<uint64_t>(ns, std::numeric_limits<int64_t>::max()));
  };
  options.deadline_ns = time(given.deadline_ns);
  options.token_interval_ns = time(given.token_interval_ns);
  if ((given.flags & LMN_REQUEST_NOTIFY) != 0) options.news = handle.news;
  if (options.news != nullptr && given.callback != nullptr) {
    return error(Code::kInvalidArgument,
                 "lmn_request_options.callback is set together with LMN_REQUEST_NOTIFY; news goes "
                 "to one of them");
  }
  options.tag = given.tag;

  auto request = std::make_unique<lmn_request>(handle.process);
  request->tag = given.tag;
  request->top_logprobs = std::max(options.sampling.logprobs, 0);
  if (given.callback != nullptr) {
    request->callback = given.callback;
    request->callback_user = given.callback_user;
    options.callback = call_back;
    options.callback_user = request.get();
  }
  if ((given.flags & LMN_REQUEST_LOGITS) != 0) {
    LMN_RETURN_IF_ERROR(allocate_logits(engine, &options, request.get()));
  }
  Placed placed(out, request.get());
  LMN_RETURN_IF_ERROR(engine.object->submit(std::move(options), &request->object));
  placed.keep();
  (void)request.release();  // the caller's, which may have destroyed it in a callback by now
  return {};
}

}  // namespace lmn::capi
