// SPDX-License-Identifier: Apache-2.0
//
// Same request, same tokens: alone, together, in any chunks, with and without the prefix cache,
// preempted, as one of several samples, on one, two and three threads. The model is a hash of the
// tokens kept in the KV pages (fake_model.h): a page too many, too few, stale or another's shows as
// other tokens.
#include <algorithm>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

constexpr uint64_t kManyRequests = 200;

// Requests that differ in length, seed, priority, tenant and samples; many begin alike, so that the
// prefix cache has something to find.
RequestOptions random_request(uint64_t i) {
  const auto draw = [i](uint64_t salt, uint64_t n) { return mix(i * 31 + salt) % n; };
  RequestOptions options;
  options.prompt = some_prompt(draw(1, 4), static_cast<int32_t>(draw(2, 150)));
  const auto own = some_prompt(1000 + i, 1 + static_cast<int32_t>(draw(3, 60)));
  options.prompt.insert(options.prompt.end(), own.begin(), own.end());
  options.max_tokens = 1 + static_cast<int32_t>(draw(4, 70));
  options.priority = static_cast<int32_t>(draw(5, 5)) - 2;
  options.tenant = draw(6, 3);
  options.samples = draw(7, 8) == 0 ? 3 : 1;
  options.sampling.temperature = draw(8, 3) == 0 ? 0.0F : 1.2F;
  options.sampling.top_k = draw(9, 2) == 0 ? 0 : 10;
  options.sampling.repetition_penalty = draw(10, 2) == 0 ? 1.0F : 1.3F;
  options.sampling.seed = draw(11, 1'000'000);
  options.ignore_eos = true;
  return options;
}

// Tokens of each sample.
std::vector<std::vector<int32_t>> answers(Request& request, int32_t samples) {
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(samples));
  for (int32_t ended = 0; ended < samples;) {
    Chunk chunk;
    ASSERT_OK(request.next(60'000'000'000, &chunk));
    auto& tokens = out[static_cast<size_t>(chunk.sample)];
    tokens.insert(tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    if (chunk.finish_reason == FinishReason::kNone) continue;
    EXPECT(chunk.finish_reason == FinishReason::kLength);
    ++ended;
  }
  Chunk chunk;
  EXPECT(request.next(0, &chunk).code() == Code::kClosed);
  return out;
}

using Answers = std::vector<std::vector<std::vector<int32_t>>>;  // [requests, samples, tokens]

// Each on its own, one sample at a time, without a prefix cache.
const Answers& alone() {
  static const Answers all = [] {
    Answers out;
    FakeSetup setup;
    setup.prefix_cache = false;
    FakeEngine engine(setup);
    for (uint64_t i = 0; i < kManyRequests; ++i) {
      const RequestOptions options = random_request(i);
      out.emplace_back();
      for (int32_t sample = 0; sample < options.samples; ++sample) {
        RequestOptions one = options;
        one.samples = 1;
        one.sampling.seed = *options.sampling.seed + static_cast<uint64_t>(sample);
        out.back().push_back(answers(*must_submit(*engine.engine, std::move(one)), 1)[0]);
      }
    }
    return out;
  }();
  return all;
}

EngineStats expect_as_alone(const FakeSetup& setup) {
  FakeEngine engine(setup);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < kManyRequests; ++i)
    requests.push_back(must_submit(*engine.engine, random_request(i)));
  for (uint64_t i = 0; i < kManyRequests; ++i)
    EXPECT(answers(*requests[i], random_request(i).samples) == alone()[i]);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.finished, static_cast<int64_t>(kManyRequests));
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.running + stats.waiting + stats.queue_depth + stats.queue_tokens, 0);
  return stats;
}

FakeSetup together() {
  FakeSetup setup;
  setup.sequences = 16;
  setup.outputs = 16;
  setup.context = 320;
  setup.kv_tokens = 16 * 320;
  return setup;
}

