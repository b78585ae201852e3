// SPDX-License-Identifier: Apache-2.0
//
// Many threads on one session, each with all that is legal at once, and the end of a session while
// others wait for its runs. ThreadSanitizer runs these alone (the executable session_threads).
#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "abuse.h"
#include "lmnative/lmnative.hpp"

using namespace abuse;  // NOLINT: tests

namespace {

using lmnative::Graph;
using lmnative::GraphValue;
using lmnative::Session;
using lmnative::SessionOptions;
using lmnative::SessionValue;

constexpr int kThreads = 8;
constexpr int64_t kWidth = 24;

SessionValue counting(int64_t count, float first) {
  lmnative::Tensor tensor(kDLFloat, 32, {count, kWidth});
  const auto values = tensor.values<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return SessionValue(std::move(tensor));
}

bool is_affine(const SessionValue& y, int64_t count, float first) {
  const lmnative::Tensor tensor = y.tensor();
  const auto values = tensor.values<const float>();
  if (values.size() != static_cast<size_t>(count * kWidth)) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 2 * (first + static_cast<float>(i)) + 1) return false;
  }
  return true;
}

// y = |x| + x + 1 for x of [n, kWidth], of which all are 0 or more here; exact in float32.
Session affine(const SessionOptions& options) {
  Graph graph;
  const GraphValue x = graph.input("x", "f32", {"n", kWidth});
  const GraphValue one = graph.op("Exp", {graph.op("Sub", {x, x})});
  graph.output("y", graph.op("Add", {graph.op("Add", {graph.op("Abs", {x}), x}), one}));
  return graph.session(options);
}

lmn_run* submit(const Session& session, const SessionValue& x, lmn_run_fn callback, void* user) {
  const lmn_session_value* in[] = {x.get()};
  lmn_run* run = nullptr;
  lmn_status status = LMN_QUEUE_FULL;
  while (status == LMN_QUEUE_FULL) {
    status = lmn_session_submit(session.get(), in, 1, nullptr, 1, callback, user, &run, nullptr);
    if (status == LMN_QUEUE_FULL) std::this_thread::yield();
  }
  return status == LMN_OK ? run : nullptr;
}

// Waits; whether the result is right, or the run was cancelled and may have been. `cancel` ends
// before the handle is given back.
bool ends_well(lmn_run* run, int64_t count, float first, bool cancelled,
               std::thread cancel = std::thread()) {
  lmn_session_value* out[] = {nullptr};
  const lmn_status status = lmn_run_wait(run, -1, out, 1, nullptr);
  if (cancel.joinable()) cancel.join();
  lmn_run_destroy(run);
  if (status == LMN_CANCELLED) return cancelled;
  return status == LMN_OK && is_affine(SessionValue(out[0]), count, first);
}

TEST(session_threads_do_everything_at_once) {
  for (const uint32_t window : {0u, 100u}) {
    const Session session = affine({.threads = 2,
                                    .max_shapes = 2,  // of three: shapes come and go
                                    .batch_window_us = window,
                                    .max_batch = 6,
                                    .max_queue = 16});
    EXPECT_EQ(session.info().batches, window > 0 ? 1u : 0u);
    std::atomic<int> wrong{0}, called{0}, wanted{0};
    const auto work = [&](int t) {
      for (int i = 0; i < 150; ++i) {
        const int64_t count = 1 + (t + i) % 3;
        const auto first = static_cast<float>(t * 1000 + i);
        const SessionValue x = counting(count, first);
        switch ((t + i) % 5) {
          case 0:
            wrong += !is_affine(session.run(x)[0], count, first);
            break;
          case 1:
            wrong += !ends_well(submit(session, x, nullptr, nullptr), count, first, false);
            break;
          case 2: {
            lmn_run* run = submit(session, x, nullptr, nullptr);
            std::thread cancel([run] { lmn_run_cancel(run); });
            wrong += !ends_well(run, count, first, true, std::move(cancel));
            break;
          }
          case 3: {
            ++wanted;
            lmn_run* run = submit(
                session, x,
                [](void* user, lmn_run*) { static_cast<std::atomic<int>*>(user)->fetch_add(1); },
                &called);
            lmn_run_destroy(run);
            break;
          }
          default:
            wrong += session.info().threads != 2;
            wrong += session.graph(true).empty();
        }
      }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
    for (std::thread& thread : threads) thread.join();
    EXPECT(eventually([&] { return called.load() == wanted.load(); }));
    EXPECT_EQ(wrong.load(), 0);
  }
}

TEST(session_threads_wait_and_cancel_while_the_session_ends) {
  for (const uint32_t window : {0u, 100u}) {
    for (int round = 0; round < 12; ++round) {
      std::vector<lmn_run*> runs;
      std::vector<std::thread> threads;
      std::atomic<int> wrong{0};
      {
        const Session session = affine({.threads = 2, .batch_window_us = window, .max_queue = 64});
        for (int i = 0; i < 4 * kThreads; ++i) {
          runs.push_back(
              submit(session, counting(1 + i % 3, static_cast<float>(i)), nullptr, nullptr));
        }
        for (int t = 0; t < kThreads; ++t) {
          threads.emplace_back([&, t] {
            for (int i = t; i < 4 * kThreads; i += kThreads) {
              if (i % 4 == 3) lmn_run_cancel(runs[static_cast<size_t>(i)]);
              wrong +=
                  !ends_well(runs[static_cast<size_t>(i)], 1 + i % 3, static_cast<float>(i), true);
            }
          });
        }
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(wrong.load(), 0);
    }
  }
}

}  // namespace
