// SPDX-License-Identifier: Apache-2.0
//
// Every interleaving of the ring's own code. ModelAtomic gives control away before each operation;
// threads are fibres (ucontext); a depth-first search replays the program under every schedule of
// those points. This covers all sequentially consistent executions of the small programs below.
// Orders weaker than that are the header's argument and ThreadSanitizer's business.
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/priority_ring.h"
#include "testing.h"

namespace lmn::parallel {
namespace {

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they do not follow fibres

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
using ModelRing = PriorityRing<int, ModelAtomic>;

// Producer p pushes pushes[p] values (10 p, 10 p + 1, …) into a ring of two cells while the
// consumer pops `pops` times.
int64_t explore_producers(const std::vector<int>& pushes, int pops) {
  std::unique_ptr<ModelRing> ring;
  std::vector<int> popped, accepted;
  bool ok = true;
  Explorer explorer;
  const int64_t schedules = explorer.explore(
      [&] {
        ring = std::make_unique<ModelRing>(1, 2);
        popped.clear();
        accepted.clear();
        std::vector<std::function<void()>> bodies;
        for (size_t p = 0; p < pushes.size(); ++p) {
          bodies.push_back([&, p] {
            for (int i = 0; i < pushes[p]; ++i) {
              const int value = static_cast<int>(p) * 10 + i;
              if (ring->try_push(0, value)) accepted.push_back(value);
            }
          });
        }
        bodies.push_back([&] {
          int value = 0;
          for (int i = 0; i < pops; ++i) {
            if (ring->pop(&value)) popped.push_back(value);
          }
        });
        return bodies;
      },
      [&] {
        int value = 0;
        while (ring->pop(&value)) popped.push_back(value);
        ok = ok && accepted.size() >= 2;  // two cells: the first two pushes cannot be refused
        for (size_t p = 0; p < pushes.size(); ++p) {  // each producer's values in its order
          int last = -1;
          for (const int v : popped) {
            if (v / 10 != static_cast<int>(p)) continue;
            ok = ok && v > last;
            last = v;
          }
        }
        std::sort(popped.begin(), popped.end());
        std::sort(accepted.begin(), accepted.end());
        ok = ok && popped == accepted;  // nothing lost, nothing twice
      });
  EXPECT(ok);
  return schedules;
}

TEST(every_interleaving_of_producers_and_the_consumer) {
  int64_t schedules = explore_producers({1, 1}, 1);
  schedules += explore_producers({2, 1}, 1);
  schedules += explore_producers({3}, 2);  // around the ring
  std::printf("     %lld schedules\n", static_cast<long long>(schedules));
  EXPECT(schedules > 20'000);
}

TEST(every_interleaving_of_a_full_ring_that_is_emptied) {
  std::unique_ptr<ModelRing> ring;
  std::vector<int> popped;
  bool pushed = false, other = false, ok = true;
  Explorer explorer;
  explorer.explore(
      [&] {
        ring = std::make_unique<ModelRing>(2, 2);
        popped.clear();
        ok = ok && ring->try_push(1, 0) && ring->try_push(1, 1) && !ring->try_push(1, 9);
        return std::vector<std::function<void()>>{
            [&] { pushed = ring->try_push(1, 2); },
            [&] { other = ring->try_push(0, 3); },
            [&] {
              int value = 0;
              for (int i = 0; i < 2; ++i) {
                if (ring->pop(&value)) popped.push_back(value);
              }
            },
        };
      },
      [&] {
        ok = ok && other && !popped.empty() && popped[0] == 0;  // the oldest of the higher level
        int value = 0;
        while (ring->pop(&value)) popped.push_back(value);
        std::vector<int> want = {0, 1, 3};
        if (pushed) want.push_back(2);
        std::sort(popped.begin(), popped.end());
        std::sort(want.begin(), want.end());
        ok = ok && popped == want;
      });
  EXPECT(ok);
}

#endif

}  // namespace
}  // namespace lmn::parallel
