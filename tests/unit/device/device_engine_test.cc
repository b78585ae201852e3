// SPDX-License-Identifier: Apache-2.0
//
// An engine on a device: the same tokens alone, together, in chunks, preempted, with a prefix
// cache, from recordings and without; a device that fails ends its requests and not the process.
#include "cuda/kernels/launchers.h"
#include "device_fixture.h"
#include "engine/fake_model.h"

using namespace device_test;

namespace {

using engine::Answer;

std::vector<int32_t> prompt_of(uint64_t seed, int32_t tokens) {
  return engine::some_prompt(seed, tokens, static_cast<int32_t>(quantised_spec().vocab));
}

// Requests of several lengths, greedy and not.
engine::RequestOptions request(uint64_t i) {
  engine::RequestOptions options = engine::greedy(
      prompt_of(i / 2, 20 + static_cast<int32_t>(i * 3)), 10 + static_cast<int32_t>(i * 5 % 12));
  if (i % 3 == 1) {
    options.sampling.temperature = 0.9F;
    options.sampling.top_p = 0.95F;
    options.sampling.seed = i;
  }
  return options;
}
constexpr uint64_t kRequests = 7;

std::vector<std::vector<int32_t>> tokens_of(DeviceEngine& engine, bool together) {
  std::vector<std::shared_ptr<engine::Request>> requests;
  std::vector<std::vector<int32_t>> out;
  for (uint64_t i = 0; i < kRequests; ++i) {
    requests.push_back(engine::must_submit(*engine.engine, request(i)));
    if (together) continue;
    const Answer answer = engine::collect(*requests.back());
    EXPECT(answer.reason == engine::FinishReason::kLength);
    out.push_back(answer.tokens);
  }
  for (size_t i = 0; together && i < kRequests; ++i) {
    const Answer answer = engine::collect(*requests[i]);
    EXPECT(answer.reason == engine::FinishReason::kLength);
    out.push_back(answer.tokens);
  }
  return out;
}

}  // namespace

TEST(on_a_device_a_request_gets_the_same_tokens_however_it_is_run) {
  DeviceEngine::Setup setup;
  std::vector<std::vector<int32_t>> alone;
  {
    DeviceEngine one(setup);
    alone = tokens_of(one, false);
    EXPECT(one.runner->counters().replayed > 0);
    EXPECT(one.runner->counters().recorded < one.runner->counters().replayed);
  }
  {
    DeviceEngine batch(setup);
    EXPECT(tokens_of(batch, true) == alone);
  }
  setup.chunk = 5;
  setup.gpu.seed = 11;
  setup.prefix_cache = true;
  {
    DeviceEngine chunks(setup);
    EXPECT(tokens_of(chunks, true) == alone);
  }
}

// A request that gives way in the middle of its answer is computed again, prompt and answer in
// chunks, and goes on with the same tokens.
TEST(on_a_device_a_preempted_request_gets_the_same_tokens) {
  const auto low = [] { return engine::greedy(prompt_of(1, 24), 30); };
  const auto high = [] {
    engine::RequestOptions options = engine::greedy(prompt_of(2, 40), 8);
    options.priority = 2;
    return options;
  };
  DeviceEngine::Setup setup;
  std::vector<std::vector<int32_t>> alone;
  {
    DeviceEngine one(setup);
    for (const auto& options : {low(), high()})
      alone.push_back(engine::collect(*engine::must_submit(*one.engine, options)).tokens);
  }
  setup.context = setup.kv_tokens = 64;  // two pages: for one of them
  DeviceEngine tight(setup);
  const auto first = engine::must_submit(*tight.engine, low());
  std::vector<int32_t> tokens;
  {
    engine::Chunk begun;
    ASSERT_OK(first->next(engine::kHangs, &begun));
    tokens.assign(begun.token_ids.begin(), begun.token_ids.end());
  }
  const auto second = engine::must_submit(*tight.engine, high());
  EXPECT(engine::collect(*second).tokens == alone[1]);
  for (const int32_t token : engine::collect(*first).tokens) tokens.push_back(token);
  EXPECT(tokens == alone[0]);
  EXPECT(tight.engine->stats().preemptions > 0);
}

