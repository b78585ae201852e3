// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/engine.h that take an lmn_engine.
#include <algorithm>
#include <limits>

#include "capi/available_memory.h"
#include "capi/engine_handle.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/progress.h"
#include "capi/tensor.h"

namespace lmn::capi {
namespace {

Result<BuildOptions> read_engine_options(const lmn_engine_options& given) {
  constexpr uint32_t kMax = std::numeric_limits<int32_t>::max();
  LMN_RETURN_IF_ERROR(check_flags(given.flags, 0, "lmn_engine_options.flags"));
  LMN_RETURN_IF_ERROR(check_reserved(given.reserved, "lmn_engine_options.reserved"));
  if (given.threads < 0 || given.threads > 1024) {
    return error(Code::kInvalidArgument,
                 "lmn_engine_options.threads is %d; it is 1 to 1024, or 0 for the default",
                 given.threads);
  }
  if (given.prefill_chunk_tokens > static_cast<uint32_t>(kMaxPrefillChunk)) {
    return error(Code::kInvalidArgument,
                 "lmn_engine_options.prefill_chunk_tokens is %u; it is 1 to %d, or 0 for %d",
                 given.prefill_chunk_tokens, kMaxPrefillChunk, kDefaultPrefillChunk);
  }
  const std::pair<uint32_t, const char*> counts[] = {{given.context_tokens, "context_tokens"},
                                                     {given.kv_tokens, "kv_tokens"},
                                                     {given.queue_capacity, "queue_capacity"}};
  for (const auto& [value, field] : counts) {
    if (value > kMax) {
      return error(Code::kInvalidArgument, "lmn_engine_options.%s is %u; it is %u at most", field,
                   value, kMax);
    }
  }
  BuildOptions out;
  out.threads = given.threads;
  out.context_tokens = static_cast<int32_t>(given.context_tokens);
  out.kv_tokens = given.kv_tokens;
  out.prefill_chunk_tokens = static_cast<int32_t>(given.prefill_chunk_tokens);
  out.queue_capacity = static_cast<int32_t>(given.queue_capacity);
  return out;
}

uint64_t u64(int64_t value) { return static_cast<uint64_t>(value); }
uint32_t u32(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<uint32_t>::max()));
}

// How often a score asks its progress callback: below what a person notices, and rare enough to
// cost nothing.
constexpr int64_t kScoreSliceNs = 50'000'000;

// Waits for the end of a score, which `progress` may bring forward; then the engine has let go of
// it within one step.
Status wait_for_score(engine::Request& request, Progress& progress) {
  if (!progress) return request.wait(-1);
  while (true) {
    const Status status = request.wait(kScoreSliceNs);
    const engine::RequestStats stats = request.stats();
    const bool ended = status.code() != Code::kTimeout;
    if (ended && !status.ok()) return status;
    const bool go_on = progress.step("scoring", static_cast<uint64_t>(stats.prefilled_tokens),
                                     static_cast<uint64_t>(stats.prompt_tokens));
    if (ended) return {};
    if (go_on) continue;
    request.cancel();
    return request.wait(-1);
  }
}

