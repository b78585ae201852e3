// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/engine.h that take an lmn_engine.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "capi/available_memory.h"
#include "capi/engine_handle.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/progress.h"
#include "capi/tensor.h"
#include "capi/tri_state.h"

namespace lmn::capi {
namespace {

// Above `most`: names the field, the value and the range.
Status check_most(uint64_t value, uint64_t most, const char* field) {
  if (value <= most) return {};
  return error(Code::kInvalidArgument, "lmn_engine_options.%s is %llu; it is 0 to %llu", field,
               static_cast<unsigned long long>(value), static_cast<unsigned long long>(most));
}

Result<DType> kv_type(uint32_t given) {
  switch (given) {
    case 0:
    case LMN_KV_F16:
      return DType::kF16;
    case LMN_KV_F32:
      return DType::kF32;
    case LMN_KV_Q8_0:
      return DType::kQ8_0;
    default:
      return error(Code::kInvalidArgument,
                   "lmn_engine_options.kv_type is %u; it is LMN_KV_F16 (1, as is 0), LMN_KV_F32 "
                   "(2) or LMN_KV_Q8_0 (3)",
                   given);
  }
}

Result<BuildOptions> read_engine_options(const lmn_engine_options& given) {
  constexpr uint64_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr uint64_t kMax64 = std::numeric_limits<int64_t>::max();
  LMN_RETURN_IF_ERROR(check_flags(given.flags, LMN_ENGINE_PROFILE, "lmn_engine_options.flags"));
  if (given.threads < 0 || given.threads > 1024) {
    return error(Code::kInvalidArgument,
                 "lmn_engine_options.threads is %d; it is 1 to 1024, or 0 for the default",
                 given.threads);
  }
  const std::tuple<uint64_t, uint64_t, const char*> fields[] = {
      {given.context_tokens, kMax32, "context_tokens"},
      {given.kv_tokens, kMax32, "kv_tokens"},
      {given.prefill_chunk_tokens, kMaxPrefillChunk, "prefill_chunk_tokens"},
      {given.queue_capacity, engine::kMaxQueueCapacity, "queue_capacity"},
      {given.max_sequences, kMaxSequences, "max_sequences"},
      {given.queue_tokens, kMax64, "queue_tokens"},
      {given.queue_bytes, kMax64, "queue_bytes"},
      {given.inter_token_target_ns, kMax64, "inter_token_target_ns"},
      {given.trace_events, uint64_t{1} << 24, "trace_events"},
  };
  for (const auto& [value, most, field] : fields) {
    LMN_RETURN_IF_ERROR(check_most(value, most, field));
  }
  if (given.activation_bits != 0 && given.activation_bits != 8 && given.activation_bits != 16) {
    return error(Code::kInvalidArgument,
                 "lmn_engine_options.activation_bits is %u; it is 8 or 16, or 0 for the default",
                 given.activation_bits);
  }
  BuildOptions out;
  out.threads = given.threads;
  if (given.device != nullptr) out.device = given.device;
  out.activation_bits = static_cast<int32_t>(given.activation_bits);
  out.context_tokens = static_cast<int32_t>(given.context_tokens);
  out.max_sequences = static_cast<int32_t>(given.max_sequences);
  out.prefill_chunk_tokens = static_cast<int32_t>(given.prefill_chunk_tokens);
  engine::EngineOptions& engine = out.engine;
  engine.kv_tokens = given.kv_tokens;
  engine.queue_capacity = static_cast<int32_t>(given.queue_capacity);
  engine.queue_tokens = static_cast<int64_t>(given.queue_tokens);
  engine.queue_bytes = static_cast<int64_t>(given.queue_bytes);
  LMN_ASSIGN_OR_RETURN(const std::optional<bool> prefix_cache,
                       tri_state(given.prefix_cache, "lmn_engine_options.prefix_cache"));
  engine.prefix_cache = prefix_cache.value_or(true);
  engine.inter_token_target_ns = static_cast<int64_t>(given.inter_token_target_ns);
  engine.idle_spin_ns = given.idle_spin_ns;
  engine.trace_events = static_cast<int32_t>(given.trace_events);
  engine.profile = (given.flags & LMN_ENGINE_PROFILE) != 0;
  LMN_ASSIGN_OR_RETURN(engine.kv_dtype, kv_type(given.kv_type));
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
    std::shared_ptr<engine::Request> request;
    LMN_RETURN_IF_ERROR(engine.object->submit(std::move(options), &request));
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

static_assert(LMN_HISTOGRAM_BUCKETS == engine::kHistogramBuckets);

lmn_histogram to_c(const engine::HistogramSnapshot& from) {
  lmn_histogram out{};
  out.name = from.name;
  out.count = u64(from.count);
  out.sum_ns = u64(from.sum_ns);
  out.max_ns = u64(from.max_ns);
  out.p50_ns = u64(from.percentile(0.50));
  out.p90_ns = u64(from.percentile(0.90));
  out.p99_ns = u64(from.percentile(0.99));
  std::transform(from.buckets.begin(), from.buckets.end(), out.buckets, u64);
  return out;
}

lmn_trace_event to_c(const engine::TraceEvent& from) {
  return {from.name,    u64(from.begin_ns), u64(from.end_ns),
          from.request, u32(from.tokens),   u32(from.sequences)};
}

static_assert(LMN_STEP_DECODE == static_cast<int>(engine::StepKind::kDecode));
static_assert(LMN_STEP_PREFILL == static_cast<int>(engine::StepKind::kPrefill));

Result<std::vector<lmn_profile_entry>> profile_of(const engine::Engine& engine) {
  std::vector<lmn_profile_entry> out;
  for (const uint32_t kind : {LMN_STEP_DECODE, LMN_STEP_PREFILL}) {
    LMN_ASSIGN_OR_RETURN(const std::vector<plan::ProfileEntry> entries,
                         engine.profile(static_cast<engine::StepKind>(kind)));
    for (const plan::ProfileEntry& from : entries) {
      out.push_back({from.op.data(), from.name.data(), kind, 0, u64(from.calls), u64(from.run_ns),
                     u64(from.wait_ns), u64(from.bytes), u64(from.operations)});
    }
  }
  return out;
}

// Through a block on the stack: the engine writes its own struct.
Status take_trace(engine::Engine& engine, std::span<lmn_trace_event> events, size_t* count,
                  uint64_t* lost) {
  constexpr size_t kBlock = 64;
  engine::TraceEvent block[kBlock];
  size_t taken = 0;
  while (true) {
    const size_t wanted = std::min(kBlock, events.size() - taken);
    LMN_ASSIGN_OR_RETURN(const size_t got, engine.trace(std::span(block, wanted), lost));
    std::transform(block, block + got, events.begin() + static_cast<ptrdiff_t>(taken),
                   [](const engine::TraceEvent& event) { return to_c(event); });
    taken += got;
    if (got == 0 || got < kBlock || taken == events.size()) break;
  }
  *count = taken;
  return {};
}

}  // namespace

Result<std::unique_ptr<lmn_engine>> share_engine(const lmn_engine& engine) {
  LMN_RETURN_IF_ERROR(engine.process.check("engine"));
  auto handle = std::make_unique<lmn_engine>();
  LMN_ASSIGN_OR_RETURN(handle->news, engine::NewsQueue::create());
  handle->built = engine.built;
  return handle;
}

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
    LMN_ASSIGN_OR_RETURN(handle->news, engine::NewsQueue::create());
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
    return submit(*engine, given, request);
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
    out.layers = u32(engine->built.layers);
    out.submitted = u64(now.submitted);
    out.finished = u64(now.finished);
    out.cancelled = u64(now.cancelled);
    out.failed = u64(now.failed);
    const auto rejected = [&](engine::RejectReason reason) {
      return u64(now.rejected[static_cast<size_t>(reason)]);
    };
    out.rejected = u64(std::accumulate(now.rejected.begin(), now.rejected.end(), int64_t{0}));
    out.prompt_tokens = u64(now.prompt_tokens);
    out.generated_tokens = u64(now.generated_tokens);
    out.steps = u64(now.steps);
    out.load_ns = u64(engine->built.load_ns);
    out.max_sequences = u32(engine->built.max_sequences);
    out.device_layers = u32(engine->built.device_layers);
    out.kv_pages_cached = u64(now.kv_pages_cached);
    out.queue_tokens = u64(now.queue_tokens);
    out.queue_bytes = u64(now.queue_bytes);
    out.prefix_lookup_tokens = u64(now.prefix_lookup_tokens);
    out.prefix_hit_tokens = u64(now.prefix_hit_tokens);
    out.preemptions = u64(now.preemptions);
    out.rejected_queue = rejected(engine::RejectReason::kQueue);
    out.rejected_tokens = rejected(engine::RejectReason::kTokens);
    out.rejected_bytes = rejected(engine::RejectReason::kBytes);
    out.rejected_memory = rejected(engine::RejectReason::kMemory);
    out.rejected_invalid = rejected(engine::RejectReason::kInvalid);
    out.rejected_closed = rejected(engine::RejectReason::kClosed);
    write_output(out, stats);
    return {};
  });
}

