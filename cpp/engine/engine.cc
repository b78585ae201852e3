// SPDX-License-Identifier: Apache-2.0
//
// The client side of an engine: create, submit, shutdown, figures.
#include "engine/engine.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/philox.h"

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
  if (options.queue_capacity < 0 || options.queue_capacity > (1 << 20)) {
    return error(Code::kInvalidArgument, "queue_capacity is %d; it must be in [0, %d], 0 is %d",
                 options.queue_capacity, 1 << 20, kDefaultQueueCapacity);
  }
  return {};
}

EngineOptions with_defaults(EngineOptions options, const StepLimits& limits) {
  if (options.kv_tokens == 0) options.kv_tokens = options.context_tokens;
  if (options.prefill_chunk_tokens == 0) options.prefill_chunk_tokens = limits.tokens;
  if (options.queue_capacity == 0) options.queue_capacity = kDefaultQueueCapacity;
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
      limits_(limits),
      admission_{limits.vocab_size, options.context_tokens, kv.pages().total(), parts_.tokenizer},
      pid_(getpid()),
      signals_(std::move(signals)),
      ring_(kPriorityLevels, static_cast<size_t>(options.queue_capacity)),
      kv_(std::move(kv)),
      sampler_(limits.vocab_size, *signals_->ledger),
      inputs_(parts_.runner->inputs()) {
  running_.reserve(static_cast<size_t>(limits.sequences));
  views_.reserve(static_cast<size_t>(limits.sequences));
  step_.reserve(static_cast<size_t>(limits.sequences));
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
                       KvCache::create(*parts.device, parts.runner->kv_shape(), options.kv_dtype,
                                       options.kv_tokens, *signals->ledger));
  LMN_RETURN_IF_ERROR(parts.runner->bind_kv(kv.binding()));
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
  if (getpid() == pid_) return {};
  return error(
      Code::kClosed,
      "the engine was created in process %d and its threads do not exist in this forked child; "
      "create an engine after fork",
      static_cast<int>(pid_));
}

Status Engine::Impl::closed_status() const {
  if (!broken_status_.ok())
    return error(Code::kClosed, "the engine is closed: %s", broken_status_.message().data());
  return error(Code::kClosed, "the engine is shutting down and takes no requests");
}

Result<std::shared_ptr<Request>> Engine::Impl::submit(RequestOptions&& options) {
  LMN_RETURN_IF_ERROR(check_process());
  const size_t prompt_tokens = options.prompt.size();
  try {
    Result<std::shared_ptr<Request>> request = admit_and_queue(std::move(options));
    (request.ok() ? counters_.submitted : counters_.rejected)
        .fetch_add(1, std::memory_order_relaxed);
    return request;
  } catch (const std::bad_alloc&) {
    counters_.rejected.fetch_add(1, std::memory_order_relaxed);
    return error(Code::kOutOfMemory,
                 "no memory for the buffers of a request with %zu prompt tokens", prompt_tokens);
  }
}

Result<std::shared_ptr<Request>> Engine::Impl::admit_and_queue(RequestOptions&& options) {
  LMN_ASSIGN_OR_RETURN(Admission admission, admit(options, admission_));
  RequestCore::Fixed fixed;
  fixed.id = next_id_.fetch_add(1, std::memory_order_relaxed);
  fixed.prompt_tokens = static_cast<int32_t>(options.prompt.size());
  fixed.max_tokens = admission.max_tokens;
  fixed.vocab_size = limits_.vocab_size;
  fixed.seed =
      options.sampling.seed.value_or(options.sampling.temperature > 0 ? random_seed(fixed.id) : 0);
  fixed.submit_ns = parallel::now_ns();
  fixed.deadline_ns = options.deadline_ns > 0 ? parallel::deadline_after(options.deadline_ns)
                                              : parallel::kNoDeadline;
  fixed.tokenizer = parts_.tokenizer;
  fixed.decode = options.kind == RequestKind::kGenerate && parts_.tokenizer != nullptr &&
                 (options.text || !options.stop.empty());
  fixed.stops = std::move(admission.stops);
  fixed.signals = signals_;
  const int level = priority_level(options.priority);
  fixed.options = std::move(options);
  auto core = std::make_shared<RequestCore>(std::move(fixed));
  auto request =
      std::make_shared<Request>(core);  // now, because nothing may fail once it is queued

  // Closing: the engine thread sets closed_ and then waits until submitting_ is 0 before it empties
  // the ring for the last time. Both are seq_cst: either this thread sees closed_, or the engine
  // thread sees this one and waits for its push.
  submitting_.fetch_add(1, std::memory_order_seq_cst);
  const bool closed = closed_.load(std::memory_order_seq_cst);
  bool queued = false;
  int64_t ahead = 0;
  if (!closed) {
    ahead = counters_.queued.fetch_add(1, std::memory_order_acquire);  // see start_waiting()
    core->self = core;
    queued = ahead < options_.queue_capacity && ring_.try_push(level, core.get());
    if (queued) signals_->wake.advance();
  }
  submitting_.fetch_sub(1, std::memory_order_release);
  if (queued) return request;

  core->end(RequestState::kFailed, FinishReason::kError, -1,
            {});  // so that the handle waits for nothing when it goes
  if (closed) return closed_status();
  core->self = nullptr;
  counters_.queued.fetch_sub(1, std::memory_order_relaxed);
  return error(
      Code::kQueueFull,
      "%lld requests are waiting and the queue holds %d; try again later, or raise queue_capacity",
      static_cast<long long>(ahead), options_.queue_capacity);
}

void Engine::Impl::shutdown() {
  if (getpid() != pid_) return;
  closed_.store(true, std::memory_order_seq_cst);
  signals_->wake.advance();
  const std::lock_guard<std::mutex> lock(join_mutex_);
  thread_.join();
}

EngineStats Engine::Impl::stats() const {
  const auto read = [](const std::atomic<int64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  EngineStats out;
  out.waiting = read(counters_.waiting);
  out.queue_depth = std::max<int64_t>(0, read(counters_.queued) - out.waiting);
  out.running = read(counters_.running);
  out.kv_pages_total = admission_.kv_pages;
  out.kv_pages_used = read(counters_.pages_used);
  out.kv_page_tokens = kKvPageTokens;
  out.submitted = read(counters_.submitted);
  out.rejected = read(counters_.rejected);
  out.finished = read(counters_.finished);
  out.cancelled = read(counters_.cancelled);
  out.failed = read(counters_.failed);
  out.steps = read(counters_.steps);
  out.prompt_tokens = read(counters_.prompt_tokens);
  out.generated_tokens = read(counters_.generated_tokens);
  return out;
}

Result<std::shared_ptr<Request>> Engine::submit(RequestOptions&& options) {
  return impl_->submit(std::move(options));
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
