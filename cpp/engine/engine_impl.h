// SPDX-License-Identifier: Apache-2.0
//
// Engine::Impl: the members of an engine in three groups, by who touches them. engine.cc is the
// client side; step_loop.cc and step.cc are the engine thread: the first decides which sequences
// run, the second runs a step of them.
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
#include "engine/notifier.h"
#include "engine/pacer.h"
#include "engine/page_pool.h"
#include "engine/request_core.h"
#include "engine/running_set.h"
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

  Status submit(RequestOptions&& options, std::shared_ptr<Request>* request);
  Result<size_t> trace(std::span<TraceEvent> events, uint64_t* lost);
  Result<std::vector<plan::ProfileEntry>> profile(StepKind kind) const;
  void shutdown();
  EngineStats stats() const;
  std::vector<HistogramSnapshot> histograms() const;
  Status check_process() const;

  // Fixed by create().
  const EngineParts& parts() const { return parts_; }
  const EngineOptions& options() const { return options_; }
  const StepLimits& limits() const { return limits_; }
  const AdmissionLimits& admission() const { return admission_; }
  const memory::Ledger& ledger() const { return *signals_->ledger; }

 private:
  // --- client side -----------------------------------------------------------------------------
  Status admit_and_queue(RequestOptions&& options, std::shared_ptr<Request>* request,
                         RejectReason* reason);
  Status reserve_queue(const RequestCore& request, RejectReason* reason);
  void unreserve_queue(const RequestCore& request);
  Status closed_status() const;

  // --- engine thread: step_loop.cc -------------------------------------------------------------
  static void enter(void* self);
  void loop();
  void run_until_closed();
  void sleep(uint32_t seen, int64_t now);
  void take_submitted();
  void end_cancelled_and_late(int64_t now);
  void end_request(RequestCore& request, FinishReason reason);
  void start_waiting(int64_t now);
  bool take_room(Sequence& sequence);
  bool preempting_makes_room(const Sequence& candidate) const;
  void start(std::shared_ptr<Sequence> sequence, int64_t now);
  void join_running(std::shared_ptr<Sequence> sequence);
  std::shared_ptr<Sequence> leave_running(Sequence& sequence);
  void use_up_ranks();
  void preempt_last();
  void wait_again(const std::shared_ptr<Sequence>& sequence);
  void end_waiting(std::shared_ptr<Sequence> sequence, FinishReason reason);
  void end_sequence(Sequence& sequence, Verdict verdict);
  void uncount(const Sequence& sequence);
  void release_pages(Sequence& sequence);
  static void require_device(const Status& status);
  void count_pages();
  void announce(RequestCore& request);
  void send_announcements();
  void trace_request(const RequestCore& request, int64_t end_ns);
  void break_with(const char* what) noexcept;

  // --- engine thread: step.cc ------------------------------------------------------------------
  struct StepTimes {  // of now_ns(): where each part of a step ended
    int64_t begin = 0, scheduled = 0, prepared = 0, ran = 0, sampled = 0, delivered = 0;
  };
  void step(int64_t begin_ns);
  bool compose();
  void take_turns();
  bool take_pages(Sequence& sequence, int32_t begin, int32_t end);
  void count_computed(Sequence& sequence, const Slice& slice);
  void list_rows();
  Status run_step(const StepSizes& sizes);
  const float* row_of_logits(int32_t output) const;
  void count_and_score();
  void sample_rows();
  void deliver_rows(int64_t now);
  // Of the logit that is not: what a client is told.
  Status not_finite(int32_t logit, const char* where, int32_t token, float value) const;
  struct Row;
  Verdict deliver_row(const Row& row, int64_t now);
  Verdict deliver_scored(Sequence& sequence, const Slice& slice, int32_t output);
  void publish_pages(Sequence& sequence);
  void fork_siblings(Sequence& leader);
  void record_step(const StepTimes& times, const StepSizes& sizes);

  const EngineParts parts_;
  const EngineOptions options_;
  // One for an event loop and one for a client, beside the team's. Who gave idle_spin_ns knows.
  const bool has_spare_cpu_;
  const StepLimits limits_;
  const AdmissionLimits admission_;
  const std::shared_ptr<EngineSignals> signals_;

  // Between clients and the engine thread. A pushed request is held by its own `self` until it is
  // popped.
  parallel::PriorityRing<RequestCore*> ring_;
  // Set by shutdown() or by the engine thread after a broken invariant; seq_cst with submitting_,
  // see submit().
  std::atomic<bool> closed_{false};
  std::atomic<int32_t> submitting_{0};  // threads between their look at closed_ and their push
  // The engine thread gave up, and why: the text is written before the flag is set (release), and
  // read after it was seen set (acquire).
  std::atomic<bool> broken_{false};
  Status broken_status_;
  std::atomic<uint64_t> next_id_{1};
  std::mutex join_mutex_;  // shutdown() by several threads; never taken by the engine thread
  parallel::OsThread thread_;
  Notifier notifier_;

  // Figures, relaxed: written by the engine thread (the first two groups also by clients), read by
  // stats().
  struct Counters {
    // Submitted and not yet started: bounded by queue_capacity and queue_tokens.
    std::atomic<int64_t> queued{0}, queued_tokens{0};
    std::atomic<int64_t> submitted{0};
    std::array<std::atomic<int64_t>, kRejectReasons> rejected{};
    std::atomic<int64_t> unstarted{0};  // of `queued`, popped from the ring
    std::atomic<int64_t> preempted{0};  // waiting again
    std::atomic<int64_t> running{0}, pages_used{0}, pages_cached{0};
    std::atomic<int64_t> finished{0}, cancelled{0}, failed{0}, preemptions{0};
    std::atomic<int64_t> steps{0}, prompt_tokens{0}, generated_tokens{0};
    std::atomic<int64_t> prefix_lookup_tokens{0}, prefix_hit_tokens{0};
  };
  Counters counters_;
  struct Histograms {
    Histogram step{"step"}, schedule{"schedule"}, prepare{"prepare"}, run{"run"}, sample{"sample"},
        deliver{"deliver"}, queue{"queue"}, first_token{"first_token"}, inter_token{"inter_token"};
  };
  Histograms histograms_;
  Trace trace_;
  struct Profile {
    plan::ProfileCounter schedule, prepare, run, sample, deliver;
  };
  std::array<Profile, kStepKinds> profiles_;  // of steps, by kind; with options_.profile
  const memory::LedgerEntry trace_ledger_;

  // Of the engine thread alone. Vectors have the capacity that steady work needs.
  KvCache kv_;
  PagePool pages_;
  std::vector<Sampler> samplers_;  // one for each member of the team
  StepInputs inputs_;
  Pacer pacer_;
  WaitingQueue<Sequence> waiting_;
  RunningSet running_;             // pages that lack are taken from the last
  std::vector<Sequence*> raised_;  // of running_, with raised_steps
  std::vector<std::shared_ptr<Sequence>>
      ended_;                        // in this step, or between two: held until it ends
  DueHeap<RequestCore> deadlines_;   // of waiting and running requests
  std::vector<Sequence*> members_;   // those that the step may move on
  std::vector<SequenceView> views_;  // of members_
  std::vector<Slice> step_;          // counts in members_
  struct Row {                       // of logits, from which a sequence gets its next token
    Sequence* sequence;
    int32_t output;     // which row
    int32_t on_device;  // place in device_rows_; -1: sampled here
    Sampler::Choice choice;
  };
  std::vector<Row> rows_;
  int32_t rows_here_ = 0;               // of rows_
  const float* logits_ = nullptr;       // of the step, where the runner does not sample
  std::vector<SampleRow> device_rows_;  // StepSampling
  std::vector<SampleChoice> device_choices_;
  std::vector<int32_t> host_rows_;
  std::vector<std::shared_ptr<Sequence>> joining_;  // forked in this step
  bool news_for_notifier_ = false;
  TouchedQueues touched_queues_;
  bool told_event_loop_ = false;      // the last news were for a NewsQueue
  bool took_ = false;                 // something was submitted since the last sleep
  std::shared_ptr<Sequence> ending_;  // see end_waiting()
  struct Room {
    uint64_t request = 0;
    int32_t sample = 0;
    size_t running = 0;
    uint64_t changes = 0;
    bool operator==(const Room&) const = default;
  };
  Room no_room_;  // where take_room() failed last
};

}  // namespace lmn::engine
