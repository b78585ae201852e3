// SPDX-License-Identifier: Apache-2.0
//
// More work than fits: who starts first, who is refused and why, what gives way, and how much of a
// step a prompt may take beside running answers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "parallel/clock.h"
#include "testing.h"

namespace lmn::engine {
namespace {

void spin(int64_t ns) {
  for (const int64_t end = parallel::now_ns() + ns; parallel::now_ns() < end;) {
  }
}

// Steps that take time, as those of a model do.
std::function<void(FakeRunner&)> costs(int64_t step_ns, int64_t token_ns) {
  return [=](FakeRunner& runner) {
    runner.on_step = [=](const StepSizes& sizes) { spin(step_ns + token_ns * sizes.tokens); };
  };
}

// Ten clients keep the engine full with work of normal priority. A client of high priority and one
// of low priority come along: the first is served at once, the second in the end.
TEST(under_overload_high_priority_goes_first_and_low_priority_goes) {
  FakeSetup setup;
  setup.sequences = 2;
  setup.outputs = 2;
  setup.adjust = costs(20'000, 0);
  FakeEngine engine(setup);
  std::atomic<bool> done{false};
  std::vector<std::thread> crowd;
  for (int c = 0; c < 10; ++c) {
    crowd.emplace_back([&] {
      while (!done.load()) {
        EXPECT(collect(*must_submit(*engine.engine, greedy({1, 2}, 20))).reason ==
               FinishReason::kLength);
      }
    });
  }
  RequestOptions low = greedy({3}, 5);
  low.priority = -2;
  const auto slow = must_submit(*engine.engine, std::move(low));
  std::vector<int64_t> normal_ns, high_ns;
  for (int i = 0; i < 20; ++i) {
    for (const int32_t priority : {0, 2}) {
      RequestOptions options = greedy({4}, 5);
      options.priority = priority;
      const auto request = must_submit(*engine.engine, std::move(options));
      EXPECT(collect(*request).reason == FinishReason::kLength);
      (priority == 0 ? normal_ns : high_ns).push_back(request->stats().queue_ns);
    }
  }
  const auto median = [](std::vector<int64_t> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  // A normal one waits for about five others; a high one takes the place of one that runs.
  EXPECT(3 * median(high_ns) < median(normal_ns));
  EXPECT(collect(*slow).reason == FinishReason::kLength);  // while the crowd goes on
  done.store(true);
  for (std::thread& client : crowd) client.join();
}

// Both places are taken when a request of high priority comes: the last of the others makes room,
// and goes on afterwards.
TEST(a_running_answer_gives_way_to_a_higher_priority) {
  FakeSetup setup;
  setup.sequences = 2;
  setup.outputs = 2;
  std::atomic<int> steps{0}, allowed{3};
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes&) {
      while (steps.load() == allowed.load()) std::this_thread::yield();
      steps.fetch_add(1);
    };
  };
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests;
  for (const int32_t token : {1, 2})
    requests.push_back(must_submit(*engine.engine, greedy({token}, 100)));
  while (engine->stats().running < 2) {
    std::this_thread::yield();
    if (steps.load() == allowed.load()) allowed.fetch_add(1);
  }
  while (steps.load() != allowed.load()) std::this_thread::yield();
  RequestOptions options = greedy({3}, 10);
  options.priority = 1;
  const auto high = must_submit(*engine.engine, std::move(options));
  allowed.store(1'000'000);
  EXPECT(collect(*high).tokens == reference_greedy({3}, 10));
  EXPECT_EQ(engine->stats().preemptions, 1);
  EXPECT_EQ(requests[0]->stats().preemptions, 0);
  EXPECT_EQ(requests[1]->stats().preemptions, 1);
  for (const int32_t token : {1, 2}) {
    EXPECT(collect(*requests[size_t(token) - 1]).tokens == reference_greedy({token}, 100));
  }
}

// Long answers of low priority that have waited long enough get one place in four, and not more,
// while answers of normal priority wait: so a low one gets a token in three steps of four at most.
TEST(what_was_due_holds_a_quarter_of_the_places) {
  FakeSetup setup;
  setup.sequences = 4;
  setup.outputs = 4;
  setup.kv_tokens = 2'000;
  setup.options = [](EngineOptions& options) { options.ageing_ns = 1; };
  std::vector<std::shared_ptr<Request>> low, normal;
  std::atomic<bool> open{false};  // when all are there
  int64_t steps = 0, tokens = 0;  // of the low ones, until the last normal one has ended
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes&) {
      while (!open.load()) std::this_thread::yield();
      const auto ended = [](const auto& request) { return is_terminal(request->stats().state); };
      if (tokens != 0 || !std::all_of(normal.rbegin(), normal.rend(), ended)) {
        steps += tokens == 0 ? 1 : 0;
        return;
      }
      for (const auto& request : low) tokens += request->stats().generated_tokens;
    };
  };
  FakeEngine engine(setup);
  for (uint64_t i = 0; i < 20; ++i) {
    RequestOptions options = greedy(some_prompt(i, 3), 200);
    options.priority = -1;
    low.push_back(must_submit(*engine.engine, std::move(options)));
  }
  for (uint64_t i = 0; i < 600; ++i)
    normal.push_back(must_submit(*engine.engine, greedy(some_prompt(i, 3), 10)));
  open.store(true);
  for (uint64_t i = 0; i < 20; ++i)
    EXPECT(collect(*low[i]).tokens == reference_greedy(some_prompt(i, 3), 200));
  for (const auto& request : normal) EXPECT(request->wait(60'000'000'000).ok());
  EXPECT(tokens > steps / 8);      // they do get on,
  EXPECT(tokens < steps * 5 / 4);  // with one place of the four
}

// The pages of lower priority would not be enough for the one that waits: nobody is preempted.
TEST(nobody_gives_way_for_nothing) {
  FakeSetup setup;
  setup.sequences = 4;
  setup.outputs = 4;
  setup.context = 320;
  setup.kv_tokens = 320;  // ten pages
  std::atomic<int> steps{0}, allowed{1'000'000};
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes&) {
      while (steps.load() >= allowed.load()) std::this_thread::yield();
      steps.fetch_add(1);
    };
  };
  FakeEngine engine(setup);
  const auto submit = [&](uint64_t seed, int32_t prompt, int32_t priority) {
    RequestOptions options = greedy(some_prompt(seed, prompt), 20);
    options.priority = priority;
    return must_submit(*engine.engine, std::move(options));
  };
  allowed.store(steps.load());          // every step waits from here on
  const auto high = submit(1, 150, 2);  // five pages
  const auto low = submit(2, 40, 0);    // two
  while (engine->stats().running < 2) {
    allowed.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto big = submit(3, 250, 1);  // eight: more than the two and the three that are free
  allowed.store(1'000'000);
  EXPECT(collect(*low).tokens == reference_greedy(some_prompt(2, 40), 20));
  EXPECT_EQ(low->stats().preemptions, 0);
  EXPECT(collect(*high).tokens == reference_greedy(some_prompt(1, 150), 20));
  EXPECT(collect(*big).tokens == reference_greedy(some_prompt(3, 250), 20));
}

// Two tenants; one has submitted fifty requests before the other's five: they take turns.
TEST(tenants_take_turns) {
  FakeSetup setup;
  std::atomic<bool> open{false};  // when all are there
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes&) {
      while (!open.load()) std::this_thread::yield();
      spin(20'000);
    };
  };
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 55; ++i) {
    RequestOptions options = greedy({1}, 5);
    options.tenant = i < 50 ? 1 : 2;
    requests.push_back(must_submit(*engine.engine, std::move(options)));
  }
  open.store(true);
  std::vector<int64_t> first, second;  // how long they waited
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT(requests[i]->wait(60'000'000'000).ok());
    (i < 50 ? first : second).push_back(requests[i]->stats().queue_ns);
  }
  // The five were submitted last, and each waited for about twice as many as there are before it in
  // its own line: less than half of the fifty did.
  std::sort(first.begin(), first.end());
  for (const int64_t ns : second) EXPECT(ns < first[25]);
}

