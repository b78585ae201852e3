// SPDX-License-Identifier: Apache-2.0
#include "plan/program/submitter.h"

#include <algorithm>
#include <cinttypes>

#include "parallel/clock.h"
#include "plan/program/batching.h"

namespace lmn::plan {
namespace {

int64_t rows_of(const Submission& submission) { return submission.inputs[0].tensor.shape[0]; }

// Inputs that a run alone would refuse must not spoil the run of others.
bool is_plain(const Submission& submission) {
  return std::all_of(
      submission.inputs.begin(), submission.inputs.end(), [&](const ops::RuntimeValue& value) {
        return value.kind == ops::ValueKind::kTensor && value.tensor.shape.rank > 0 &&
               value.tensor.shape[0] == rows_of(submission);
      });
}

Status closed() {
  return error(Code::kClosed, "the session belongs to another process: open it after fork");
}

}  // namespace

// The thread that calls back.
class Submitter::Notifier {
 public:
  explicit Notifier(std::atomic<int64_t>* pending) : pending_(pending) {}
  ~Notifier() {
    closing_.store(true, std::memory_order_release);
    news_.advance();
    thread_.join();
  }
  Status start() {
    LMN_ASSIGN_OR_RETURN(
        thread_,
        parallel::OsThread::start(
            "lmn-run-notify", [](void* self) { static_cast<Notifier*>(self)->work(); }, this));
    return {};
  }
  void add(Pointer submission) {
    {
      const std::lock_guard lock(mutex_);
      finished_.push_back(std::move(submission));
    }
    news_.advance();
  }

 private:
  void work() {
    for (;;) {
      const uint32_t seen = news_.value();
      const bool closing = closing_.load(std::memory_order_acquire);
      std::deque<Pointer> finished;
      {
        const std::lock_guard lock(mutex_);
        finished.swap(finished_);
      }
      for (Pointer& submission : finished) {
        submission->callback(submission);
        submission.reset();
        pending_->fetch_sub(1, std::memory_order_relaxed);
      }
      if (!finished.empty()) continue;
      if (closing) return;
      (void)news_.wait(seen, 0);
    }
  }

  std::atomic<int64_t>* const pending_;
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::deque<Pointer> finished_;
  parallel::EventCount news_;
  parallel::OsThread thread_;
};

Status Submission::wait(int64_t deadline_ns) {
  for (;;) {
    const uint32_t seen = news_.value();
    if (finished_.load(std::memory_order_acquire)) {
      std::vector<ops::RuntimeValue> spent;  // goes after the lock
      {
        const std::lock_guard lock(inputs_mutex_);
        spent.swap(inputs);
      }
      return status_;
    }
    if (process_ != nullptr && !process_->is_here()) return closed();
    if (deadline_ns != parallel::kNoDeadline && parallel::now_ns() >= deadline_ns)
      return error(Code::kTimeout, "the run has not finished");
    (void)news_.wait(seen, 0, deadline_ns);
  }
}

Submitter::Submitter(const Program& program, RunFn run, const SubmitterOptions& options)
    : program_(program),
      run_(std::move(run)),
      options_(options),
      batches_(options.batch_window_ns > 0 && is_batchable(program.graph())),
      process_(std::make_shared<const parallel::ForkMark>()),
      queue_(1, static_cast<size_t>(options.max_queue)) {}

Submitter::~Submitter() {
  if (!process_->is_here()) {  // the threads do not exist, and what they hold is in any state
    (void)notifier_.release();
    return;
  }
  closing_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(running_mutex_);
    for (const Pointer& submission : running_)
      submission->cancelled.store(true, std::memory_order_relaxed);
  }
  news_.advance();
  thread_.join();
  notifier_.reset();
}

