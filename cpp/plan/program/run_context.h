// SPDX-License-Identifier: Apache-2.0
//
// RunContext: what one run of a program, with the subgraphs that it runs, may use: threads, time
// and memory. Looked at between stages and between iterations, never inside a kernel.
#pragma once

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <memory>

#include "core/status.h"
#include "ops/tensor_kernel.h"
#include "parallel/clock.h"
#include "parallel/thread_team.h"

namespace lmn::plan {

// Bytes that are in use, and how many there may be. Any thread. What was allocated under a budget
// keeps it.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}

  Status take(int64_t bytes) {
    // Relaxed: a number that orders nothing.
    const int64_t before = used_.fetch_add(bytes, std::memory_order_relaxed);
    if (before <= limit_ - bytes) return {};
    give_back(bytes);
    return error(Code::kOutOfMemory,
                 "the run needs %" PRId64 " bytes beside the %" PRId64
                 " that it has; max_arena_bytes allows it %" PRId64,
                 bytes, before, limit_);
  }
  void give_back(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

// Bytes of a budget for as long as it lives; nothing where there is no budget.
class BudgetShare {
 public:
  BudgetShare() = default;
  static Result<BudgetShare> take(std::shared_ptr<MemoryBudget> budget, int64_t bytes) {
    BudgetShare share;
    if (budget == nullptr) return share;
    LMN_RETURN_IF_ERROR(budget->take(bytes));
    share.budget_ = std::move(budget);
    share.bytes_ = bytes;
    return share;
  }
  BudgetShare(BudgetShare&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(other.bytes_) {}
  BudgetShare& operator=(BudgetShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BudgetShare() {
    if (budget_ != nullptr) budget_->give_back(bytes_);
  }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  int64_t bytes_ = 0;
};

struct RunContext {
  parallel::ThreadTeam* team = nullptr;
  const ops::AllocateTensor* allocate = nullptr;  // of outputs and late values
  std::shared_ptr<MemoryBudget> budget;           // null: no limit
  int64_t deadline_ns = parallel::kNoDeadline;
  int64_t max_run_ns = 0;                        // for the message
  const std::atomic<bool>* cancelled = nullptr;  // null: nobody cancels

  bool is_limited() const { return cancelled != nullptr || deadline_ns != parallel::kNoDeadline; }
  // Relaxed: what a canceller wrote is of no concern to the run.
  bool is_cancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
  bool should_stop() const {
    return is_cancelled() ||
           (deadline_ns != parallel::kNoDeadline && parallel::now_ns() >= deadline_ns);
  }
  // Of a run that stops.
  Status stopped() const {
    if (is_cancelled()) return error(Code::kCancelled, "the run was cancelled");
    return error(Code::kTimeout,
                 "the run took longer than the %" PRId64 " ms that max_run_ms allows",
                 max_run_ns / 1'000'000);
  }
  Status check() const { return is_limited() && should_stop() ? stopped() : Status(); }
};

}  // namespace lmn::plan