TEST(refusals_say_what_is_full) {
  FakeSetup setup;
  setup.queue = 3;
  setup.options = [](EngineOptions& options) { options.queue_tokens = 40; };
  std::atomic<bool> open{false};
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes&) {
      while (!open.load()) std::this_thread::yield();
    };
  };
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests;
  requests.push_back(must_submit(*engine.engine, greedy({1}, 5)));
  while (engine->stats().running == 0) std::this_thread::yield();
  requests.push_back(must_submit(*engine.engine, greedy(some_prompt(1, 30), 5)));
  const auto refused = [&](int32_t prompt, const char* words) {
    const auto request = submit(*engine.engine, greedy(some_prompt(2, prompt), 5));
    EXPECT(!request.ok() && request.status().code() == Code::kQueueFull);
    EXPECT(std::string(request.status().message()).find(words) != std::string::npos);
  };
  refused(11, "30 prompt tokens are waiting, this prompt has 11, and the queue holds 40");
  requests.push_back(must_submit(*engine.engine, greedy({1}, 5)));
  requests.push_back(must_submit(*engine.engine, greedy({1}, 5)));
  refused(1, "3 requests are waiting and the queue holds 3");
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.rejected[size_t(RejectReason::kTokens)], 1);
  EXPECT_EQ(stats.rejected[size_t(RejectReason::kQueue)], 1);
  EXPECT_EQ(stats.queue_tokens, 32);
  open.store(true);
  for (const auto& request : requests) EXPECT(collect(*request).reason == FinishReason::kLength);
  requests.clear();
  EXPECT_EQ(engine->stats().queue_tokens, 0);
  // The engine thread lets go of the last one a moment after its end can be seen.
  for (const int64_t end = parallel::now_ns() + 10'000'000'000;
       engine->stats().queue_bytes != 0 && parallel::now_ns() < end;)
    std::this_thread::yield();
  EXPECT_EQ(engine->stats().queue_bytes, 0);
}

