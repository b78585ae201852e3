// SPDX-License-Identifier: Apache-2.0
//
// Engine: one model, one thread that runs it, any number of requests. The engine thread is member 0
// of the thread team; it alone mutates engine state, never runs caller code and never waits for a
// client. README.md is the contract.
//
// It must not know: files, architectures, kernels. It gets a StepRunner and a tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "engine/histogram.h"
#include "engine/kv_cache.h"
#include "engine/request.h"
#include "engine/step_runner.h"
#include "engine/trace.h"
#include "memory/ledger.h"
#include "parallel/thread_team.h"
#include "text/tokenizer.h"

namespace lmn::engine {

struct EngineParts {
  std::shared_ptr<void> keep_alive;  // what the rest points into (the model); released last
  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<parallel::ThreadTeam> team;
  // Where the KV caches of the layers are allocated: the devices are kept alive by keep_alive.
  std::vector<KvPart> kv_parts;
  const text::Tokenizer* tokenizer = nullptr;  // null: token ids only
  std::shared_ptr<memory::Ledger> ledger;      // null: the engine makes its own
};

struct EngineOptions {
  // Prompt and generated tokens of one request at most. Needed.
  int32_t context_tokens = 0;
  // Capacity of the KV cache, rounded up to pages. 0: context_tokens.
  int64_t kv_tokens = 0;
  // kF16 or kF32.
  DType kv_dtype = DType::kF16;
  // Sequences that run at once; a step takes as many of them as the runner does, in turn. 0: as
  // many as a step.
  int32_t max_sequences = 0;
  // Prompt tokens in one step at most. 0: as many as the runner takes.
  int32_t prefill_chunk_tokens = 0;
  // Requests submitted and not yet running at most, up to kMaxQueueCapacity. 0:
  // kDefaultQueueCapacity.
  int32_t queue_capacity = 0;
  // Prompt tokens that may wait, all requests together. 0: no bound.
  int64_t queue_tokens = 0;
  // Bytes of live requests' buffers, logits not counted. 0: kDefaultQueueBytes.
  int64_t queue_bytes = 0;
  // Prompts whose beginning was computed before start behind it.
  bool prefix_cache = true;
  // While answers are being generated, prompts are computed in chunks that keep a step below this.
  // 0: below twice what a step takes without, or more when prompts are more (pacer.h).
  int64_t inter_token_target_ns = 0;
  // How long the idle engine thread spins before it parks. 0: kDefaultIdleSpinNs; negative: parks
  // at once.
  int64_t idle_spin_ns = 0;
  // A request has waited long enough when it has waited so long for each level between its own and
  // the highest that waits (waiting_queue.h). 0: kDefaultAgeingNs.
  int64_t ageing_ns = 0;
  // Spans that wait to be read by trace(). 0: none are kept.
  int32_t trace_events = 0;
  // Profiles of the parts of steps are kept, for profile(). Costs a step of a plan about a
  // hundredth.
  bool profile = false;
};

inline constexpr int32_t kDefaultQueueCapacity = 1024;
inline constexpr int32_t kMaxQueueCapacity = 1 << 20;
inline constexpr int64_t kDefaultQueueBytes = int64_t{1} << 30;
// Long enough to catch the next request of a caller that just got an answer; 5 % of a core at most
// if that repeats each ms.
inline constexpr int64_t kDefaultIdleSpinNs = 50'000;

// Why a request was refused at submit.
enum class RejectReason : uint8_t { kQueue, kTokens, kBytes, kMemory, kInvalid, kClosed };
inline constexpr int kRejectReasons = 6;

// Counts requests; `waiting` and `running` count sequences, of which a request has as many as
// samples.
struct EngineStats {
  int64_t queue_depth = 0;  // submitted, in the ring
  int64_t waiting = 0;      // seen by the engine thread: not started yet, or preempted
  int64_t running = 0;
  int64_t queue_tokens = 0;
  int64_t queue_bytes = 0;
  int64_t kv_pages_total = 0;
  int64_t kv_pages_used = 0;
  int64_t kv_pages_cached = 0;  // by the prefix cache alone: free to whoever needs them
  int64_t kv_page_tokens = 0;
  // Since creation.
  int64_t submitted = 0;
  std::array<int64_t, kRejectReasons> rejected{};  // by RejectReason
  int64_t prefix_lookup_tokens = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t preemptions = 0;
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed
  int64_t generated_tokens = 0;
};

class Engine {
 public:
  // Allocates the KV cache and starts the engine thread. INVALID_ARGUMENT names an option;
  // OUT_OF_MEMORY the size.
  static Result<std::unique_ptr<Engine>> create(EngineParts parts, const EngineOptions& options);
  ~Engine();  // shutdown()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. INVALID_ARGUMENT, OUT_OF_MEMORY (more KV than there is), QUEUE_FULL or CLOSED, each
  // with its figures. *request is set before the engine sees the request, hence before its first
  // callback, which may drop it; on failure it is null.
  Status submit(RequestOptions&& options, std::shared_ptr<Request>* request);

  // Cancels every request and joins the engine's threads. Any thread but one that is in a callback,
  // any number of times; submit then gives CLOSED.
  void shutdown();

  EngineStats stats() const;  // any thread; each figure is exact, the set is not one moment
  std::vector<HistogramSnapshot> histograms() const;  // any thread
  // Takes spans out, oldest first; returns their number, and of all that found no room in *lost.
  // One thread at a time. UNSUPPORTED when trace_events is 0.
  Result<size_t> trace(std::span<TraceEvent> events, uint64_t* lost);
  // Where the time of steps of this kind went since creation: the runner's parts, then the
  // engine's: "engine" "schedule", "prepare", "run", "sample", "deliver", of which "run" holds all
  // of the runner. Names live as long as the engine. Any thread; each figure is exact, the set is
  // not one moment. UNSUPPORTED when EngineOptions::profile is off.
  Result<std::vector<plan::ProfileEntry>> profile(StepKind kind) const;
  memory::Ledger::Snapshot memory() const;
  int32_t context_tokens() const;
  // Tokens that the answer to a prompt of so many may have at most, `asked` being its max_tokens:
  // what logits_rows must be for that. 0 or less where submit would refuse it.
  int64_t answer_limit(int64_t asked, int64_t prompt_tokens) const;
  int32_t vocab_size() const;
  int threads() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmn::engine