Outcome score(const BuiltEngine& engine, const DLManagedTensorVersioned& ids,
              const lmn_score_options& given, DLManagedTensorVersioned** logits) {
  engine::RequestOptions options;
  options.kind = engine::RequestKind::kScore;
  options.text = false;
  options.prefill_chunk_tokens =
      static_cast<int32_t>(std::min<uint32_t>(given.chunk_tokens, INT32_MAX));
  LMN_ASSIGN_OR_RETURN(options.prompt, read_ids(ids, "ids"));
  const int64_t shape[] = {static_cast<int64_t>(options.prompt.size()),
                           engine.object->vocab_size()};
  const size_t bytes =
      static_cast<size_t>(shape[0]) * static_cast<size_t>(shape[1]) * sizeof(float);
  if (shape[0] <= engine.object->context_tokens()) {  // else the engine refuses it
    LMN_RETURN_IF_ERROR(check_fits(static_cast<int64_t>(bytes), "the logits of lmn_engine_score",
                                   "score fewer tokens at once"));
  }
  LMN_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> memory,
                       allocate_zeroed(bytes, "logits of lmn_engine_score"));
  const memory::LedgerEntry booked(engine.ledger.get(), memory::Owner::kRequests,
                                   static_cast<int64_t>(bytes));
  Progress progress(given.progress, given.progress_user);
  options.logits = reinterpret_cast<float*>(memory.get());
  options.logits_rows = shape[0];
  {
    // Dropped before the memory is handed out or released: the engine has then let go of it.
    LMN_ASSIGN_OR_RETURN(const std::shared_ptr<engine::Request> request,
                         engine.object->submit(std::move(options)));
    LMN_RETURN_IF_ERROR(wait_for_score(*request, progress));
    if (progress.stopped())
      return error(Code::kCancelled, "lmn_engine_score was stopped by its progress callback");
    if (request->stats().finish_reason == engine::FinishReason::kCancelled) {
      return error(Code::kCancelled, "the engine was destroyed while it scored");
    }
  }
  std::byte* data = memory.get();
  *logits = make_tensor({{kDLFloat, 32, 1}, shape}, data, std::move(memory));
  return {};
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_engine_create(const lmn_model* model, const lmn_engine_options* options,
                             lmn_engine** engine, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_REQUIRE_ONE(engine);
    lmn_engine_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_engine_options", &given));
    LMN_ASSIGN_OR_RETURN(const BuildOptions build, read_engine_options(given));
    Progress progress(given.progress, given.progress_user);
    auto handle = std::make_unique<lmn_engine>();
    LMN_ASSIGN_OR_RETURN(handle->built, build_engine(model->object, build, progress));
    *engine = handle.release();
    return {};
  });
}

void lmn_engine_destroy(lmn_engine* engine) {
  guard_destroy([&] { delete engine; });
}

lmn_status lmn_engine_submit(lmn_engine* engine, const lmn_request_options* options,
                             lmn_request** request, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_REQUIRE_ONE(options);
    LMN_REQUIRE_ONE(request);
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    lmn_request_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_request_options", &given));
    LMN_ASSIGN_OR_RETURN(std::unique_ptr<lmn_request> handle, submit(engine->built, given));
    *request = handle.release();
    return {};
  });
}

lmn_status lmn_engine_score(lmn_engine* engine, const DLManagedTensorVersioned* ids,
                            const lmn_score_options* options, DLManagedTensorVersioned** logits,
                            lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_REQUIRE_ONE(ids);
    LMN_REQUIRE_ONE(logits);
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    lmn_score_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_score_options", &given));
    return score(engine->built, *ids, given, logits);
  });
}

lmn_status lmn_engine_stats_get(const lmn_engine* engine, lmn_engine_stats* stats,
                                lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(check_output(stats, "stats", "lmn_engine_stats"));
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    const engine::Engine& object = *engine->built.object;
    const engine::EngineStats now = object.stats();
    lmn_engine_stats out{};
    out.threads = u32(object.threads());
    out.context_tokens = u32(object.context_tokens());
    out.queue_capacity = u32(engine->built.queue_capacity);
    out.waiting = u32(now.queue_depth + now.waiting);
    out.running = u32(now.running);
    out.kv_pages = u64(now.kv_pages_total);
    out.kv_pages_used = u64(now.kv_pages_used);
    out.kv_page_tokens = u32(now.kv_page_tokens);
    out.submitted = u64(now.submitted);
    out.finished = u64(now.finished);
    out.cancelled = u64(now.cancelled);
    out.failed = u64(now.failed);
    out.rejected = u64(now.rejected);
    out.prompt_tokens = u64(now.prompt_tokens);
    out.generated_tokens = u64(now.generated_tokens);
    out.steps = u64(now.steps);
    out.load_ns = u64(engine->built.load_ns);
    write_output(out, stats);
    return {};
  });
}

lmn_status lmn_engine_memory_get(const lmn_engine* engine, lmn_memory_entry* entries,
                                 size_t capacity, size_t* count, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(check_buffer(entries, capacity, "entries", count, "count"));
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    const memory::Ledger::Snapshot snapshot = engine->built.object->memory();
    const auto entry = [](std::string_view owner, const memory::Ledger::Entry& from) {
      return lmn_memory_entry{owner.data(), u64(from.current), u64(from.peak)};
    };
    return write_items(
        entries, capacity, memory::kOwnerCount + size_t{1}, count, [&](lmn_memory_entry* out) {
          for (int i = 0; i < memory::kOwnerCount; ++i) {
            out[i] = entry(memory::kOwnerNames[i], snapshot.owners[static_cast<size_t>(i)]);
          }
          out[memory::kOwnerCount] = entry("total", snapshot.total);
        });
  });
}

}  // extern "C"