TEST(the_bytes_of_live_requests_are_bounded) {
  FakeSetup setup;
  setup.options = [](EngineOptions& options) { options.queue_bytes = 10'000; };
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> kept;
  Status refusal;
  while (refusal.ok()) {
    auto request = submit(*engine.engine, greedy({1}, 100));
    if (!request.ok()) {
      refusal = request.status();
    } else {
      EXPECT((*request)->wait(10'000'000'000).ok());
      kept.push_back(*request);  // its answer can still be read, so it still counts
    }
  }
  EXPECT(refusal.code() == Code::kQueueFull);
  EXPECT(std::string(refusal.message()).find("the bound is 10000") != std::string::npos);
  EXPECT(!kept.empty() && kept.size() < 100);
  EXPECT_EQ(engine->stats().rejected[size_t(RejectReason::kBytes)], 1);
  kept.pop_back();
  // The engine thread may hold the last one a moment longer.
  bool again = false;
  for (const int64_t end = parallel::now_ns() + 10'000'000'000; !again && parallel::now_ns() < end;)
    again = submit(*engine.engine, greedy({1}, 100)).ok();
  EXPECT(again);
  // What alone is more than the bound will never fit, and is told so.
  RequestOptions large = greedy({1}, 200);
  large.samples = 20;
  const auto never = submit(*engine.engine, std::move(large));
  EXPECT(!never.ok() && never.status().code() == Code::kOutOfMemory);
}

// Thirty requests whose outcomes need 26 times the cache: all finish.
TEST(a_cache_that_is_too_small_delays_and_loses_nothing) {
  FakeSetup setup;
  setup.sequences = 30;
  setup.outputs = 30;
  setup.context = 512;
  setup.kv_tokens = 256;
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < 30; ++i)
    requests.push_back(must_submit(*engine.engine, greedy(some_prompt(i, 3), 220)));
  for (uint64_t i = 0; i < 30; ++i)
    EXPECT(collect(*requests[i]).tokens == reference_greedy(some_prompt(i, 3), 220));
  EXPECT(engine->stats().preemptions > 0);
  EXPECT_EQ(engine->stats().kv_pages_used, 0);
  // What could never fit is refused when it is submitted.
  const auto never = submit(*engine.engine, greedy(some_prompt(1, 200), 57));
  EXPECT(!never.ok() && never.status().code() == Code::kOutOfMemory);
  EXPECT_EQ(engine->stats().rejected[size_t(RejectReason::kMemory)], 1);
}

// A step costs 1 ms and 0.1 ms for each token. An answer is being generated while a prompt of 4,000
// tokens comes in: it gets its next token within three times the time it takes alone, and the
// prompt is done in the end. The median, because the machine that times the steps may be busy;
// pacer_test.cc has the 99th percentile on a modelled clock.
TEST(an_answer_beside_a_long_prompt_keeps_its_pace) {
  constexpr int64_t kStepNs = 1'000'000, kTokenNs = 100'000;
  FakeSetup setup;
  setup.sequences = 2;
  setup.outputs = 2;
  setup.tokens = 512;
  setup.context = 8'192;
  setup.kv_tokens = 16'384;
  std::vector<int64_t> modelled;  // of steps with both in them
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes& sizes) {
      const int64_t ns = kStepNs + kTokenNs * sizes.tokens;
      if (sizes.sequences == 2) modelled.push_back(ns);
      spin(ns);
    };
  };
  FakeEngine engine(setup);
  const auto answer = must_submit(*engine.engine, greedy({1, 2, 3}, 8'000));
  Chunk chunk;
  for (int i = 0; i < 20; ++i) ASSERT_OK(answer->next(-1, &chunk));
  const auto prompt = must_submit(*engine.engine, greedy(some_prompt(1, 4'000), 1));
  EXPECT(prompt->wait(kHangs).ok());
  EXPECT(collect(*prompt).tokens == reference_greedy(some_prompt(1, 4'000), 1));
  answer->cancel();
  EXPECT(answer->wait(10'000'000'000).ok());
  // Unpaced, 8 steps of 52 times an answer's; paced by a quiet clock, 400 of twice its time.
  ASSERT(modelled.size() > 20);
  std::sort(modelled.begin(), modelled.end());
  EXPECT(modelled[modelled.size() / 2] <= 10 * (kStepNs + kTokenNs));
}

}  // namespace
}  // namespace lmn::engine