TEST(a_step_of_answers_is_one_launch_and_one_wait) {
  DeviceEngine::Setup setup;
  DeviceEngine engine(setup);
  const auto first = engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, 8), 4));
  EXPECT_EQ(engine::collect(*first).tokens.size(), size_t{4});
  engine.engine->shutdown();
  const engine::DeviceRunnerCounters& runner = engine.runner->counters();
  EXPECT_EQ(runner.queued, 1);    // the prompt
  EXPECT_EQ(runner.replayed, 3);  // the answers behind its first
  EXPECT_EQ(runner.recorded, 1);
  EXPECT_EQ(engine.gpu.counters().replays, 3);
  // Tokens alone cross the bus.
  EXPECT_EQ(engine.gpu.counters().bytes_to_host, 4 * static_cast<int64_t>(sizeof(SampleChoice)));
}

TEST(recordings_serve_the_next_larger_step) {
  EXPECT_EQ(engine::recorded_rows(1, 64), 1);
  EXPECT_EQ(engine::recorded_rows(3, 64), 4);
  EXPECT_EQ(engine::recorded_rows(3, 3), 3);
  EXPECT_EQ(engine::recorded_rows(8, 64), 8);
  EXPECT_EQ(engine::recorded_rows(9, 64), 16);
  EXPECT_EQ(engine::recorded_rows(65, 100), 96);
  EXPECT_EQ(engine::recorded_rows(97, 100), 100);
  EXPECT_EQ(engine::recorded_rows(300, 1024), 384);
  EXPECT_EQ(engine::recorded_context(1), 128);
  EXPECT_EQ(engine::recorded_context(128), 128);
  EXPECT_EQ(engine::recorded_context(129), 256);
}

// What device_runner.cc says of its shortest context.
TEST(the_shortest_recording_is_for_one_split_of_attention) {
  const auto bytes = [](int64_t context) {
    return cuda::kernel_table().workspace_bytes(
        {.rows = 1, .heads = 4, .head_dim = 64, .context = context});
  };
  const int64_t shortest = engine::recorded_context(1);
  EXPECT_EQ(bytes(shortest), bytes(1));
  EXPECT(bytes(shortest + 1) > bytes(shortest));
}

// An answer of 300 tokens, beside which others begin and end: rows change, and the longest context.
TEST(a_long_generation_makes_few_recordings) {
  DeviceEngine::Setup setup;
  setup.context = 352;
  setup.kv_tokens = 4 * 352;
  DeviceEngine engine(setup);
  const auto longest = engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, 8), 300));
  for (uint64_t i = 0; i < 6; ++i) {
    std::vector<std::shared_ptr<engine::Request>> others;
    for (uint64_t k = 0; k <= i % 3; ++k) {
      others.push_back(engine::must_submit(
          *engine.engine, engine::greedy(prompt_of(2 + k, 8), 10 + 7 * static_cast<int32_t>(k))));
    }
    for (const auto& other : others) EXPECT(!engine::collect(*other).tokens.empty());
  }
  EXPECT_EQ(engine::collect(*longest).tokens.size(), size_t{300});
  // Alone and short: a recording of the longest one's serves.
  const auto last = engine::must_submit(*engine.engine, engine::greedy(prompt_of(9, 140), 20));
  EXPECT_EQ(engine::collect(*last).tokens.size(), size_t{20});
  engine.engine->shutdown();
  const engine::DeviceRunnerCounters& runner = engine.runner->counters();
  EXPECT(runner.replayed > 250);  // but where prompts join
  EXPECT(runner.recorded <= 9);   // 1, 2, 4 rows; 128, 256, 512 positions
}