TEST(together) {
  const EngineStats stats = expect_as_alone(together());
  EXPECT(stats.prefix_hit_tokens > 1'000);
  EXPECT(stats.kv_pages_cached > 0);
}

TEST(without_a_prefix_cache) {
  FakeSetup setup = together();
  setup.prefix_cache = false;
  const EngineStats stats = expect_as_alone(setup);
  EXPECT_EQ(stats.prefix_hit_tokens, 0);
  EXPECT_EQ(stats.kv_pages_cached, 0);
}

TEST(in_chunks_of_1_7_and_64) {
  for (const int32_t chunk : {1, 7, 64}) {
    FakeSetup setup = together();
    setup.chunk = chunk;
    expect_as_alone(setup);
  }
}

TEST(preempted) {
  FakeSetup setup = together();
  setup.kv_tokens = 400;  // the longest takes 320 of them
  for (const bool prefix_cache : {true, false}) {
    setup.prefix_cache = prefix_cache;
    const EngineStats stats = expect_as_alone(setup);
    EXPECT(stats.preemptions > 20);
  }
}

TEST(on_2_and_3_threads) {
  for (const int threads : {2, 3}) {
    FakeSetup setup = together();
    setup.threads = threads;
    setup.kv_tokens = 1'000;
    expect_as_alone(setup);
  }
}

TEST(from_eight_threads_with_a_crowd_of_one) {
  FakeSetup setup = together();
  setup.sequences = 3;
  setup.kv_tokens = 700;
  FakeEngine engine(setup);
  (void)alone();
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (uint64_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = c; i < kManyRequests; i += 8) {
        const auto request = must_submit(*engine.engine, random_request(i));
        if (answers(*request, random_request(i).samples) != alone()[i]) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong.load(), 0);
}

// The second of two equal prompts computes one page and no more.
TEST(a_prompt_that_was_computed_before_is_not_computed_again) {
  FakeEngine engine(together());
  const auto prompt = some_prompt(5, 200);
  const auto first = collect(*must_submit(*engine.engine, greedy(prompt, 20)));
  const int64_t computed = engine->stats().prompt_tokens;
  EXPECT_EQ(computed, 200);
  const auto request = must_submit(*engine.engine, greedy(prompt, 20));
  EXPECT(collect(*request).tokens == first.tokens);
  EXPECT_EQ(engine->stats().prompt_tokens - computed, 200 % kKvPageTokens);
  EXPECT_EQ(request->stats().cached_tokens, 200 - 200 % kKvPageTokens);
  EXPECT_EQ(engine->stats().prefix_lookup_tokens, 400);
  EXPECT_EQ(engine->stats().prefix_hit_tokens, 200 - 200 % kKvPageTokens);
  // What was generated is found as well: a dialogue goes on where it ended.
  auto dialogue = prompt;
  dialogue.insert(dialogue.end(), first.tokens.begin(), first.tokens.end());
  dialogue.insert(dialogue.end(), {1, 2, 3, 4, 5, 6, 7});
  const auto next = must_submit(*engine.engine, greedy(dialogue, 5));
  EXPECT(collect(*next).tokens == reference_greedy(dialogue, 5));
  EXPECT_EQ(next->stats().cached_tokens, 192);
}

// The prompt of all samples is computed once, and their pages are shared.
TEST(samples_share_their_prompt) {
  FakeSetup setup = together();
  setup.sequences = 64;
  setup.outputs = 64;
  FakeEngine engine(setup);
  RequestOptions options = greedy(some_prompt(8, 100), 30);
  options.samples = 40;
  options.sampling.temperature = 1;
  options.sampling.seed = 5;
  const auto request = must_submit(*engine.engine, options);
  const auto got = answers(*request, 40);
  EXPECT_EQ(engine->stats().prompt_tokens, 100);
  EXPECT_EQ(engine->stats().generated_tokens, 40 * 30);
  EXPECT_EQ(request->stats().generated_tokens, 40 * 30);
  EXPECT(request->stats().finish_reason == FinishReason::kLength);
  for (const size_t sample : {size_t{0}, size_t{17}, size_t{39}}) {
    RequestOptions one = options;
    one.samples = 1;
    one.sampling.seed = 5 + sample;
    EXPECT(got[sample] == collect(*must_submit(*engine.engine, one)).tokens);
  }
}

// A model whose logits break after a token: its request fails, and what it computed is not found by
// the next one that begins alike.
TEST(broken_pages_are_not_remembered) {
  FakeSetup setup = together();
  setup.chunk = 16;
  auto broken = some_prompt(3, 100, 63);
  broken.back() = 63;
  setup.adjust = [](FakeRunner& runner) { runner.nan_after = 63; };
  FakeEngine engine(setup);
  const auto failed = collect(*must_submit(*engine.engine, greedy(broken, 5)));
  EXPECT(failed.status.code() == Code::kCorrupt);
  EXPECT_EQ(engine->stats().kv_pages_cached, 0);
  EXPECT_EQ(engine->stats().kv_pages_used, 0);
}

// What was computed and led to no finite logits is wiped before its pages are free: kernels weigh
// what lies behind a sequence's end with zero, and zero times NaN is NaN.
TEST(pages_that_nobody_verified_are_wiped) {
  for (const bool cancelled : {false, true}) {
    FakeSetup setup = together();
    setup.chunk = 16;
    std::shared_ptr<Request> request;
    std::atomic<bool> submitted{false};
    int steps = 0;
    setup.adjust = [&](FakeRunner& runner) {
      if (!cancelled) runner.nan_after = 63;
      runner.on_step = [&](const StepSizes&) {
        while (!submitted.load()) std::this_thread::yield();
        if (cancelled && ++steps == 4) request->cancel();
      };
    };
    FakeEngine engine(setup);
    auto prompt = some_prompt(3, 100, 63);
    prompt.back() = 63;
    request = must_submit(*engine.engine, greedy(prompt, 5));
    submitted.store(true);
    (void)request->wait(kHangs);
    EXPECT(request->stats().prefilled_tokens >= 64);  // so something was written
    const auto region = engine.device.last;
    EXPECT(!region.empty() && std::all_of(region.begin(), region.end(),
                                          [](std::byte b) { return b == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace lmn::engine
