// SPDX-License-Identifier: Apache-2.0
//
// The client side of an engine: create, submit, shutdown, figures.
#include "engine/engine.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/check.h"
#include "engine/engine_impl.h"
#include "engine/philox.h"
#include "parallel/cpu_topology.h"

namespace lmn::engine {
namespace {

Status check_options(const EngineOptions& options, const StepLimits& limits) {
  if (options.context_tokens < 1) {
    return error(Code::kInvalidArgument, "context_tokens is %d; it must be 1 or more",
                 options.context_tokens);
  }
  if (kv_pages(options.context_tokens) > limits.table_stride) {
    return error(
        Code::kInvalidArgument, "context_tokens is %d; the model's step was built for %lld at most",
        options.context_tokens, static_cast<long long>(limits.table_stride) * kKvPageTokens);
  }
  if (options.kv_tokens < 0) {
    return error(Code::kInvalidArgument, "kv_tokens is %lld; it must be 0 (context_tokens) or more",
                 static_cast<long long>(options.kv_tokens));
  }
  if (options.prefill_chunk_tokens < 0 || options.prefill_chunk_tokens > limits.tokens) {
    return error(Code::kInvalidArgument,
                 "prefill_chunk_tokens is %d; it must be in [0, %d], 0 is the most",
                 options.prefill_chunk_tokens, limits.tokens);
  }
  if (options.queue_capacity < 0 || options.queue_capacity > kMaxQueueCapacity) {
    return error(Code::kInvalidArgument, "queue_capacity is %d; it must be in [0, %d], 0 is %d",
                 options.queue_capacity, kMaxQueueCapacity, kDefaultQueueCapacity);
  }
  const std::pair<const char*, int64_t> bounds[] = {
      {"max_sequences", options.max_sequences},
      {"queue_tokens", options.queue_tokens},
      {"queue_bytes", options.queue_bytes},
      {"ageing_ns", options.ageing_ns},
      {"inter_token_target_ns", options.inter_token_target_ns}};
  for (const auto& [name, value] : bounds) {
    if (value >= 0) continue;
    return error(Code::kInvalidArgument, "%s is %lld; it must be 0 or more", name,
                 static_cast<long long>(value));
  }
  if (options.trace_events < 0 || options.trace_events > (1 << 24)) {
    return error(Code::kInvalidArgument, "trace_events is %d; it must be in [0, %d], 0 is no trace",
                 options.trace_events, 1 << 24);
  }
  return {};
}

EngineOptions with_defaults(EngineOptions options, const StepLimits& limits) {
  if (options.kv_tokens == 0) options.kv_tokens = options.context_tokens;
  if (options.max_sequences == 0) options.max_sequences = limits.sequences;
  if (options.prefill_chunk_tokens == 0) options.prefill_chunk_tokens = limits.tokens;
  if (options.queue_capacity == 0) options.queue_capacity = kDefaultQueueCapacity;
  if (options.ageing_ns == 0) options.ageing_ns = kDefaultAgeingNs;
  if (options.queue_bytes == 0) options.queue_bytes = kDefaultQueueBytes;
  if (options.idle_spin_ns == 0) options.idle_spin_ns = kDefaultIdleSpinNs;
  return options;
}

// From the system's entropy; where that is not ready (early boot), from clock, process and id,
// which differ in each request.
uint64_t random_seed(uint64_t id) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(seed)))
    return seed;
  const auto now = static_cast<uint64_t>(parallel::now_ns());
  const auto bits = philox4x32({static_cast<uint32_t>(now), static_cast<uint32_t>(now >> 32),
                                static_cast<uint32_t>(id), static_cast<uint32_t>(getpid())},
                               {0, 0});
  return uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace

Engine::Impl::Impl(EngineParts parts, const EngineOptions& options, const StepLimits& limits,
                   KvCache kv, std::shared_ptr<EngineSignals> signals)
    : parts_(std::move(parts)),
      options_(options),
      has_spare_cpu_(options.idle_spin_ns != kDefaultIdleSpinNs ||
                     parallel::affinity_cpu_count() >= parts_.team->size() + 2),
      limits_(limits),
      admission_{limits.vocab_size, options.context_tokens, kv.pages(), parts_.tokenizer},
      signals_(std::move(signals)),
      ring_(kPriorityLevels, static_cast<size_t>(options.queue_capacity)),
      trace_(options.trace_events),
      trace_ledger_(signals_->ledger.get(), memory::Owner::kTrace, trace_.bytes()),
      kv_(std::move(kv)),
      pages_(kv_.pages(), options.prefix_cache),
      inputs_(parts_.runner->inputs()),
      pacer_(options.inter_token_target_ns),
      waiting_(options.ageing_ns) {
  for (int i = 0; i < parts_.team->size(); ++i)
    samplers_.emplace_back(limits.vocab_size, *signals_->ledger);
  const auto sequences = static_cast<size_t>(limits.sequences);
  const auto running = static_cast<size_t>(options.max_sequences);
  raised_.reserve(running);
  ended_.reserve(running);
  members_.reserve(2 * sequences);
  views_.reserve(2 * sequences);
  step_.reserve(sequences);
  rows_.reserve(sequences + kMaxSamples);
  device_rows_.reserve(sequences + kMaxSamples);
  device_choices_.reserve(sequences + kMaxSamples);
  host_rows_.reserve(static_cast<size_t>(limits.outputs));
  joining_.reserve(kMaxSamples);
}

