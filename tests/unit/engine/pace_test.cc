// SPDX-License-Identifier: Apache-2.0
//
// Paced answers: when tokens are due, and that nobody else is held up by ten thousand of them.
#include "engine/pace.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "fake_model.h"
#include "parallel/clock.h"
#include "testing.h"

namespace lmn::engine {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kHour = 3'600'000'000'000;

RequestOptions paced(std::vector<int32_t> prompt, int32_t max_tokens, int64_t interval_ns) {
  RequestOptions options = greedy(std::move(prompt), max_tokens);
  options.token_interval_ns = interval_ns;
  return options;
}

void expect_nothing_left(FakeEngine& engine) {
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.submitted, stats.finished + stats.cancelled + stats.failed);
  EXPECT_EQ(stats.queue_depth + stats.waiting + stats.running + stats.kv_pages_used, 0);
}

TEST(pace_is_kept_from_the_first_token_on) {
  EXPECT_EQ(next_due(0, 5'000, 100), 5'100);
  EXPECT_EQ(next_due(5'100, 5'130, 100), 5'200);  // late by 30, and the next is not
  EXPECT_EQ(next_due(5'100, 5'350, 100), 5'350);  // late by more than 100: the next one at once,
  EXPECT_EQ(next_due(5'350, 5'360, 100), 5'450);  // and no burst behind it
  const int64_t never = next_due(0, 5'000, INT64_MAX);
  EXPECT(never > INT64_MAX / 2 && wake_time(never, INT64_MAX) >= never);
  EXPECT_EQ(next_due(never, 5'000, INT64_MAX), never);
  EXPECT_EQ(wake_time(12'345, kMs), 12'345);
  for (const int64_t due : {int64_t{1}, kPaceGridNs - 1, kPaceGridNs, 777 * kMs}) {
    const int64_t wake = wake_time(due, 1'000 * kMs);
    EXPECT(wake >= due && wake < due + kPaceGridNs && wake % kPaceGridNs == 0);
  }
}

// Steps by the clock of the engine thread: the one of token k begins k intervals after that of the
// first token, at least.
TEST(tokens_come_at_their_pace_and_are_the_same) {
  for (const int64_t interval : {2 * kMs, 20 * kMs}) {
    std::vector<int64_t> steps;
    FakeSetup setup;
    setup.adjust = [&](FakeRunner& runner) {
      runner.on_step = [&](const StepSizes&) { steps.push_back(parallel::now_ns()); };
    };
    {
      FakeEngine engine(setup);
      const auto prompt = some_prompt(3, 10);
      const Answer answer = collect(*must_submit(*engine.engine, paced(prompt, 12, interval)));
      EXPECT(answer.tokens == reference_greedy(prompt, 12));
      EXPECT(answer.reason == FinishReason::kLength);
    }
    ASSERT(steps.size() == 12);
    for (size_t k = 1; k < steps.size(); ++k)
      EXPECT(steps[k] - steps[0] >= static_cast<int64_t>(k) * interval);
  }
}

TEST(samples_and_preempted_answers_keep_their_pace_and_tokens) {
  FakeSetup setup;
  setup.sequences = 4;
  setup.kv_tokens = 8 * kKvPageTokens;  // three answers of 120 tokens do not fit
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < 3; ++i) {
    RequestOptions options = paced(some_prompt(i, 20), 100, kMs / 4);
    options.samples = i == 0 ? 2 : 1;
    requests.push_back(must_submit(*engine.engine, std::move(options)));
  }
  for (uint64_t i = 0; i < 3; ++i) {
    std::vector<int32_t> tokens[2];
    Chunk chunk;
    while (requests[i]->next(-1, &chunk).ok()) {
      auto& sample = tokens[chunk.sample];
      sample.insert(sample.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    }
    EXPECT(tokens[0] == reference_greedy(some_prompt(i, 20), 100));
    if (i == 0) EXPECT(tokens[1] == tokens[0]);
  }
  EXPECT(engine->stats().preemptions > 0);
  expect_nothing_left(engine);
}

// With two hours between their tokens they are never due, so every step is the others': as many
// steps as those have tokens.
TEST(ten_thousand_paced_answers_hold_nobody_up) {
  constexpr size_t kPaced = 10'000;
  FakeSetup setup;
  setup.sequences = 64;  // of a step
  setup.outputs = 64;
  setup.kv_tokens = 2 * int64_t{kPaced + 100} * kKvPageTokens;
  setup.queue = 2 * kPaced;
  setup.options = [](EngineOptions& options) { options.max_sequences = kPaced + 100; };
  FakeEngine engine(setup);
  const auto begin = parallel::now_ns();
  std::vector<std::shared_ptr<Request>> requests;
  for (size_t i = 0; i < kPaced; ++i)
    requests.push_back(must_submit(*engine.engine, paced({1, int32_t(i % 60)}, 50, 2 * kHour)));
  for (size_t i = 0; i < kPaced; ++i) {
    Chunk chunk;
    ASSERT_OK(requests[i]->next(-1, &chunk));
    EXPECT_EQ(chunk.token_ids.size(), size_t{1});
  }
  const auto started = parallel::now_ns();
  EXPECT_EQ(engine->stats().running, int64_t{kPaced});
  const int64_t steps = engine->stats().steps;
  for (uint64_t i = 0; i < 5; ++i) {
    const Answer answer = collect(*must_submit(*engine.engine, greedy(some_prompt(i, 10), 40)));
    EXPECT(answer.tokens == reference_greedy(some_prompt(i, 10), 40));
  }
  EXPECT_EQ(engine->stats().steps - steps, int64_t{5 * 40});
  const auto beside = parallel::now_ns();
  // One is cancelled, one runs into its deadline: at once, although nothing is due.
  requests[17]->cancel();
  ASSERT_OK(requests[17]->wait(-1));
  EXPECT(requests[17]->stats().finish_reason == FinishReason::kCancelled);
  RequestOptions late = paced({1}, 50, kHour);
  late.deadline_ns = kMs;
  const Answer answer = collect(*must_submit(*engine.engine, std::move(late)));
  EXPECT(answer.reason == FinishReason::kDeadline);
  const auto cancelled = parallel::now_ns();
  requests.clear();
  while (engine->stats().running != 0) std::this_thread::yield();
  const auto ended = parallel::now_ns();
  expect_nothing_left(engine);
  std::printf(
      "     10,000 started in %lld us, 200 steps beside them in %lld us, ended in %lld us\n",
      static_cast<long long>((started - begin) / 1000),
      static_cast<long long>((beside - started) / 1000),
      static_cast<long long>((ended - cancelled) / 1000));
}

TEST(shutdown_does_not_wait_for_the_due_time) {
  auto engine = std::make_unique<FakeEngine>(FakeSetup{});
  auto request = must_submit(*engine->engine, paced({1}, 50, kHour));
  Chunk chunk;
  ASSERT_OK(request->next(-1, &chunk));
  engine.reset();
  EXPECT(collect(*request).reason == FinishReason::kCancelled);
}

// A cancel that races with the engine's end leaves nothing behind, by the ledger.
TEST(cancels_beside_the_shutdown) {
  for (int round = 0; round < 200; ++round) {
    auto engine = std::make_unique<FakeEngine>(FakeSetup{});
    auto request = must_submit(*engine->engine, paced({1}, 50, kHour));
    const std::shared_ptr<memory::Ledger> ledger = engine->ledger;
    std::thread canceller([&] { request->cancel(); });
    engine.reset();
    canceller.join();
    EXPECT(collect(*request).reason == FinishReason::kCancelled);
    const auto held = [&] {
      return ledger->snapshot().owners[static_cast<size_t>(memory::Owner::kRequests)].current;
    };
    EXPECT(held() > 0);
    request.reset();
    EXPECT_EQ(held(), 0);
  }
}

// More run than a step takes: they take turns. The first one may get its second token before the
// others, who come while the first step runs, have their first; from there on all go on evenly.
TEST(more_answers_than_a_step_takes_go_on_evenly) {
  constexpr int32_t kRequests = 12;
  std::vector<std::shared_ptr<Request>> requests;
  std::atomic<bool> submitted{false};
  FakeSetup setup;
  setup.sequences = 4;
  setup.outputs = 4;
  setup.kv_tokens = kRequests * 256;
  setup.options = [](EngineOptions& options) { options.max_sequences = kRequests; };
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes& sizes) {
      EXPECT(sizes.sequences <= 4);
      while (!submitted.load()) std::this_thread::yield();
      int64_t least = INT64_MAX, most = 0;
      for (const auto& request : requests) {
        least = std::min(least, request->stats().generated_tokens);
        most = std::max(most, request->stats().generated_tokens);
      }
      EXPECT(most - least <= 2);
    };
  };
  FakeEngine engine(setup);
  for (int32_t i = 0; i < kRequests; ++i)
    requests.push_back(must_submit(*engine.engine, greedy({i}, 100)));
  submitted = true;
  for (int32_t i = 0; i < kRequests; ++i)
    EXPECT(collect(*requests[size_t(i)]).tokens == reference_greedy({i}, 100));
}

}  // namespace
}  // namespace lmn::engine
