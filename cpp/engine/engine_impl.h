// SPDX-License-Identifier: Apache-2.0
//
// Engine::Impl: the members of an engine in three groups, by who touches them. engine.cc is the
// client side, step_loop.cc the engine thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/admission.h"
#include "engine/delivery.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/request_core.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/waiting_queue.h"
#include "parallel/clock.h"
#include "parallel/os_thread.h"
#include "parallel/priority_ring.h"

namespace lmn::engine {

class Engine::Impl {
 public:
  static Result<std::unique_ptr<Engine>> create(EngineParts parts, const EngineOptions& options);
  Impl(EngineParts parts, const EngineOptions& options, const StepLimits& limits, KvCache kv,
       std::shared_ptr<EngineSignals> signals);
  ~Impl();

  Result<std::shared_ptr<Request>> submit(RequestOptions&& options);
  void shutdown();
  EngineStats stats() const;
  Status check_process() const;

  // Fixed by create().
  const EngineParts& parts() const { return parts_; }
  const EngineOptions& options() const { return options_; }
  const StepLimits& limits() const { return limits_; }
  const AdmissionLimits& admission() const { return admission_; }
  const memory::Ledger& ledger() const { return *signals_->ledger; }

 private:
  // --- client side -----------------------------------------------------------------------------
  Result<std::shared_ptr<Request>> admit_and_queue(RequestOptions&& options);
  Status closed_status() const;

  // --- engine thread ---------------------------------------------------------------------------
  static void enter(void* self);
  void loop();
  void run_until_closed();
  void take_submitted();
  void end_cancelled_and_late();
  void start_waiting();
  void step();
  void handle(RequestCore& request, const Slice& slice, const float* logits);
  Verdict handle_generated(RequestCore& request, const float* logits);
  Verdict handle_scored(RequestCore& request, const Slice& slice, const float* logits);
  void end_waiting(RequestCore& request, FinishReason reason);
  void end_running(RequestCore& request, Verdict verdict);
  void release_pages(RequestCore& request, bool scrub);
  void break_with(const char* what) noexcept;

  const EngineParts parts_;
  const EngineOptions options_;
  const StepLimits limits_;
  const AdmissionLimits admission_;
  const pid_t pid_;
  const std::shared_ptr<EngineSignals> signals_;

  // Between clients and the engine thread. A pushed request is held by its own `self` until it is
  // popped.
  parallel::PriorityRing<RequestCore*> ring_;
  // Set by shutdown() or by the engine thread after a broken invariant; seq_cst with submitting_,
  // see submit().
  std::atomic<bool> closed_{false};
  std::atomic<int32_t> submitting_{0};  // threads between their look at closed_ and their push
  // Why the engine thread gave up. Written before closed_ is set, read after it was seen set.
  Status broken_status_;
  std::atomic<uint64_t> next_id_{1};
  std::mutex join_mutex_;  // shutdown() by several threads; never taken by the engine thread
  parallel::OsThread thread_;

  // Figures, relaxed: written by the engine thread (queued, submitted and rejected by clients),
  // read by stats().
  struct Counters {
    std::atomic<int64_t> queued{0};  // submitted and not yet started: bounded by queue_capacity
    std::atomic<int64_t> waiting{0}, running{0}, pages_used{0};
    std::atomic<int64_t> submitted{0}, rejected{0}, finished{0}, cancelled{0}, failed{0};
    std::atomic<int64_t> steps{0}, prompt_tokens{0}, generated_tokens{0};
  };
  Counters counters_;

  // Of the engine thread alone. All vectors have their final capacity.
  KvCache kv_;
  Sampler sampler_;
  StepInputs inputs_;
  WaitingQueue<RequestCore> waiting_;
  std::vector<std::shared_ptr<RequestCore>> running_;  // in the order in which they started
  std::vector<SequenceView> views_;                    // of running_
  std::vector<Slice> step_;
  int64_t reserved_pages_ = 0;  // of running requests, at their longest
  uint64_t seen_cancels_ = 0;
  // No waiting or running request is late before this.
  int64_t next_deadline_ns_ = parallel::kNoDeadline;
};

}  // namespace lmn::engine
