// SPDX-License-Identifier: Apache-2.0
//
// lmnative.hpp: futures, callbacks, samples and the descriptor in C++.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "abuse.h"
#include "lmnative/lmnative.hpp"

namespace {

struct Null {
  explicit Null(const char* name = "null:", lmnative::EngineOptions options = {})
      : engine(lmnative::Model(name), with_defaults(std::move(options))) {}
  static lmnative::EngineOptions with_defaults(lmnative::EngineOptions options) {
    options.threads = 1;
    options.kv_tokens = 16384;
    return options;
  }
  lmnative::Engine engine;
};

lmnative::RequestOptions sampled(uint64_t seed, uint32_t max_tokens) {
  return {.max_tokens = max_tokens, .temperature = 1, .seed = seed};
}

lmn_status status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const lmnative::Error& error) {
    return error.status();
  }
  return LMN_OK;
}

// A callback that throws the library's own Error, such as the QUEUE_FULL of a request that it
// submits itself: it cancels, like anything it throws, and is called no more once the end was seen.
TEST(hpp_an_error_thrown_by_a_callback_is_not_taken_for_the_requests_own) {
  for (const bool at_the_end : {false, true}) {
    Null null;
    std::atomic<int> calls{0}, failures{0};
    lmnative::Request request =
        null.engine.submit("x", {.max_tokens = 20}, [&](const lmnative::Chunk& chunk) -> bool {
          ++calls;
          if (chunk.error != nullptr) ++failures;
          if (!at_the_end || chunk.finish_reason != LMN_FINISH_NONE)
            throw lmnative::Error(LMN_QUEUE_FULL, "the follow-up is refused");
          return true;
        });
    EXPECT(request.wait(std::chrono::seconds(20)));
    const int seen = calls.load();
    EXPECT(seen >= 1 && seen <= 21);
    EXPECT_EQ(failures.load(), 0);
    usleep(20'000);
    EXPECT_EQ(calls.load(), seen);
  }
}

}  // namespace

TEST(futures_of_many_requests) {
  Null null;
  std::vector<std::future<lmnative::Answer>> futures;
  for (uint64_t i = 0; i < 200; ++i)
    futures.push_back(null.engine.generate_async("future", sampled(i, 1 + i % 30)));
  for (uint64_t i = 0; i < futures.size(); ++i) {
    const lmnative::Answer answer = futures[i].get();
    EXPECT_EQ(answer.token_ids.size(), 1 + i % 30);
    EXPECT_EQ(answer.finish_reason, uint32_t(LMN_FINISH_LENGTH));
    EXPECT_EQ(answer.stats.generated_tokens, answer.token_ids.size());
    EXPECT_EQ(answer.stats.seed, i);
    if (i % 50 == 0) {
      const lmnative::Answer alone = null.engine.generate("future", sampled(i, 1 + i % 30));
      EXPECT(alone.token_ids == answer.token_ids);
      EXPECT_EQ(alone.text, answer.text);
    }
  }
  abuse::expect_idle(null.engine.get());
}