lmn_status lmn_engine_descriptor_get(const lmn_engine* engine, int32_t* descriptor,
                                     lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_REQUIRE_ONE(descriptor);
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    *descriptor = engine->news->descriptor();
    return {};
  });
}

lmn_status lmn_engine_drain(lmn_engine* engine, uint64_t* tags, size_t capacity, size_t* count,
                            lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(check_buffer(tags, capacity, "tags", count, "count"));
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    LMN_ASSIGN_OR_RETURN(*count, engine->news->drain(std::span(tags, capacity)));
    return {};
  });
}

lmn_status lmn_engine_histogram_get(const lmn_engine* engine, lmn_histogram* histograms,
                                    size_t capacity, size_t* count, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(check_buffer(histograms, capacity, "histograms", count, "count"));
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    const std::vector<engine::HistogramSnapshot> snapshots = engine->built.object->histograms();
    return write_items(histograms, capacity, snapshots.size(), count, [&](lmn_histogram* out) {
      std::transform(snapshots.begin(), snapshots.end(), out,
                     [](const engine::HistogramSnapshot& from) { return to_c(from); });
    });
  });
}

lmn_status lmn_engine_trace_get(lmn_engine* engine, lmn_trace_event* events, size_t capacity,
                                size_t* count, uint64_t* lost, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(check_buffer(events, capacity, "events", count, "count"));
    LMN_REQUIRE_ONE(lost);
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    return take_trace(*engine->built.object, std::span(events, capacity), count, lost);
  });
}

lmn_status lmn_engine_profile_get(const lmn_engine* engine, lmn_profile_entry* entries,
                                  size_t capacity, size_t* count, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(check_buffer(entries, capacity, "entries", count, "count"));
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    LMN_ASSIGN_OR_RETURN(const std::vector<lmn_profile_entry> profile,
                         profile_of(*engine->built.object));
    return write_items(entries, capacity, profile.size(), count, [&](lmn_profile_entry* out) {
      std::copy(profile.begin(), profile.end(), out);
    });
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
