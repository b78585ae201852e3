// SPDX-License-Identifier: Apache-2.0
//
// Beginnings and ends: cancel, destroy, deadlines, back-pressure, priorities, failures, fork,
// idleness.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "parallel/clock.h"
#include "parallel/event_count.h"
#include "testing.h"

namespace lmn::engine {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Stops the engine thread before each step until it is opened.
class Gate {
 public:
  std::function<void(FakeRunner&)> adjust() {
    return [this](FakeRunner& runner) { runner.on_step = [this](const StepSizes&) { pass(); }; };
  }
  void open() {
    open_.store(true);
    count_.advance();
  }
  void wait_until_reached() {
    while (!reached_.load()) std::this_thread::yield();
  }

 private:
  void pass() {
    reached_.store(true);
    for (;;) {
      const uint32_t seen = count_.value();
      if (open_.load()) return;
      count_.wait(seen, 0);
    }
  }
  std::atomic<bool> open_{false}, reached_{false};
  parallel::EventCount count_;
};

template <typename Condition>
bool soon(const Condition& condition) {
  for (const int64_t end = parallel::now_ns() + 10 * kSecond; parallel::now_ns() < end;) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

// Everything that was taken is back.
void expect_at_rest(FakeEngine& engine) {
  EXPECT(soon([&] { return engine->memory()[memory::Owner::kRequests].current == 0; }));
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.queue_depth, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.submitted, stats.finished + stats.cancelled + stats.failed);
}

TEST(cancel_at_random_moments_gives_everything_back) {
  FakeSetup setup;
  setup.threads = 2;
  setup.sequences = 3;
  setup.chunk = 16;
  FakeEngine engine(setup);
  int cancelled = 0;
  for (uint64_t i = 0; i < 1'000; ++i) {
    const auto prompt = some_prompt(i, 1 + static_cast<int32_t>(mix(i) % 100));
    const auto bystander_prompt = some_prompt(i + 5'000, 20);
    const auto request = must_submit(*engine.engine, greedy(prompt, 150));
    const auto bystander = must_submit(*engine.engine, greedy(bystander_prompt, 5));
    for (uint64_t spin = mix(i + 31) % 20'000; spin > 0; --spin) parallel::cpu_pause();
    request->cancel();
    const Answer answer = collect(*request);
    cancelled += answer.reason == FinishReason::kCancelled ? 1 : 0;
    // Cancelled or not: what was delivered are the first tokens of the answer.
    const auto want = reference_greedy(prompt, static_cast<int32_t>(answer.tokens.size()));
    EXPECT(answer.tokens == want);
    EXPECT(collect(*bystander).tokens == reference_greedy(bystander_prompt, 5));
    if (i % 100 == 0) {
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.running + stats.waiting + stats.queue_depth + stats.kv_pages_used, 0);
    }
  }
  EXPECT(cancelled > 100);
  std::printf("     %d of 1000 were cancelled in time\n", cancelled);
  expect_at_rest(engine);
}

TEST(dropped_handles_cancel) {
  FakeEngine engine({});
  std::vector<float> rows(size_t(200 * kFakeVocab));
  for (uint64_t i = 0; i < 300; ++i) {
    RequestOptions options = greedy(some_prompt(i, 30), 200);
    if (i % 2 == 0) {  // the engine writes into rows: the drop must wait until it does no more
      options.logits = rows.data();
      options.logits_rows = 200;
    }
    auto request = must_submit(*engine.engine, std::move(options));
    for (uint64_t spin = mix(i) % 5'000; spin > 0; --spin) parallel::cpu_pause();
    request.reset();
    if (i % 2 == 0)
      std::fill(rows.begin(), rows.end(), 0.0F);  // a race under ThreadSanitizer, were it not so
  }
  EXPECT(soon([&] { return engine->stats().running == 0; }));
  expect_at_rest(engine);
}

TEST(destroy_in_flight_ends_every_request) {
  for (uint64_t round = 0; round < 50; ++round) {
    std::vector<std::shared_ptr<Request>> requests;
    int64_t device_bytes = -1;
    {
      FakeSetup setup;
      setup.threads = 2;
      setup.sequences = 2;
      auto engine = std::make_unique<FakeEngine>(setup);
      for (uint64_t i = 0; i < 6; ++i)
        requests.push_back(must_submit(*engine->engine, greedy(some_prompt(i, 20), 200)));
      for (uint64_t spin = mix(round) % 10'000; spin > 0; --spin) parallel::cpu_pause();
      engine->engine.reset();
      device_bytes = engine->device.allocated;
      EXPECT_EQ(engine->ledger->snapshot()[memory::Owner::kKv].current, 0);
    }
    EXPECT_EQ(device_bytes, 0);
    for (size_t i = 0; i < requests.size(); ++i) {  // readable after the engine is gone
      const Answer answer = collect(*requests[i]);
      EXPECT(answer.reason == FinishReason::kCancelled || answer.reason == FinishReason::kLength);
      const auto n = static_cast<int32_t>(answer.tokens.size());
      EXPECT(answer.tokens == reference_greedy(some_prompt(i, 20), n));
      EXPECT((requests[i]->wait(0)).ok());
      requests[i]->cancel();
    }
  }
}

TEST(submit_races_with_shutdown_and_nothing_hangs) {
  for (int round = 0; round < 50; ++round) {
    FakeEngine engine({});
    std::atomic<int> closed{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 3; ++c) {
      clients.emplace_back([&] {
        for (;;) {
          auto request = submit(*engine.engine, greedy({1, 2, 3}, 5));
          if (!request.ok()) {
            if (request.status().code() == Code::kClosed) break;
            continue;  // QUEUE_FULL
          }
          (*request)->cancel();
          EXPECT(((*request)->wait(10 * kSecond)).ok());
        }
        ++closed;
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    engine->shutdown();
    for (auto& client : clients) client.join();
    EXPECT_EQ(closed.load(), 3);
    engine->shutdown();  // again is fine
    expect_at_rest(engine);
  }
}

TEST(full_queue_refuses_at_once_and_recovers) {
  Gate gate;
  FakeSetup setup;
  setup.queue = 4;
  setup.adjust = gate.adjust();
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests = {must_submit(*engine.engine, greedy({1}, 2))};
  gate.wait_until_reached();  // the first one runs
  for (int i = 0; i < 4; ++i) requests.push_back(must_submit(*engine.engine, greedy({2}, 2)));
  const auto refused = submit(*engine.engine, greedy({3}, 2));
  ASSERT(!refused.ok());
  EXPECT(refused.status().code() == Code::kQueueFull);
  EXPECT(refused.status().message().find("4") != std::string_view::npos);
  EXPECT_EQ(rejected_in(engine->stats()), 1);
  EXPECT_EQ(engine->stats().waiting + engine->stats().queue_depth, 4);
  Chunk chunk;
  EXPECT(requests[1]->next(0, &chunk).code() == Code::kTimeout);
  EXPECT(requests[1]->wait(1'000'000).code() == Code::kTimeout);
  gate.open();
  for (const auto& request : requests) EXPECT_EQ(collect(*request).tokens.size(), size_t{2});
  requests.clear();
  EXPECT_EQ(collect(*must_submit(*engine.engine, greedy({3}, 2))).tokens.size(), size_t{2});
  expect_at_rest(engine);
}

TEST(higher_priority_first_and_first_come_inside_one) {
  Gate gate;
  FakeSetup setup;
  setup.adjust = gate.adjust();
  FakeEngine engine(setup);
  const auto first = must_submit(*engine.engine, greedy({1}, 2));
  gate.wait_until_reached();
  struct Waiter {
    int32_t priority;
    std::shared_ptr<Request> request;
  };
  std::vector<Waiter> waiters;
  for (const int32_t priority : {0, -2, 2, 0, 1, 2, -1, 0}) {
    RequestOptions options = greedy({1}, 2);
    options.priority = priority;
    waiters.push_back({priority, must_submit(*engine.engine, std::move(options))});
  }
  gate.open();
  for (const Waiter& waiter : waiters) EXPECT((waiter.request->wait(20 * kSecond)).ok());
  // Started in the order (priority, submission): stable sort by priority must sort the start times.
  std::stable_sort(waiters.begin(), waiters.end(),
                   [](const Waiter& a, const Waiter& b) { return a.priority > b.priority; });
  // Submit times differ by microseconds; the runs lie behind one another, so queue_ns orders them
  // except for that.
  for (size_t i = 1; i < waiters.size(); ++i) {
    EXPECT(waiters[i].request->stats().queue_ns > waiters[i - 1].request->stats().queue_ns ||
           waiters[i].request->id() > waiters[i - 1].request->id());
  }
  EXPECT(first->stats().finish_reason == FinishReason::kLength);
}

TEST(cancel_and_deadline_reach_a_request_that_waits) {
  Gate gate;
  FakeSetup setup;
  setup.adjust = gate.adjust();
  FakeEngine engine(setup);
  const auto running = must_submit(*engine.engine, greedy({1}, 3));
  gate.wait_until_reached();
  const auto cancelled = must_submit(*engine.engine, greedy({2}, 3));
  RequestOptions options = greedy({3}, 3);
  options.deadline_ns = 1'000'000;
  const auto late = must_submit(*engine.engine, std::move(options));
  const auto patient = must_submit(*engine.engine, greedy({4}, 3));
  cancelled->cancel();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gate.open();
  const Answer a = collect(*cancelled), b = collect(*late);
  EXPECT(a.reason == FinishReason::kCancelled && a.tokens.empty());
  EXPECT(b.reason == FinishReason::kDeadline && b.tokens.empty());
  EXPECT_EQ(collect(*running).tokens.size(), size_t{3});
  EXPECT_EQ(collect(*patient).tokens.size(), size_t{3});
}

TEST(deadline_ends_a_running_request) {
  FakeSetup setup;
  setup.adjust = [](FakeRunner& runner) {
    runner.on_step = [](const StepSizes&) { usleep(1'000); };
  };
  FakeEngine engine(setup);
  const auto prompt = some_prompt(1, 10);
  RequestOptions options = greedy(prompt, 200);
  options.deadline_ns = 20'000'000;
  const auto request = must_submit(*engine.engine, std::move(options));
  const Answer answer = collect(*request);
  EXPECT(answer.reason == FinishReason::kDeadline);
  EXPECT(!answer.tokens.empty() && answer.tokens.size() < 100);
  EXPECT(answer.tokens == reference_greedy(prompt, static_cast<int32_t>(answer.tokens.size())));
}

TEST(broken_logits_fail_one_request_and_leave_no_trace) {
  FakeSetup setup;
  setup.sequences = 3;
  setup.adjust = [](FakeRunner& runner) { runner.nan_after = 7; };
  FakeEngine engine(setup);
  const auto usable =
      [](uint64_t seed) {  // a prompt whose greedy answer never meets the broken token
        for (uint64_t s = seed;; ++s) {
          auto prompt = some_prompt(s, 30);
          const auto answer = reference_greedy(prompt, 20);
          if (std::count(prompt.begin(), prompt.end(), 7) +
                  std::count(answer.begin(), answer.end(), 7) ==
              0)
            return prompt;
        }
      };
  const auto good_prompt = usable(0), other_prompt = usable(1'000);
  auto bad_prompt = good_prompt;
  bad_prompt.push_back(7);
  const auto good = must_submit(*engine.engine, greedy(good_prompt, 20));
  const auto bad = must_submit(*engine.engine, greedy(bad_prompt, 20));
  const auto other = must_submit(*engine.engine, greedy(other_prompt, 20));
  const Answer answer = collect(*bad);
  EXPECT(answer.status.code() == Code::kCorrupt);
  EXPECT(answer.status.message().find("nan") != std::string_view::npos);
  EXPECT(answer.tokens.empty());
  EXPECT(bad->wait(0).code() == Code::kCorrupt);
  EXPECT(bad->stats().state == RequestState::kFailed);
  EXPECT(bad->stats().finish_reason == FinishReason::kError);
  EXPECT(collect(*good).tokens == reference_greedy(good_prompt, 20));
  EXPECT(collect(*other).tokens == reference_greedy(other_prompt, 20));
  EXPECT_EQ(engine->stats().failed, 1);
  EXPECT_EQ(engine->stats().kv_pages_used, 0);

  std::vector<float> rows(bad_prompt.size() * size_t(kFakeVocab));
  RequestOptions options;
  options.kind = RequestKind::kScore;
  options.prompt = bad_prompt;
  options.logits = rows.data();
  options.logits_rows = static_cast<int64_t>(bad_prompt.size());
  EXPECT(must_submit(*engine.engine, std::move(options))->wait(20 * kSecond).code() ==
         Code::kCorrupt);
}

TEST(a_runners_error_fails_the_requests_of_the_step) {
  FakeSetup setup;
  setup.adjust = [](FakeRunner& runner) { runner.error_after = 9; };
  FakeEngine engine(setup);
  const Answer answer = collect(*must_submit(*engine.engine, greedy({9}, 5)));
  EXPECT(answer.status.code() == Code::kIo);
  EXPECT(answer.status.message().find("fake device lost") != std::string_view::npos);
  EXPECT_EQ(engine->stats().kv_pages_used, 0);
  EXPECT_EQ(collect(*must_submit(*engine.engine, greedy({1}, 1))).tokens.size(), size_t{1});
}

TEST(a_broken_invariant_closes_the_engine_and_not_the_process) {
  for (const int threads : {1, 3}) {
    FakeSetup setup;
    setup.threads = threads;
    setup.adjust = [](FakeRunner& runner) { runner.throw_after = 9; };
    FakeEngine engine(setup);
    const auto bad = must_submit(*engine.engine, greedy({9}, 5));
    const Answer answer = collect(*bad);
    EXPECT(answer.status.code() == Code::kInternal);
    EXPECT(answer.status.message().find("fake kernel broke") != std::string_view::npos);
    EXPECT(soon(
        [&] { return submit(*engine.engine, greedy({1}, 1)).status().code() == Code::kClosed; }));
    const auto refused = submit(*engine.engine, greedy({1}, 1));
    EXPECT(refused.status().message().find("fake kernel broke") != std::string_view::npos);
    EXPECT_EQ(engine->stats().running, 0);
  }
}

// The device fails while pages are wiped: of a running request that is cancelled, of one that gives
// way to a higher priority. Every request ends with the message, and no figure is left behind.
TEST(an_engine_that_breaks_while_it_takes_pages_back_loses_no_request) {
  for (const bool preempted : {false, true}) {
    FakeSetup setup;
    setup.chunk = 16;
    Gate gate;
    setup.adjust = gate.adjust();
    FakeEngine engine(setup);
    const auto first = must_submit(*engine.engine, greedy(some_prompt(1, 100), 5));
    gate.wait_until_reached();
    std::vector<std::shared_ptr<Request>> waiting;
    for (int i = 0; i < 3; ++i) {
      RequestOptions options = greedy(some_prompt(2, 10), 5);
      options.priority = preempted && i == 0 ? 2 : 0;
      options.samples = i == 1 ? 3 : 1;
      waiting.push_back(must_submit(*engine.engine, std::move(options)));
    }
    engine.device.copies_fail.store(true);
    if (!preempted) first->cancel();
    gate.open();
    EXPECT(first->wait(10 * kSecond).code() == Code::kInternal);
    for (const auto& request : waiting) {
      EXPECT(request->wait(10 * kSecond).code() == Code::kInternal);
      for (Status status; status.code() != Code::kClosed;) {
        Chunk chunk;
        status = request->next(10 * kSecond, &chunk);
        EXPECT(status.code() == Code::kInternal || status.code() == Code::kClosed);
      }
    }
    EXPECT(submit(*engine.engine, greedy({1}, 1)).status().code() == Code::kClosed);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.queue_tokens, 0);
    EXPECT_EQ(stats.queue_depth + stats.waiting + stats.running, 0);
    EXPECT_EQ(stats.kv_pages_used, 0);
    EXPECT_EQ(stats.failed, 4);
    engine.device.copies_fail.store(false);
  }
}

TEST(forked_child_gets_errors_and_can_destroy_in_any_order) {
  Gate gate;
  FakeSetup setup;
  setup.threads = 2;
  setup.adjust = gate.adjust();
  auto engine = std::make_unique<FakeEngine>(setup);
  auto request = must_submit(*engine->engine, greedy({1, 2}, 10));
  std::vector<float> rows(size_t(10 * kFakeVocab));
  RequestOptions options = greedy({1, 2}, 10);
  options.logits = rows.data();
  options.logits_rows = 10;
  auto with_rows = must_submit(*engine->engine, std::move(options));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a hang is a failure
    Chunk chunk;
    bool ok = request->next(-1, &chunk).code() == Code::kClosed &&
              request->wait(-1).code() == Code::kClosed;
    ok = ok && submit(*engine->engine, greedy({1}, 1)).status().code() == Code::kClosed;
    request->cancel();
    engine->engine->shutdown();
    with_rows.reset();
    engine->engine.reset();
    request.reset();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  gate.open();
  EXPECT(collect(*request).tokens == reference_greedy({1, 2}, 10));  // the parent's goes on
}

TEST(idle_engine_uses_no_cpu) {
  FakeSetup setup;
  setup.threads = 2;
  FakeEngine engine(setup);
  (void)collect(*must_submit(*engine.engine, greedy({1}, 5)));
  usleep(5'000);
  const auto cpu_us = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const auto before = cpu_us();
  usleep(200'000);
  EXPECT(cpu_us() - before < 50'000);  // of 200 ms, in ticks of up to 10 ms
}

TEST(two_threads_that_read_one_request_share_its_tokens) {
  FakeEngine engine({});
  for (uint64_t i = 0; i < 50; ++i) {
    const auto prompt = some_prompt(i, 5);
    const auto request = must_submit(*engine.engine, greedy(prompt, 100));
    Answer halves[2];
    std::thread other([&] { halves[1] = collect(*request); });
    halves[0] = collect(*request);
    other.join();
    std::vector<int32_t> all = halves[0].tokens;
    all.insert(all.end(), halves[1].tokens.begin(), halves[1].tokens.end());
    auto want = reference_greedy(prompt, 100);
    std::sort(all.begin(), all.end());
    std::sort(want.begin(), want.end());
    EXPECT(all == want);
    // One of them is handed the end, the other is told that it was.
    const Answer& ended = halves[halves[0].reason == FinishReason::kLength ? 0 : 1];
    const Answer& other_one = halves[&ended == &halves[0] ? 1 : 0];
    EXPECT(ended.status.ok() && ended.reason == FinishReason::kLength);
    EXPECT(other_one.status.code() == Code::kClosed);
  }
}

TEST(eight_client_threads) {
  FakeSetup setup;
  setup.threads = 2;
  setup.sequences = 4;
  setup.chunk = 24;
  setup.queue = 16;
  FakeEngine engine(setup);
  std::atomic<int> wrong{0}, done{0};
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < 60;) {
        const uint64_t key = mix(c * 1'000 + i);
        const auto prompt = some_prompt(key, 1 + static_cast<int32_t>(key % 90));
        RequestOptions options = greedy(prompt, 1 + static_cast<int32_t>(key % 40));
        options.priority = static_cast<int32_t>(key % 5) - 2;
        const int32_t count = options.max_tokens;
        auto request = submit(*engine.engine, std::move(options));
        if (!request.ok()) {  // QUEUE_FULL
          std::this_thread::yield();
          continue;
        }
        ++i;
        if (key % 7 == 0) continue;  // dropped
        if (key % 11 == 0) (*request)->cancel();
        const Answer answer = collect(**request);
        const bool whole = answer.reason == FinishReason::kLength;
        const auto n = whole ? count : static_cast<int32_t>(answer.tokens.size());
        if (answer.tokens != reference_greedy(prompt, n)) ++wrong;
        if (!whole && answer.reason != FinishReason::kCancelled) ++wrong;
        ++done;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT(done.load() > 300);
  EXPECT(soon([&] {
    return engine->stats().running + engine->stats().waiting + engine->stats().queue_depth == 0;
  }));
  expect_at_rest(engine);
}

}  // namespace
}  // namespace lmn::engine