Engine::Impl::~Impl() { shutdown(); }

Result<std::unique_ptr<Engine>> Engine::create(EngineParts parts, const EngineOptions& given) {
  try {
    return Impl::create(std::move(parts), given);
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory,
                 "no memory for an engine with a queue of %d and %lld KV tokens",
                 given.queue_capacity, static_cast<long long>(given.kv_tokens));
  }
}

Result<std::unique_ptr<Engine>> Engine::Impl::create(EngineParts parts,
                                                     const EngineOptions& given) {
  const StepLimits limits = parts.runner->limits();
  LMN_RETURN_IF_ERROR(check_options(given, limits));
  LMN_RETURN_IF_ERROR(parts.team->check_usable());
  const EngineOptions options = with_defaults(given, limits);
  auto signals = std::make_shared<EngineSignals>();
  signals->ledger = parts.ledger != nullptr ? parts.ledger : std::make_shared<memory::Ledger>();
  LMN_ASSIGN_OR_RETURN(KvCache kv,
                       KvCache::create(parts.kv_parts, parts.runner->kv_shape(), options.kv_dtype,
                                       options.kv_tokens, *signals->ledger));
  LMN_RETURN_IF_ERROR(parts.runner->bind_kv(kv.binding()));
  if (options.profile) parts.runner->keep_profiles();
  auto impl =
      std::make_unique<Impl>(std::move(parts), options, limits, std::move(kv), std::move(signals));
  LMN_ASSIGN_OR_RETURN(impl->thread_,
                       parallel::OsThread::start("lmn-engine", Impl::enter, impl.get()));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  // In a forked child the engine's thread is gone in the middle of whatever it did: nothing of it
  // is safe to take apart.
  if (impl_ != nullptr && !impl_->check_process().ok()) (void)impl_.release();
}

Status Engine::Impl::check_process() const {
  if (signals_->process.is_here()) return {};
  return error(
      Code::kClosed,
      "the engine was created in process %d and its threads do not exist in this forked child; "
      "create an engine after fork",
      static_cast<int>(signals_->process.pid()));
}

Status Engine::Impl::closed_status() const {
  if (broken_.load(std::memory_order_acquire))  // with the release in break_with()
    return error(Code::kClosed, "the engine is closed: %s", broken_status_.message().data());
  return error(Code::kClosed, "the engine is shutting down and takes no requests");
}

