// SPDX-License-Identifier: Apache-2.0
//
// Explorer: every interleaving of a few small threads. ModelAtomic gives control away before each
// operation; threads are fibres (ucontext); a depth-first search replays the program under every
// schedule of those points. This covers all sequentially consistent executions. Orders weaker than
// that are the argument in each header, and ThreadSanitizer's business.
#pragma once

// Sanitizers do not follow fibres.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define LMN_HAVE_FIBRES 1

#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lmn::parallel {

class Explorer {
 public:
  // Runs make_program() and all its threads under every schedule; check() after each. Returns the
  // number of schedules.
  int64_t explore(const std::function<std::vector<std::function<void()>>()>& make_program,
                  const std::function<void()>& check) {
    current_explorer = this;
    int64_t schedules = 0;
    std::vector<Choice> path;
    do {
      bodies_ = make_program();
      run_once(path);
      check();
      ++schedules;
      while (!path.empty() && path.back().taken + 1 == path.back().options) path.pop_back();
      if (!path.empty()) ++path.back().taken;
    } while (!path.empty());
    current_explorer = nullptr;
    return schedules;
  }

  static void yield() {
    if (current_explorer == nullptr || current_explorer->running_ < 0) return;  // set-up and check
    Fiber& self = *current_explorer->fibers_[static_cast<size_t>(current_explorer->running_)];
    swapcontext(&self.context, &current_explorer->scheduler_);
  }

 private:
  struct Choice {
    int taken, options;
  };
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 << 10);
    bool done = false;
  };
  static inline Explorer* current_explorer = nullptr;

  static void enter() {
    Explorer& e = *current_explorer;
    const auto index = static_cast<size_t>(e.running_);
    e.bodies_[index]();
    e.fibers_[index]->done = true;
    swapcontext(&e.fibers_[index]->context, &e.scheduler_);
  }

  void run_once(std::vector<Choice>& path) {
    while (fibers_.size() < bodies_.size()) fibers_.push_back(std::make_unique<Fiber>());
    for (size_t i = 0; i < bodies_.size(); ++i) {
      Fiber& fiber = *fibers_[i];
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, enter, 0);
    }
    for (size_t i = 0; i < bodies_.size(); ++i)
      resume(static_cast<int>(i));  // up to its first operation: no choice
    for (size_t depth = 0;; ++depth) {
      std::vector<int> ready;
      for (size_t i = 0; i < bodies_.size(); ++i) {
        if (!fibers_[i]->done) ready.push_back(static_cast<int>(i));
      }
      if (ready.empty()) break;
      if (depth == path.size()) path.push_back({0, static_cast<int>(ready.size())});
      resume(ready[static_cast<size_t>(path[depth].taken)]);
    }
  }

  void resume(int fiber) {
    running_ = fiber;
    swapcontext(&scheduler_, &fibers_[static_cast<size_t>(fiber)]->context);
    running_ = -1;
  }

  std::vector<std::function<void()>> bodies_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  ucontext_t scheduler_;
  int running_ = -1;
};

template <typename T>
class ModelAtomic {
 public:
  ModelAtomic() = default;
  ModelAtomic(T value) : value_(value) {}  // NOLINT: as std::atomic
  T load(std::memory_order) const {
    Explorer::yield();
    return value_;
  }
  void store(T value, std::memory_order) {
    Explorer::yield();
    value_ = value;
  }
  T exchange(T value, std::memory_order) {
    Explorer::yield();
    return std::exchange(value_, value);
  }
  T fetch_add(T value, std::memory_order) {
    Explorer::yield();
    return std::exchange(value_, value_ + value);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order) {
    Explorer::yield();
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    value_ = desired;
    return true;
  }

 private:
  T value_{};
};
}  // namespace lmn::parallel

#endif