TEST(a_recording_of_a_longer_context_serves) {
  DeviceEngine::Setup setup;
  setup.context = 600;
  setup.kv_tokens = 2 * 600;
  DeviceEngine engine(setup);
  for (const int32_t prompt : {520, 140}) {  // 1024 positions, which serve 256 as well
    const auto request =
        engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, prompt), 4));
    EXPECT_EQ(engine::collect(*request).tokens.size(), size_t{4});
  }
  const auto brief = engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, 8), 4));
  EXPECT_EQ(engine::collect(*brief).tokens.size(), size_t{4});
  engine.engine->shutdown();
  EXPECT_EQ(engine.runner->counters().recorded, 2);  // 128 positions have their own
}

// Steps are queued one kernel at a time then, the same tokens come, and not every step tries again.
TEST(without_room_for_recordings_steps_are_queued) {
  DeviceEngine::Setup setup;
  std::vector<int32_t> want;
  {
    DeviceEngine engine(setup);
    want =
        engine::collect(*engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, 8), 12)))
            .tokens;
  }
  DeviceEngine engine(setup);
  engine.gpu.fail("cudaGraphInstantiateWithFlags", cudaErrorMemoryAllocation, 1, INT_MAX);
  const auto request = engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, 8), 12));
  EXPECT(engine::collect(*request).tokens == want);
  engine.engine->shutdown();
  const engine::DeviceRunnerCounters& runner = engine.runner->counters();
  EXPECT_EQ(runner.queued, 12);
  EXPECT_EQ(runner.replayed, 0);
  EXPECT_EQ(engine.gpu.counters().graphs, 1);
}

TEST(a_device_that_fails_ends_its_requests_and_not_the_process) {
  DeviceEngine::Setup setup;
  DeviceEngine engine(setup);
  const auto good = engine::must_submit(*engine.engine, engine::greedy(prompt_of(1, 8), 2));
  EXPECT_EQ(engine::collect(*good).tokens.size(), size_t{2});
  engine.gpu.fail_kernel(40);
  const auto bad = engine::must_submit(*engine.engine, engine::greedy(prompt_of(2, 8), 20));
  const Status ended = bad->wait(engine::kHangs);
  EXPECT(ended.code() == Code::kInternal);
  EXPECT_EQ(ended.message(),
            std::string_view("device cuda:1 failed: running kernels: an error that the test asked "
                             "for (cudaErrorIllegalAddress); it is closed, and what it computed is "
                             "lost: start the process again"));
  const auto late = engine::submit(*engine.engine, engine::greedy(prompt_of(3, 8), 2));
  if (late.ok()) {  // or the engine is closed by now
    const Status status = (*late)->wait(engine::kHangs);
    EXPECT(status.code() == Code::kClosed || status.code() == Code::kInternal);
  }
  engine.engine.reset();
  EXPECT_EQ(engine.gpu.bytes_in_use(), 0);
}

// The first layer on the host, the second on the device: the same tokens in any batch and chunks,
// and logits like those of the whole model.
TEST(a_model_on_two_devices_gives_the_same_tokens_however_it_is_run) {
  std::vector<std::vector<int32_t>> alone;
  for (const int32_t chunk : {0, 5}) {
    DeviceEngine::Setup setup;
    setup.split = true;
    setup.gpu.seed = chunk == 0 ? 0 : 13;
    setup.chunk = chunk;
    DeviceEngine engine(setup);
    if (alone.empty()) alone = tokens_of(engine, false);
    EXPECT(tokens_of(engine, true) == alone);
    engine.engine.reset();
    EXPECT_EQ(engine.gpu.bytes_in_use(), 0);
  }
  DeviceEngine::Setup whole;
  DeviceEngine engine(whole);
  EXPECT(tokens_of(engine, false)[0] == alone[0]);  // greedy, and far from a tie
}