Status Submitter::start() {
  if (started_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(start_mutex_);
  if (started_.load(std::memory_order_relaxed)) return {};
  if (notifier_ == nullptr) {
    auto notifier = std::make_unique<Notifier>(&pending_);
    LMN_RETURN_IF_ERROR(notifier->start());
    notifier_ = std::move(notifier);
  }
  LMN_ASSIGN_OR_RETURN(
      thread_,
      parallel::OsThread::start(
          "lmn-run-queue", [](void* self) { static_cast<Submitter*>(self)->work(); }, this));
  started_.store(true, std::memory_order_release);
  return {};
}

Status Submitter::submit(Pointer submission) {
  if (!process_->is_here()) return closed();
  LMN_RETURN_IF_ERROR(start());
  submission->process_ = process_;
  if (pending_.fetch_add(1, std::memory_order_relaxed) < options_.max_queue) {
    auto item = std::make_unique<Pointer>(std::move(submission));
    if (queue_.try_push(0, item.get())) {
      (void)item.release();
      news_.advance();
      return {};
    }
  }
  pending_.fetch_sub(1, std::memory_order_relaxed);
  return error(Code::kQueueFull, "%" PRId64 " runs wait already; try again when one has ended",
               options_.max_queue);
}

bool Submitter::take(Pointer* submission) {
  Pointer* item = nullptr;
  if (!queue_.pop(&item)) return false;
  *submission = std::move(*item);
  delete item;
  return true;
}

void Submitter::finish(Pointer submission, Status status) {
  submission->status_ = std::move(status);
  submission->finished_.store(true, std::memory_order_release);
  submission->news_.advance();
  if (submission->callback != nullptr) {
    notifier_->add(std::move(submission));
  } else {
    pending_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void Submitter::work() {
  for (;;) {
    const uint32_t seen = news_.value();
    const bool closing = closing_.load(std::memory_order_acquire);
    Pointer first = std::move(next_);
    if (first == nullptr && !take(&first)) {
      if (closing) return;
      (void)news_.wait(seen, 0);
      continue;
    }
    if (closing || first->cancelled.load(std::memory_order_relaxed)) {
      finish(std::move(first), error(Code::kCancelled, "the run was cancelled before it began"));
      continue;
    }
    gathered_.push_back(std::move(first));
    if (batches_ && is_plain(*gathered_[0]))
      gather(parallel::deadline_after(options_.batch_window_ns));
    run_gathered();
  }
}

// What may run together with the first, until the window or the batch is over.
void Submitter::gather(int64_t deadline_ns) {
  int64_t rows = rows_of(*gathered_[0]);
  while (rows < options_.max_batch) {
    const uint32_t seen = news_.value();
    if (closing_.load(std::memory_order_acquire)) return;
    Pointer other;
    if (!take(&other)) {
      if (parallel::now_ns() >= deadline_ns) return;
      (void)news_.wait(seen, 0, deadline_ns);
      continue;
    }
    const bool joins = !other->cancelled.load(std::memory_order_relaxed) && is_plain(*other) &&
                       may_join(gathered_[0]->inputs, other->inputs) &&
                       rows + rows_of(*other) <= options_.max_batch;
    if (!joins) {  // the order stays
      next_ = std::move(other);
      return;
    }
    rows += rows_of(*other);
    gathered_.push_back(std::move(other));
  }
}

Status Submitter::run_alone(Submission& submission) {
  return run_(submission.inputs, submission.outputs, &submission.cancelled);
}

Status Submitter::run_joined() {
  std::vector<std::span<const ops::RuntimeValue>> runs;
  for (const Pointer& submission : gathered_) runs.emplace_back(submission->inputs);
  LMN_ASSIGN_OR_RETURN(const std::vector<ops::RuntimeValue> inputs,
                       join_rows(runs, program_.allocate()));
  std::vector<ops::RuntimeValue> outputs(program_.outputs().size());
  // One of many that is cancelled runs with the others; closing_ ends them all.
  LMN_RETURN_IF_ERROR(run_(inputs, outputs, &closing_));
  for (const ops::RuntimeValue& output : outputs) {
    if (output.kind != ops::ValueKind::kTensor || output.tensor.shape.rank == 0 ||
        output.tensor.shape[0] != inputs[0].tensor.shape[0])
      return error(Code::kInternal, "an output has not a row for each of the inputs");
  }
  int64_t first = 0;
  for (const Pointer& submission : gathered_) {
    const int64_t rows = rows_of(*submission);
    Status status;
    for (size_t i = 0; i < outputs.size() && status.ok(); ++i)
      status = take_rows(outputs[i], first, rows, program_.allocate(), &submission->outputs[i]);
    if (status.ok() && submission->cancelled.load(std::memory_order_relaxed))
      status = error(Code::kCancelled, "the run was cancelled");
    first += rows;
    finish(submission, std::move(status));
  }
  return {};
}

void Submitter::run_gathered() {
  {
    const std::lock_guard lock(running_mutex_);
    running_ = gathered_;
  }
  // Where the run of all fails, each gets its own answer. So it does when the destructor has come
  // between: `closing_` was set before it looked at running_.
  const bool joined = gathered_.size() > 1 && run_joined().ok();
  for (size_t i = 0; i < gathered_.size() && !joined; ++i) {
    Pointer& submission = gathered_[i];
    if (closing_.load(std::memory_order_acquire))
      submission->cancelled.store(true, std::memory_order_relaxed);
    Status status = run_alone(*submission);
    finish(submission, std::move(status));
  }
  gathered_.clear();
  const std::lock_guard lock(running_mutex_);
  running_.clear();
}

}  // namespace lmn::plan
