// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/engine.h that take an lmn_request.
#include "capi/engine_handle.h"
#include "capi/options.h"

namespace lmn::capi {
namespace {

uint32_t finish_reason(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      return LMN_FINISH_NONE;
    case engine::FinishReason::kEos:
    case engine::FinishReason::kStopToken:
    case engine::FinishReason::kStopString:
      return LMN_FINISH_STOP;
    case engine::FinishReason::kLength:
      return LMN_FINISH_LENGTH;
    case engine::FinishReason::kCancelled:
      return LMN_FINISH_CANCELLED;
    case engine::FinishReason::kError:
      return LMN_FINISH_ERROR;
    case engine::FinishReason::kDeadline:
      return LMN_FINISH_DEADLINE;
  }
  return LMN_FINISH_ERROR;
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_request_next(lmn_request* request, int64_t timeout_ns, lmn_chunk* chunk,
                            lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(request);
    LMN_RETURN_IF_ERROR(check_output(chunk, "chunk", "lmn_chunk"));
    LMN_RETURN_IF_ERROR(request->process.check("request"));
    engine::Chunk news;
    Status failure;
    switch (request->object->take(timeout_ns, &news, &failure)) {
      case engine::News::kChunk:
        break;
      case engine::News::kNothing:
        return Outcome::answer(Code::kTimeout, kNoNews);
      case engine::News::kEnd:
        return Outcome::answer(Code::kClosed, kNoMoreNews);
      case engine::News::kFailure:
        return failure;
    }
    lmn_chunk out{};
    out.finish_reason = finish_reason(news.finish_reason);
    out.token_ids = news.token_ids.data();
    out.token_count = news.token_ids.size();
    out.text = news.text.empty() ? "" : news.text.data();
    out.text_bytes = news.text.size();
    if (!news.logprobs.empty()) out.logprobs = news.logprobs.data();
    if (!news.top_ids.empty()) {
      out.top_ids = news.top_ids.data();
      out.top_logprobs = news.top_logprobs.data();
      out.top_logprob_count = static_cast<uint32_t>(request->top_logprobs);
    }
    out.logits = news.token_ids.empty() ? nullptr : news.logits;
    out.sample = static_cast<uint32_t>(news.sample);
    write_output(out, chunk);
    return {};
  });
}

lmn_status lmn_request_wait(lmn_request* request, int64_t timeout_ns, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(request);
    LMN_RETURN_IF_ERROR(request->process.check("request"));
    return request->object->wait(timeout_ns);
  });
}

lmn_status lmn_request_cancel(lmn_request* request, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(request);
    LMN_RETURN_IF_ERROR(request->process.check("request"));
    request->object->cancel();
    return {};
  });
}

void lmn_request_destroy(lmn_request* request) {
  guard_destroy([&] { delete request; });
}

lmn_status lmn_request_stats_get(const lmn_request* request, lmn_request_stats* stats,
                                 lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(request);
    LMN_RETURN_IF_ERROR(check_output(stats, "stats", "lmn_request_stats"));
    LMN_RETURN_IF_ERROR(request->process.check("request"));
    const engine::RequestStats now = request->object->stats();
    lmn_request_stats out{};
    out.finish_reason = finish_reason(now.finish_reason);
    out.prompt_tokens = static_cast<uint64_t>(now.prompt_tokens);
    out.generated_tokens = static_cast<uint64_t>(now.generated_tokens);
    out.queue_ns = static_cast<uint64_t>(now.queue_ns);
    out.prefill_ns = static_cast<uint64_t>(now.prefill_ns);
    out.decode_ns = static_cast<uint64_t>(now.decode_ns);
    out.seed = now.seed;
    out.tag = request->tag;
    out.cached_tokens = static_cast<uint64_t>(now.cached_tokens);
    out.preemptions = static_cast<uint32_t>(now.preemptions);
    write_output(out, stats);
    return {};
  });
}

}  // extern "C"