Status Engine::Impl::submit(RequestOptions&& options, std::shared_ptr<Request>* request) {
  request->reset();
  LMN_RETURN_IF_ERROR(check_process());
  const size_t prompt_tokens = options.prompt.size();
  RejectReason reason = RejectReason::kMemory;
  Status refused;
  try {
    refused = admit_and_queue(std::move(options), request, &reason);
    if (refused.ok()) {
      counters_.submitted.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
  } catch (const std::bad_alloc&) {
    refused = error(Code::kOutOfMemory,
                    "no memory for the buffers of a request with %zu prompt tokens", prompt_tokens);
  }
  request->reset();
  counters_.rejected[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  return refused;
}

Status Engine::Impl::admit_and_queue(RequestOptions&& options, std::shared_ptr<Request>* request,
                                     RejectReason* reason) {
  Result<Admission> admission = admit(options, admission_);
  if (!admission.ok()) {
    const Code code = admission.status().code();
    *reason = code == Code::kOutOfMemory ? RejectReason::kMemory : RejectReason::kInvalid;
    return std::move(admission).status();
  }
  if (options.callback != nullptr) LMN_RETURN_IF_ERROR(notifier_.start());
  RequestCore::Fixed fixed;
  fixed.id = next_id_.fetch_add(1, std::memory_order_relaxed);
  fixed.prompt_tokens = static_cast<int32_t>(options.prompt.size());
  fixed.max_tokens = admission->max_tokens;
  fixed.vocab_size = limits_.vocab_size;
  fixed.seed =
      options.sampling.seed.value_or(options.sampling.temperature > 0 ? random_seed(fixed.id) : 0);
  fixed.submit_ns = parallel::now_ns();
  fixed.deadline_ns = options.deadline_ns > 0 ? parallel::deadline_after(options.deadline_ns)
                                              : parallel::kNoDeadline;
  fixed.tokenizer = parts_.tokenizer;
  fixed.decode = options.kind == RequestKind::kGenerate && parts_.tokenizer != nullptr &&
                 (options.text || !options.stop.empty());
  fixed.stops = std::move(admission->stops);
  fixed.signals = signals_;
  const int level = priority_level(options.priority);
  fixed.options = std::move(options);
  auto core = std::make_shared<RequestCore>(std::move(fixed));
  LMN_RETURN_IF_ERROR(reserve_queue(*core, reason));
  bool queued = false, closed = false;
  try {
    core->allocate();
    // Now, because nothing may fail once it is queued, and from then on *request is the caller's.
    *request = std::make_shared<Request>(core);

    // Closing: the engine thread sets closed_ and then waits until submitting_ is 0 before it
    // empties the ring for the last time. Both are seq_cst: either this thread sees closed_, or the
    // engine thread sees this one and waits for its push.
    submitting_.fetch_add(1, std::memory_order_seq_cst);
    closed = closed_.load(std::memory_order_seq_cst);
    if (!closed) {
      core->self = core;
      queued = ring_.try_push(level, core.get());
      if (queued) signals_->wake.advance();
    }
    submitting_.fetch_sub(1, std::memory_order_release);
  } catch (const std::bad_alloc&) {
    unreserve_queue(*core);
    throw;
  }
  if (queued) return {};

  unreserve_queue(*core);
  core->self = nullptr;
  for (int32_t i = 0; i < core->samples(); ++i) {  // so that the handle waits for nothing
    core->sequence(i).end(RequestState::kFailed, FinishReason::kError, -1, {});
  }
  LMN_CHECK(closed);  // the ring has room for what reserve_queue() has passed
  *reason = RejectReason::kClosed;
  return closed_status();
}

// Claims the request's share of the queue, or says what is full. A request that is refused is never
// counted, so it makes no other one fail.
Status Engine::Impl::reserve_queue(const RequestCore& request, RejectReason* reason) {
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  const int64_t own_bytes = request.buffer_bytes();
  const int64_t bytes = signals_->live_bytes.load(std::memory_order_relaxed);  // this one is in it
  if (own_bytes > options_.queue_bytes) {
    *reason = RejectReason::kBytes;
    return error(Code::kOutOfMemory,
                 "this request takes %lld bytes of buffers and the bound is %lld; ask for fewer "
                 "max_tokens, samples or top_logprobs, or raise queue_bytes",
                 number(own_bytes), number(options_.queue_bytes));
  }
  if (bytes > options_.queue_bytes) {
    *reason = RejectReason::kBytes;
    return error(Code::kQueueFull,
                 "the requests there are hold %lld bytes, this one takes %lld, and the bound is "
                 "%lld; try again later, ask for fewer max_tokens, or raise queue_bytes",
                 number(bytes - own_bytes), number(own_bytes), number(options_.queue_bytes));
  }
  // acquire, with the release in start(): who counts a place as free also finds it free in the
  // ring.
  int64_t ahead = counters_.queued.load(std::memory_order_relaxed);
  do {
    if (ahead < options_.queue_capacity) continue;
    *reason = RejectReason::kQueue;
    return error(Code::kQueueFull,
                 "%lld requests are waiting and the queue holds %d; try again later, or raise "
                 "queue_capacity",
                 number(ahead), options_.queue_capacity);
  } while (!counters_.queued.compare_exchange_weak(ahead, ahead + 1, std::memory_order_acquire));
  const int64_t prompt_tokens = request.fixed().prompt_tokens;
  int64_t tokens = counters_.queued_tokens.load(std::memory_order_relaxed);
  do {
    // One that is longer than the bound may wait alone.
    if (options_.queue_tokens == 0 || tokens == 0 ||
        tokens + prompt_tokens <= options_.queue_tokens)
      continue;
    counters_.queued.fetch_sub(1, std::memory_order_relaxed);
    *reason = RejectReason::kTokens;
    return error(Code::kQueueFull,
                 "%lld prompt tokens are waiting, this prompt has %lld, and the queue holds "
                 "%lld; try again later, or raise queue_tokens",
                 number(tokens), number(prompt_tokens), number(options_.queue_tokens));
  } while (!counters_.queued_tokens.compare_exchange_weak(tokens, tokens + prompt_tokens,
                                                          std::memory_order_relaxed));
  return {};
}

void Engine::Impl::unreserve_queue(const RequestCore& request) {
  counters_.queued_tokens.fetch_sub(request.fixed().prompt_tokens, std::memory_order_relaxed);
  counters_.queued.fetch_sub(1, std::memory_order_relaxed);
}

Result<size_t> Engine::Impl::trace(std::span<TraceEvent> events, uint64_t* lost) {
  LMN_RETURN_IF_ERROR(check_process());
  if (!trace_.enabled()) {
    return error(Code::kUnsupported,
                 "this engine keeps no trace; set trace_events when it is created");
  }
  const size_t count = trace_.take(events);
  *lost = trace_.lost();
  return count;
}

Result<std::vector<plan::ProfileEntry>> Engine::Impl::profile(StepKind kind) const {
  LMN_RETURN_IF_ERROR(check_process());
  if (!options_.profile) {
    return error(
        Code::kUnsupported,
        "this engine keeps no profile; set profile (LMN_ENGINE_PROFILE) when it is created");
  }
  std::vector<plan::ProfileEntry> out = parts_.runner->profile(kind);
  const Profile& own = profiles_[static_cast<size_t>(kind)];
  const std::pair<const char*, const plan::ProfileCounter*> parts[] = {{"schedule", &own.schedule},
                                                                       {"prepare", &own.prepare},
                                                                       {"run", &own.run},
                                                                       {"sample", &own.sample},
                                                                       {"deliver", &own.deliver}};
  for (const auto& [name, counter] : parts) out.push_back(counter->entry("engine", name));
  return out;
}

void Engine::Impl::shutdown() {
  if (!signals_->process.is_here()) return;
  closed_.store(true, std::memory_order_seq_cst);
  signals_->wake.advance();
  const std::lock_guard<std::mutex> lock(join_mutex_);
  thread_.join();
  signals_->close_cancels();
  notifier_.stop();
}

EngineStats Engine::Impl::stats() const {
  const auto read = [](const std::atomic<int64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  EngineStats out;
  const int64_t unstarted = read(counters_.unstarted);
  out.waiting = unstarted + read(counters_.preempted);
  out.queue_depth = std::max<int64_t>(0, read(counters_.queued) - unstarted);
  out.running = read(counters_.running);
  out.queue_tokens = read(counters_.queued_tokens);
  out.queue_bytes = read(signals_->live_bytes);
  out.kv_pages_total = admission_.kv_pages;
  out.kv_pages_used = read(counters_.pages_used);
  out.kv_pages_cached = read(counters_.pages_cached);
  out.kv_page_tokens = kKvPageTokens;
  out.submitted = read(counters_.submitted);
  for (size_t i = 0; i < out.rejected.size(); ++i) out.rejected[i] = read(counters_.rejected[i]);
  out.prefix_lookup_tokens = read(counters_.prefix_lookup_tokens);
  out.prefix_hit_tokens = read(counters_.prefix_hit_tokens);
  out.preemptions = read(counters_.preemptions);
  out.finished = read(counters_.finished);
  out.cancelled = read(counters_.cancelled);
  out.failed = read(counters_.failed);
  out.steps = read(counters_.steps);
  out.prompt_tokens = read(counters_.prompt_tokens);
  out.generated_tokens = read(counters_.generated_tokens);
  return out;
}

std::vector<HistogramSnapshot> Engine::Impl::histograms() const {
  const Histograms& h = histograms_;
  std::vector<HistogramSnapshot> out;
  for (const Histogram* histogram : {&h.step, &h.schedule, &h.prepare, &h.run, &h.sample,
                                     &h.deliver, &h.queue, &h.first_token, &h.inter_token})
    out.push_back(histogram->snapshot());
  return out;
}

Status Engine::submit(RequestOptions&& options, std::shared_ptr<Request>* request) {
  return impl_->submit(std::move(options), request);
}
Result<size_t> Engine::trace(std::span<TraceEvent> events, uint64_t* lost) {
  return impl_->trace(events, lost);
}
std::vector<HistogramSnapshot> Engine::histograms() const { return impl_->histograms(); }
Result<std::vector<plan::ProfileEntry>> Engine::profile(StepKind kind) const {
  return impl_->profile(kind);
}
void Engine::shutdown() { impl_->shutdown(); }
EngineStats Engine::stats() const { return impl_->stats(); }
memory::Ledger::Snapshot Engine::memory() const { return impl_->ledger().snapshot(); }
int32_t Engine::context_tokens() const { return impl_->options().context_tokens; }
int64_t Engine::answer_limit(int64_t asked, int64_t prompt_tokens) const {
  return engine::answer_limit(asked, prompt_tokens, impl_->admission());
}
int32_t Engine::vocab_size() const { return impl_->limits().vocab_size; }
int Engine::threads() const { return impl_->parts().team->size(); }

}  // namespace lmn::engine
