// SPDX-License-Identifier: Apache-2.0
//
// Runs that nobody waits for: callbacks, cancelling, orders of destruction, limits, batches; and
// many threads on one session.
#include <algorithm>
#include <atomic>
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

// [rows, 3], row i is i, i + 1, i + 2 and some.
SessionValue rows(int64_t count, float first) {
  lmnative::Tensor tensor(kDLFloat, 32, {count, 3});
  const auto values = tensor.values<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i / 3 + i % 3);
  return SessionValue(std::move(tensor));
}

// y = |x| + x for x of [n, 3], of which all are 0 or more here
Session doubling(const SessionOptions& options) {
  Graph graph;
  const GraphValue x = graph.input("x", "f32", {"n", 3});
  const GraphValue positive = graph.op("Abs", {x});
  graph.output("y", graph.op("Add", {positive, x}));
  return graph.session(options);
}

bool is_doubled(const SessionValue& y, int64_t count, float first) {
  const lmnative::Tensor tensor = y.tensor();
  const auto values = tensor.values<const float>();
  if (values.size() != static_cast<size_t>(3 * count)) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 2 * (first + static_cast<float>(i / 3 + i % 3))) return false;
  }
  return true;
}

TEST(run_arguments_may_be_wrong) {
  const Session owner = doubling({.threads = 1});
  lmn_session* session = owner.get();
  const SessionValue x = rows(1, 0);
  const lmn_session_value* in[] = {x.get()};
  lmn_run* run = nullptr;
  const lmn_run_fn none = nullptr;
  EXPECT_NULL_ARGUMENT("session",
                       lmn_session_submit(nullptr, in, 1, nullptr, 1, none, nullptr, &run, err));
  EXPECT_NULL_ARGUMENT("run",
                       lmn_session_submit(session, in, 1, nullptr, 1, none, nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT(
      "inputs", lmn_session_submit(session, nullptr, 1, nullptr, 1, none, nullptr, &run, err));
  EXPECT_NULL_ARGUMENT("run", lmn_run_wait(nullptr, 0, nullptr, 0, err));
  EXPECT(lmn_session_submit(session, in, 1, nullptr, 2, none, nullptr, &run, nullptr) ==
         LMN_INVALID_ARGUMENT);
  lmn_run_cancel(nullptr);
  lmn_run_destroy(nullptr);
  EXPECT(lmn_session_submit(session, in, 1, nullptr, 1, none, nullptr, &run, nullptr) == LMN_OK);
  lmn_session_value* out[] = {nullptr, nullptr};
  EXPECT(lmn_run_wait(run, -1, out, 2, nullptr) == LMN_INVALID_ARGUMENT);
  EXPECT_NULL_ARGUMENT("outputs", lmn_run_wait(run, -1, nullptr, 1, err));
  for (int i = 0; i < 2; ++i) {  // and again
    EXPECT(lmn_run_wait(run, -1, out, 1, nullptr) == LMN_OK);
    EXPECT(is_doubled(SessionValue(out[0]), 1, 0));
  }
  lmn_run_destroy(run);
}

TEST(options_of_runs_are_checked) {
  const auto refused = [](auto&& change) {
    SessionOptions options;
    change(options);
    try {
      (void)doubling(options);
    } catch (const lmnative::Error& error) {
      return error.status() == LMN_INVALID_ARGUMENT;
    }
    return false;
  };
  EXPECT(refused([](SessionOptions& o) { o.runner = 3; }));
  EXPECT(refused([](SessionOptions& o) { o.max_queue = 1u << 30; }));
}

TEST(handles_outlive_the_session_and_its_end_answers_all) {
  std::vector<std::future<std::vector<SessionValue>>> futures;
  std::vector<lmn_run*> runs;
  {
    const Session session = doubling({.threads = 1});
    for (int i = 0; i < 50; ++i) {
      const SessionValue x = rows(2, static_cast<float>(i));
      futures.push_back(session.run_async(x));
      const lmn_session_value* in[] = {x.get()};
      lmn_run* run = nullptr;
      EXPECT(lmn_session_submit(session.get(), in, 1, nullptr, 1, nullptr, nullptr, &run,
                                nullptr) == LMN_OK);
      if (i % 3 == 0) lmn_run_cancel(run);
      runs.push_back(run);
    }
  }
  for (size_t i = 0; i < futures.size(); ++i) {
    try {
      EXPECT(is_doubled(futures[i].get()[0], 2, static_cast<float>(i)));
    } catch (const lmnative::Error& error) {
      EXPECT(error.status() == LMN_CANCELLED);
    }
    const lmn_status status = lmn_run_wait(runs[i], 0, nullptr, 0, nullptr);
    EXPECT(status == LMN_OK || status == LMN_CANCELLED);
    lmn_run_destroy(runs[i]);
  }
}

TEST(buffers_of_the_caller_are_written) {
  const Session session = doubling({.threads = 1});
  const SessionValue x = rows(2, 1), y = rows(2, 0), wrong = rows(3, 0);
  const lmn_session_value *in[] = {x.get()}, *out[] = {y.get()}, *bad[] = {wrong.get()};
  for (const auto& [buffers, status] : {std::pair(out, LMN_OK), {bad, LMN_INVALID_ARGUMENT}}) {
    lmn_run* run = nullptr;
    EXPECT(lmn_session_submit(session.get(), in, 1, buffers, 1, nullptr, nullptr, &run, nullptr) ==
           LMN_OK);
    EXPECT(lmn_run_wait(run, -1, nullptr, 0, nullptr) == status);
    lmn_run_destroy(run);
  }
  EXPECT(is_doubled(y, 2, 1));
}

// What is legal in a callback: to submit, to cancel, to release.
TEST(a_callback_submits_the_next_run) {
  struct Chain {
    const Session* session;
    const SessionValue* x;
    std::atomic<int> left{100};
    static void next(void* user, lmn_run* run) {
      auto* self = static_cast<Chain*>(user);
      lmn_run_cancel(run);  // too late, and harmless
      EXPECT(lmn_run_wait(run, 0, nullptr, 0, nullptr) == LMN_OK);
      if (self->left.load() == 1) {
        self->left.store(0);
        return;
      }
      self->left.fetch_sub(1);
      const lmn_session_value* in[] = {self->x->get()};
      EXPECT(lmn_session_submit(self->session->get(), in, 1, nullptr, 1, next, user, nullptr,
                                nullptr) == LMN_OK);
    }
  };
  const Session session = doubling({.threads = 1});
  const SessionValue x = rows(1, 0);
  Chain chain{&session, &x};
  const lmn_session_value* in[] = {x.get()};
  EXPECT(lmn_session_submit(session.get(), in, 1, nullptr, 1, Chain::next, &chain, nullptr,
                            nullptr) == LMN_OK);
  while (chain.left.load() != 0) std::this_thread::yield();
}

TEST(eight_threads_share_a_session) {
  for (const uint32_t window : {0u, 200u}) {
    const Session session = doubling({.threads = 2, .batch_window_us = window, .max_batch = 8});
    EXPECT(session.info().batches == (window > 0 ? 1u : 0u));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < (window > 0 ? 60 : 500); ++i) {
          const int64_t count = 1 + (t + i) % 3;
          const auto first = static_cast<float>(t * 1000 + i);
          if (!is_doubled(session.run(rows(count, first))[0], count, first)) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT(wrong.load() == 0);
  }
}

}  // namespace
