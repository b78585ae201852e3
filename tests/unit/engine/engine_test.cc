// SPDX-License-Identifier: Apache-2.0
//
// The engine over the hash model: what it computes, in which order, and what it refuses.
// References: reference_greedy and reference_logits, which know nothing of pages, chunks or
// batches.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <type_traits>
#include <vector>

#include "fake_model.h"
#include "parallel/clock.h"
#include "testing.h"

namespace lmn::engine {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(greedy_tokens_for_every_prompt_length_chunk_and_team) {
  for (const int threads : {1, 2, 3}) {
    for (const int32_t chunk : {1, 7, 64}) {
      FakeSetup setup;
      setup.threads = threads;
      setup.chunk = chunk;
      FakeEngine engine(setup);
      for (const int32_t length : {1, 2, 31, 32, 33, 63, 64, 65, 100, 200}) {
        const auto prompt = some_prompt(uint64_t(length), length);
        const auto request = must_submit(*engine.engine, greedy(prompt, 20));
        const Answer answer = collect(*request);
        EXPECT(answer.reason == FinishReason::kLength);
        EXPECT(answer.tokens == reference_greedy(prompt, 20));
        const RequestStats stats = request->stats();
        EXPECT(stats.state == RequestState::kFinished);
        EXPECT_EQ(stats.prompt_tokens, length);
        EXPECT_EQ(stats.prefilled_tokens, length);
        EXPECT_EQ(stats.generated_tokens, 20);
        EXPECT(stats.queue_ns >= 0 && stats.prefill_ns > 0 && stats.decode_ns > 0);
      }
    }
  }
}

std::vector<float> score(Engine& engine, const std::vector<int32_t>& prompt, int32_t chunk) {
  std::vector<float> rows(prompt.size() * size_t(kFakeVocab), -1);
  RequestOptions options;
  options.kind = RequestKind::kScore;
  options.prompt = prompt;
  options.prefill_chunk_tokens = chunk;
  options.logits = rows.data();
  options.logits_rows = static_cast<int64_t>(prompt.size());
  const auto request = must_submit(engine, std::move(options));
  const Status status = request->wait(kHangs);
  EXPECT(status.ok());
  Chunk chunk_out;
  EXPECT(request->next(0, &chunk_out).ok());
  EXPECT(chunk_out.finish_reason == FinishReason::kLength);
  EXPECT(chunk_out.token_ids.empty());
  return rows;
}

TEST(scores_are_the_models_logits_for_any_chunk_and_team) {
  const auto prompt = some_prompt(5, 256);  // the whole context
  std::vector<float> want;
  for (size_t n = 1; n <= prompt.size(); ++n) {
    const auto row = reference_logits({prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(n)});
    want.insert(want.end(), row.begin(), row.end());
  }
  for (const int threads : {1, 2, 3}) {
    FakeSetup setup;
    setup.threads = threads;
    FakeEngine engine(setup);
    for (const int32_t chunk : {0, 1, 5, 16, 40, 64})
      EXPECT(score(*engine.engine, prompt, chunk) == want);
  }
}

TEST(generating_gives_the_logits_of_scoring) {
  FakeEngine engine({});
  const auto prompt = some_prompt(8, 40);
  constexpr int32_t kTokens = 50;
  std::vector<float> rows(size_t(kTokens * kFakeVocab), -1);
  RequestOptions options = greedy(prompt, kTokens);
  options.sampling.temperature = 0.8F;
  options.logits = rows.data();
  options.logits_rows = kTokens;
  const auto request = must_submit(*engine.engine, std::move(options));
  std::vector<int32_t> sequence = prompt;
  for (;;) {
    Chunk chunk;
    ASSERT_OK(request->next(kHangs, &chunk));
    if (!chunk.token_ids.empty())
      EXPECT(chunk.logits == rows.data() + (sequence.size() - prompt.size()) * size_t(kFakeVocab));
    sequence.insert(sequence.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    if (chunk.finish_reason != FinishReason::kNone) break;
  }
  const auto scored = score(*engine.engine, sequence, 13);
  EXPECT(std::equal(
      rows.begin(), rows.end(),
      scored.begin() + static_cast<ptrdiff_t>((prompt.size() - 1) * size_t(kFakeVocab))));
}

TEST(batched_requests_get_the_tokens_they_get_alone) {
  for (const int threads : {1, 3}) {
    FakeSetup setup;
    setup.threads = threads;
    setup.sequences = 5;
    setup.chunk = 20;
    setup.outputs = 4;
    setup.kv_tokens = 700;
    FakeEngine engine(setup);
    std::vector<std::shared_ptr<Request>> requests;
    std::vector<std::vector<int32_t>> want;
    for (uint64_t i = 0; i < 40; ++i) {
      const auto prompt = some_prompt(i, 1 + static_cast<int32_t>(mix(i) % 120));
      const auto max_tokens = static_cast<int32_t>(1 + mix(i + 77) % 60);
      want.push_back(reference_greedy(prompt, max_tokens));
      requests.push_back(must_submit(*engine.engine, greedy(prompt, max_tokens)));
    }
    const auto prompt = some_prompt(99, 90);
    const auto scored = score(*engine.engine, prompt, 0);  // among them
    const auto last = reference_logits(prompt);
    EXPECT(std::equal(last.begin(), last.end(), scored.end() - kFakeVocab));
    for (size_t i = 0; i < requests.size(); ++i) EXPECT(collect(*requests[i]).tokens == want[i]);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.finished, 41);
    EXPECT_EQ(stats.kv_pages_used, 0);
    EXPECT_EQ(stats.running + stats.waiting + stats.queue_depth, 0);
  }
}

TEST(seeds_decide) {
  FakeEngine engine({});
  const auto prompt = some_prompt(3, 10);
  const auto run = [&](std::optional<uint64_t> seed, uint64_t* used = nullptr) {
    RequestOptions options = greedy(prompt, 40);
    options.sampling.temperature = 1.5F;
    options.sampling.seed = seed;
    const auto request = must_submit(*engine.engine, std::move(options));
    if (used != nullptr) *used = request->stats().seed;
    return collect(*request).tokens;
  };
  EXPECT(run(7) == run(7));
  EXPECT(run(7) != run(8));
  uint64_t first = 0, second = 0;
  const auto drawn = run({}, &first);
  (void)run({}, &second);
  EXPECT(first != second);
  EXPECT(run(first) == drawn);  // the reported seed is the one that was used
}

TEST(context_end_is_a_length) {
  FakeEngine engine({});  // context 256
  const auto prompt = some_prompt(1, 250);
  for (const int32_t max_tokens : {0, 100}) {
    const auto request = must_submit(*engine.engine, greedy(prompt, max_tokens));
    const Answer answer = collect(*request);
    EXPECT(answer.reason == FinishReason::kLength);
    EXPECT(answer.tokens == reference_greedy(prompt, 6));
  }
}

TEST(stop_tokens_end_and_are_delivered) {
  FakeEngine engine({});
  const auto prompt = some_prompt(4, 9);
  const auto all = reference_greedy(prompt, 30);
  RequestOptions options = greedy(prompt, 30);
  options.stop_token_ids = {all[12], all[5]};
  const auto first = std::min(std::find(all.begin(), all.end(), all[12]),
                              std::find(all.begin(), all.end(), all[5]));
  const auto request = must_submit(*engine.engine, std::move(options));
  const Answer answer = collect(*request);
  EXPECT(answer.reason == FinishReason::kStopToken);
  EXPECT_EQ(answer.stop_index, *first == all[12] ? 0 : 1);
  EXPECT(answer.tokens == std::vector<int32_t>(all.begin(), first + 1));
}

TEST(logprobs_are_delivered_with_their_tokens) {
  FakeEngine engine({});
  RequestOptions options = greedy(some_prompt(6, 5), 10);
  options.sampling.logprobs = 3;
  std::vector<int32_t> sequence = options.prompt;
  const auto request = must_submit(*engine.engine, std::move(options));
  for (;;) {
    Chunk chunk;
    ASSERT_OK(request->next(kHangs, &chunk));
    ASSERT(chunk.logprobs.size() == chunk.token_ids.size() &&
           chunk.top_ids.size() == 3 * chunk.token_ids.size() &&
           chunk.top_logprobs.size() == chunk.top_ids.size());
    for (size_t i = 0; i < chunk.token_ids.size(); ++i) {
      const auto row = reference_logits(sequence);
      double sum = 0;
      for (const float x : row) sum += std::exp(double(x));
      const double want = row[size_t(chunk.token_ids[i])] - std::log(sum);
      EXPECT_NEAR(chunk.logprobs[i], want, 1e-5);
      EXPECT_EQ(chunk.top_ids[3 * i], chunk.token_ids[i]);  // greedy: the likeliest
      EXPECT_NEAR(chunk.top_logprobs[3 * i], want, 1e-5);
      EXPECT(chunk.top_logprobs[3 * i + 2] <= chunk.top_logprobs[3 * i + 1]);
      sequence.push_back(chunk.token_ids[i]);
    }
    if (chunk.finish_reason != FinishReason::kNone) break;
  }
  EXPECT_EQ(sequence.size(), size_t{15});
}

TEST(the_room_for_an_answer_is_what_context_and_cache_hold) {
  FakeSetup setup;
  setup.kv_tokens = 100;  // 128 in pages; the context is 256
  FakeEngine engine(setup);
  EXPECT_EQ(engine.engine->answer_limit(0, 28), int64_t{100});
  EXPECT_EQ(engine.engine->answer_limit(0, 200), int64_t{-72});
  EXPECT_EQ(engine.engine->answer_limit(7, 28), int64_t{7});
  EXPECT_EQ(engine.engine->answer_limit(1000, 28), int64_t{228});  // which submit refuses
  const auto prompt = some_prompt(4, 28);
  const auto request = must_submit(*engine.engine, greedy(prompt, 0));
  EXPECT_EQ(collect(*request).tokens.size(), size_t{100});
}

TEST(bad_requests_are_refused_with_their_figures) {
  FakeSetup setup;
  setup.kv_tokens = 100;  // 128 in pages, less than the context
  FakeEngine engine(setup);
  struct Case {
    std::function<void(RequestOptions&)> change;
    Code code;
    std::vector<std::string> words;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float logits[1];
  const std::vector<Case> cases = {
      {[](auto& o) { o.prompt.clear(); }, Code::kInvalidArgument, {"prompt"}},
      {[](auto& o) { o.prompt.assign(256, 1); }, Code::kInvalidArgument, {"256"}},
      {[](auto& o) { o.prompt.assign(300, 1); }, Code::kInvalidArgument, {"300", "256"}},
      {[](auto& o) {
         o.prompt = {1, 2, 64};
       },
       Code::kInvalidArgument,
       {"prompt[2]", "64"}},
      {[](auto& o) {
         o.prompt = {1, -5};
       },
       Code::kInvalidArgument,
       {"prompt[1]", "-5", "64"}},
      {[](auto& o) { o.prompt.assign(129, 1); }, Code::kOutOfMemory, {"129", "128", "kv_tokens"}},
      {[](auto& o) { o.max_tokens = 200; }, Code::kOutOfMemory, {"203", "128"}},
      {[](auto& o) { o.max_tokens = -1; }, Code::kInvalidArgument, {"max_tokens", "-1"}},
      {[](auto& o) { o.priority = 3; }, Code::kInvalidArgument, {"priority", "3", "-2", "2"}},
      {[](auto& o) { o.deadline_ns = -1; }, Code::kInvalidArgument, {"deadline_ns", "-1"}},
      {[](auto& o) { o.prefill_chunk_tokens = -1; },
       Code::kInvalidArgument,
       {"prefill_chunk_tokens", "-1"}},
      {[](auto& o) { o.stop_token_ids = {64}; },
       Code::kInvalidArgument,
       {"stop_token_ids[0]", "64"}},
      {[](auto& o) { o.stop = {"x"}; }, Code::kInvalidArgument, {"tokenizer"}},
      {[](auto& o) { o.kind = static_cast<RequestKind>(9); },
       Code::kInvalidArgument,
       {"kind", "9"}},
      {[](auto& o) { o.kind = RequestKind::kScore; },
       Code::kInvalidArgument,
       {"max_tokens", "score"}},
      {[](auto& o) { o.kind = RequestKind::kScore, o.max_tokens = 0; },
       Code::kInvalidArgument,
       {"logits"}},
      {[&](auto& o) { o.logits = logits, o.logits_rows = 9; },
       Code::kInvalidArgument,
       {"logits_rows", "9", "10"}},
      {[&](auto& o) { o.logits = logits, o.max_tokens = 0; },
       Code::kInvalidArgument,
       {"max_tokens"}},
      {[&](auto& o) { o.sampling.temperature = nan; },
       Code::kInvalidArgument,
       {"temperature", "nan"}},
      {[](auto& o) { o.sampling.temperature = -0.5F; },
       Code::kInvalidArgument,
       {"temperature", "-0.5"}},
      {[](auto& o) { o.sampling.temperature = INFINITY; },
       Code::kInvalidArgument,
       {"temperature", "inf"}},
      {[](auto& o) { o.sampling.top_k = -1; }, Code::kInvalidArgument, {"top_k", "-1"}},
      {[](auto& o) { o.sampling.top_p = 0; }, Code::kInvalidArgument, {"top_p", "0"}},
      {[](auto& o) { o.sampling.top_p = 1.5F; }, Code::kInvalidArgument, {"top_p", "1.5"}},
      {[&](auto& o) { o.sampling.top_p = nan; }, Code::kInvalidArgument, {"top_p", "nan"}},
      {[](auto& o) { o.sampling.min_p = 2; }, Code::kInvalidArgument, {"min_p", "2"}},
      {[](auto& o) { o.sampling.repetition_penalty = 0; },
       Code::kInvalidArgument,
       {"repetition_penalty", "0"}},
      {[&](auto& o) { o.sampling.presence_penalty = nan; },
       Code::kInvalidArgument,
       {"presence_penalty", "nan"}},
      {[](auto& o) { o.sampling.frequency_penalty = 101; },
       Code::kInvalidArgument,
       {"frequency_penalty", "101"}},
      {[](auto& o) { o.sampling.penalty_last_n = -2; },
       Code::kInvalidArgument,
       {"penalty_last_n", "-2"}},
      {[](auto& o) { o.sampling.logprobs = 65; }, Code::kInvalidArgument, {"logprobs", "65", "64"}},
      {[](auto& o) {
         o.sampling.logit_bias = {{1, 0}, {64, 1}};
       },
       Code::kInvalidArgument,
       {"logit_bias[1]", "64"}},
      {[&](auto& o) {
         o.sampling.logit_bias = {{1, nan}};
       },
       Code::kInvalidArgument,
       {"logit_bias[0]", "nan"}},
      {[](auto& o) { o.sampling.logit_bias.resize(5000); },
       Code::kInvalidArgument,
       {"logit_bias", "5000", "4096"}},
  };
  for (const Case& c : cases) {
    RequestOptions options = greedy({1, 2, 3}, 10);
    c.change(options);
    const auto request = submit(*engine.engine, std::move(options));
    ASSERT(!request.ok());
    EXPECT_EQ(static_cast<int>(request.status().code()), static_cast<int>(c.code));
    for (const std::string& word : c.words) {
      if (!contains(request.status().message(), word)) {
        testing::report_failure(
            __FILE__, __LINE__,
            "\"" + word + "\" is not in: " + std::string(request.status().message()));
      }
    }
  }
  EXPECT_EQ(rejected_in(engine->stats()), static_cast<int64_t>(cases.size()));
  EXPECT_EQ(engine->stats().submitted, 0);
  EXPECT_EQ(engine->memory()[memory::Owner::kRequests].current, 0);
  EXPECT_EQ(collect(*must_submit(*engine.engine, greedy({1}, 3))).tokens.size(),
            size_t{3});  // it still works
}

TEST(max_tokens_that_was_not_asked_for_is_what_the_cache_holds) {
  FakeSetup setup;
  setup.kv_tokens = 64;
  FakeEngine engine(setup);
  const auto request = must_submit(*engine.engine, greedy(some_prompt(1, 60), 0));
  EXPECT_EQ(collect(*request).tokens.size(), size_t{4});
}

TEST(bad_engine_options_are_named) {
  const auto create = [](const EngineOptions& options) {
    FakeDevice device;
    EngineParts parts;
    parts.runner = std::make_unique<FakeRunner>(StepLimits{64, 1, 16, 8, kFakeVocab});
    parts.team = std::move(parallel::ThreadTeam::create({1, 0})).value();
    parts.kv_parts = {{&device, parts.runner->kv_shape().layers}};
    auto engine = Engine::create(std::move(parts), options);
    return engine.ok() ? std::string() : std::string(engine.status().message());
  };
  EngineOptions good;
  good.context_tokens = 256;
  EXPECT_EQ(create(good), "");
  const auto with = [&](auto change) {
    EngineOptions options = good;
    change(options);
    return create(options);
  };
  EXPECT(contains(with([](auto& o) { o.context_tokens = 0; }), "context_tokens is 0"));
  EXPECT(contains(with([](auto& o) { o.context_tokens = 257; }), "256"));
  EXPECT(contains(with([](auto& o) { o.kv_tokens = -1; }), "kv_tokens is -1"));
  EXPECT(contains(with([](auto& o) { o.kv_tokens = INT64_MAX / 2; }), "kv_tokens"));
  EXPECT(contains(with([](auto& o) { o.prefill_chunk_tokens = 65; }), "64"));
  EXPECT(contains(with([](auto& o) { o.queue_capacity = -1; }), "queue_capacity is -1"));
  EXPECT(contains(with([](auto& o) { o.kv_dtype = DType::kI8; }), "kv_dtype is i8"));
}

}  // namespace
}  // namespace lmn::engine