TEST(a_future_outlives_its_engine_and_is_ready_then) {
  std::future<lmnative::Answer> future, failed;
  {
    Null null("null:step_ns=1000000");
    future = null.engine.generate_async("a", {.max_tokens = 4000});
    EXPECT_EQ(status_of([&] { (void)null.engine.generate_async("a", {.priority = 9}); }),
              LMN_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { (void)null.engine.generate_async("a", {.n = 4'000'000'000}); }),
              LMN_INVALID_ARGUMENT);
    // Fails on the engine, when every token is forbidden.
    std::vector<lmn_token_bias> none;
    for (int32_t id = 0; id < 1000; ++id) none.push_back({id, -INFINITY});
    failed = null.engine.generate_async("a", {.max_tokens = 3, .logit_bias = none});
    EXPECT_EQ(status_of([&] { failed.get(); }), LMN_INVALID_ARGUMENT);
  }
  ASSERT(future.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  EXPECT_EQ(future.get().finish_reason, uint32_t(LMN_FINISH_CANCELLED));
}

TEST(samples_come_apart_and_together) {
  Null null;
  lmnative::RequestOptions options = sampled(7, 9);
  options.n = 3;
  const lmnative::Answer all = null.engine.generate("s", options);
  const lmnative::Answer async = null.engine.generate_async("s", options).get();
  ASSERT(all.other_samples.size() == 2 && async.other_samples.size() == 2);
  EXPECT_EQ(all.stats.generated_tokens, 27u);
  for (uint64_t i = 0; i < 3; ++i) {
    const lmnative::Answer alone = null.engine.generate("s", sampled(7 + i, 9));
    EXPECT(alone.token_ids == (i == 0 ? all : all.other_samples[i - 1]).token_ids);
    EXPECT(alone.token_ids == (i == 0 ? async : async.other_samples[i - 1]).token_ids);
    EXPECT_EQ(alone.text, (i == 0 ? all : all.other_samples[i - 1]).text);
  }
  lmnative::Request request = null.engine.submit("s", options);
  uint32_t ended = 0;
  while (const std::optional<lmnative::Chunk> chunk = request.next())
    ended += chunk->finish_reason != LMN_FINISH_NONE;
  EXPECT_EQ(ended, 3u);
  EXPECT(request.finished());
}

TEST(the_callback_form) {
  Null null;
  std::vector<int32_t> ids;
  std::promise<uint32_t> end;
  const lmnative::Request request =
      null.engine.submit("c", sampled(5, 40), [&](const lmnative::Chunk& chunk) {
        ids.insert(ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
        if (chunk.finish_reason != LMN_FINISH_NONE) end.set_value(chunk.finish_reason);
        return true;
      });
  EXPECT_EQ(end.get_future().get(), uint32_t(LMN_FINISH_LENGTH));
  EXPECT(ids == null.engine.generate("c", sampled(5, 40)).token_ids);
}

TEST(wait_waits_for_the_callback) {
  Null null;
  for (int i = 0; i < 50; ++i) {
    size_t tokens = 0;
    lmnative::Request request =
        null.engine.submit("c", {.max_tokens = 7, .n = 2}, [&](const lmnative::Chunk& chunk) {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          tokens += chunk.token_ids.size();
          return true;
        });
    EXPECT(!request.wait(std::chrono::nanoseconds(1)));
    EXPECT(request.wait());
    EXPECT_EQ(tokens, 14u);
  }
}

TEST(a_callback_says_stop_or_throws) {
  Null null("null:step_ns=1000000");
  for (const bool throws : {false, true}) {
    std::promise<uint32_t> end;
    lmnative::Request request =
        null.engine.submit("c", {.max_tokens = 4000}, [&](const lmnative::Chunk& chunk) {
          if (chunk.finish_reason != LMN_FINISH_NONE) end.set_value(chunk.finish_reason);
          if (throws) throw std::runtime_error("from on_chunk");
          return false;
        });
    EXPECT_EQ(end.get_future().get(), uint32_t(LMN_FINISH_CANCELLED));
    EXPECT(request.wait(std::chrono::seconds(60)));
  }
}

TEST(a_failure_reaches_the_callback) {
  Null null;
  std::vector<lmn_token_bias> none;
  for (int32_t id = 0; id < 1000; ++id) none.push_back({id, -INFINITY});
  std::promise<lmn_status> end;
  lmnative::Request request = null.engine.submit(
      "c", {.max_tokens = 3, .logit_bias = none}, [&](const lmnative::Chunk& chunk) {
        if (chunk.finish_reason == LMN_FINISH_ERROR && chunk.error != nullptr)
          end.set_value(chunk.error->status());
        return true;
      });
  EXPECT_EQ(end.get_future().get(), LMN_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { request.wait(); }), LMN_INVALID_ARGUMENT);
}

TEST(a_request_goes_away_in_its_own_callback) {
  Null null("null:step_ns=20000");
  for (int i = 0; i < 50; ++i) {
    struct Holder {
      std::mutex mutex;
      std::optional<lmnative::Request> request;
    };
    const auto holder = std::make_shared<Holder>();
    std::promise<void> gone;
    std::atomic<bool> once{false};
    {
      // The callback may come at once: it waits until the request is where it looks for it.
      const std::lock_guard lock(holder->mutex);
      holder->request = null.engine.submit(
          "c", {.max_tokens = 500}, [holder = holder.get(), &gone, &once](const lmnative::Chunk&) {
            {
              const std::lock_guard inner(holder->mutex);
              holder->request.reset();  // this function object goes with it, after the call
            }
            EXPECT(!once.exchange(true));
            gone.set_value();
            return true;
          });
    }
    gone.get_future().get();
    const std::lock_guard lock(holder->mutex);
  }
  abuse::expect_idle(null.engine.get());
}

TEST(requests_move) {
  Null null;
  std::atomic<int> chunks{0};
  const auto count = [&](const lmnative::Chunk&) {
    ++chunks;
    return true;
  };
  lmnative::Request first = null.engine.submit("m", {.max_tokens = 50}, count);
  first = null.engine.submit("m", {.max_tokens = 20}, count);  // destroys the one before
  lmnative::Request second(std::move(first));
  second.wait();
  lmnative::Request plain = null.engine.submit("m", {.max_tokens = 2, .n = 2});
  plain = null.engine.submit("m", {.max_tokens = 2});
  EXPECT_EQ(plain.collect().token_ids.size(), 2u);
  EXPECT(plain.finished());
}

TEST(the_descriptor_and_figures_in_cpp) {
  Null null("null:", {.max_sequences = 8, .trace_events = 1 << 14, .profile = true});
  std::vector<lmnative::Request> requests;
  for (uint64_t tag = 0; tag < 20; ++tag)
    requests.push_back(null.engine.submit("d", {.max_tokens = 10, .tag = tag, .notify = true}));
  std::vector<size_t> tokens(20);
  size_t open = 20;
  while (open > 0) {
    pollfd what{null.engine.descriptor(), POLLIN, 0};
    ASSERT(poll(&what, 1, 60'000) == 1);
    uint64_t buffer[6];
    for (const uint64_t tag : null.engine.drain(buffer)) {
      while (const auto chunk = requests[tag].next(std::chrono::nanoseconds(0))) {
        tokens[tag] += chunk->token_ids.size();
        open -= chunk->finish_reason != LMN_FINISH_NONE;
      }
    }
  }
  for (const size_t count : tokens) EXPECT_EQ(count, 10u);
  EXPECT_EQ(null.engine.stats().max_sequences, 8u);
  EXPECT_EQ(std::string(null.engine.histograms().front().name), "step");
  const lmnative::Trace trace = null.engine.trace();
  EXPECT(!trace.events.empty());
  EXPECT_EQ(trace.lost, 0u);
  const std::vector<lmn_profile_entry> profile = null.engine.profile();
  ASSERT(profile.size() == 10);  // a null model has no parts
  EXPECT_EQ(std::string(profile[2].name), "run");
  EXPECT(profile[2].calls > 0 && profile[2].step_kind == LMN_STEP_DECODE);
  Null without;
  EXPECT_EQ(status_of([&] { (void)without.engine.trace(); }), LMN_UNSUPPORTED);
  EXPECT_EQ(status_of([&] { (void)without.engine.profile(); }), LMN_UNSUPPORTED);
}
