// SPDX-License-Identifier: Apache-2.0
//
// Submitter: runs of a program that nobody waits for. Submissions go into a bounded queue, which
// one thread works off in order, alone or, where the program allows it, several as one run
// (batching.h). A second thread calls those who asked to be called. Both threads start with the
// first submission.
//
// A submission has one owner at a time: the caller until submit(), the runner's thread until it is
// finished, everybody afterwards, for reading. Only `cancelled` may be set at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "ops/tensor_kernel.h"
#include "parallel/event_count.h"
#include "parallel/fork_mark.h"
#include "parallel/os_thread.h"
#include "parallel/priority_ring.h"
#include "plan/program/program.h"

namespace lmn::plan {

struct Submission {
  std::vector<ops::RuntimeValue> inputs, outputs;  // as in Program::run
  // Called once, on the notifier's thread, after the submission has finished. May be empty.
  std::function<void(const std::shared_ptr<Submission>&)> callback;

  std::atomic<bool> cancelled{false};

  // TIMEOUT when the deadline passes first; else what the run ended with. The first to hear of the
  // end lets the inputs go, so that their deleters run on a thread of the caller's.
  Status wait(int64_t deadline_ns);

 private:
  friend class Submitter;
  Status status_;            // written before `finished_`
  std::mutex inputs_mutex_;  // of `inputs`, once it has finished
  // release, pairs with the acquire in wait(): status_ and outputs are complete.
  std::atomic<bool> finished_{false};
  parallel::EventCount news_;
  std::shared_ptr<const parallel::ForkMark> process_;
};

struct SubmitterOptions {
  int64_t max_queue = 1024;     // submissions that have not ended, callbacks included
  int64_t batch_window_ns = 0;  // > 0: how long a run waits for others to run with
  int64_t max_batch = 64;       // rows of one run
};

class Submitter {
 public:
  // Runs with the threads of whoever owns them.
  using RunFn = std::function<Status(std::span<const ops::RuntimeValue> inputs,
                                     std::span<ops::RuntimeValue> outputs,
                                     const std::atomic<bool>* cancelled)>;

  Submitter(const Program& program, RunFn run, const SubmitterOptions& options);
  // Cancels what has not finished, and returns after the last callback. Not from a callback.
  ~Submitter();
  Submitter(const Submitter&) = delete;
  Submitter& operator=(const Submitter&) = delete;

  // QUEUE_FULL at once when there is no room; CLOSED in a child of fork. Any thread.
  Status submit(std::shared_ptr<Submission> submission);
  bool batches() const { return batches_; }

 private:
  using Pointer = std::shared_ptr<Submission>;
  class Notifier;

  Status start();
  void work();
  void gather(int64_t deadline_ns);
  void run_gathered();
  Status run_joined();
  Status run_alone(Submission& submission);
  void finish(Pointer submission, Status status);
  bool take(Pointer* submission);

  const Program& program_;
  const RunFn run_;
  const SubmitterOptions options_;
  const bool batches_;
  const std::shared_ptr<const parallel::ForkMark> process_;
  std::mutex start_mutex_;
  std::atomic<bool> started_{false};  // release after the threads, acquire before submissions

  parallel::PriorityRing<Pointer*> queue_;
  std::atomic<int64_t> pending_{0};  // relaxed: only a bound
  // Set (release) before news_.advance() by the destructor.
  std::atomic<bool> closing_{false};
  parallel::EventCount news_;

  // The runner's own.
  std::vector<Pointer> gathered_;
  Pointer next_;  // taken from the queue, but for the run after this one

  std::mutex running_mutex_;  // of running_, for the destructor
  std::vector<Pointer> running_;
  std::unique_ptr<Notifier> notifier_;
  parallel::OsThread thread_;
};

}  // namespace lmn::plan
