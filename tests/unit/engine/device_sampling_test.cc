// SPDX-License-Identifier: Apache-2.0
//
// A runner that samples (FakeRunner::sampling) gives the answers of one that does not: tokens,
// logprobs, rows of logits, finish reasons and failures, whatever is mixed in a batch. Only what a
// device cannot do is fetched from it, and that is a matter of each request alone.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

constexpr uint64_t kMixedRequests = 150;

struct Mixed {
  RequestOptions options;
  std::vector<float> rows;  // that are handed out
};

// Every third asks for something that needs its logits on the host.
Mixed mixed_request(uint64_t i) {
  const auto draw = [i](uint64_t salt, uint64_t n) { return mix(i * 77 + salt) % n; };
  Mixed out;
  RequestOptions& options = out.options;
  options.prompt = some_prompt(draw(1, 30), 1 + static_cast<int32_t>(draw(2, 100)));
  options.max_tokens = 1 + static_cast<int32_t>(draw(3, 40));
  options.samples = draw(4, 6) == 0 ? 1 + static_cast<int32_t>(draw(5, 5)) : 1;
  options.ignore_eos = true;
  SamplingParams& how = options.sampling;
  const float temperatures[] = {0, 0.3F, 1, 5};
  how.temperature = temperatures[draw(6, 4)];
  how.top_k = draw(7, 2) == 0 ? 0 : 1 + static_cast<int32_t>(draw(8, 80));
  how.top_p = draw(9, 2) == 0 ? 1 : 0.05F + 0.01F * static_cast<float>(draw(10, 90));
  how.min_p = draw(11, 3) == 0 ? 0.02F * static_cast<float>(draw(12, 10)) : 0;
  how.seed = draw(13, 1'000'000);
  switch (draw(14, 15)) {
    case 0:
      how.logprobs = static_cast<int32_t>(draw(15, 4));
      break;
    case 1:
      how.repetition_penalty = 1.2F;
      break;
    case 2:
      how.frequency_penalty = 0.4F;
      break;
    case 3:
      how.logit_bias = {{static_cast<int32_t>(draw(16, 64)), 3.0F}};
      break;
    case 4:
      out.rows.assign(size_t(options.samples * options.max_tokens) * size_t(kFakeVocab), -1);
      options.logits_rows = options.max_tokens;
      break;
    case 5:
      out.rows.assign(options.prompt.size() * size_t(kFakeVocab), -1);
      options.kind = RequestKind::kScore;
      options.sampling = {};
      options.samples = 1;
      options.max_tokens = 0;
      options.ignore_eos = false;
      options.logits_rows = static_cast<int64_t>(options.prompt.size());
      break;
    default:
      break;
  }
  if (!out.rows.empty()) options.logits = out.rows.data();
  return out;
}

// Rows that the engine itself has to see for this request: of a score all, of an answer one for
// each token, but the first tokens of several samples come from one row.
int64_t rows_on_host(const RequestOptions& options) {
  if (options.kind == RequestKind::kScore) return static_cast<int64_t>(options.prompt.size());
  if (options.logits == nullptr && is_plain(options.sampling)) return 0;
  return int64_t{options.samples} * (options.max_tokens - 1) + 1;
}
int64_t rows_on_device(const RequestOptions& options) {
  return rows_on_host(options) > 0 ? 0 : int64_t{options.samples} * options.max_tokens;
}

struct MixedAnswer {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logprobs;
  std::vector<float> rows;
  bool operator==(const MixedAnswer&) const = default;
};

MixedAnswer mixed_answer(Request& request, Mixed& mixed) {
  const auto samples = static_cast<size_t>(mixed.options.samples);
  MixedAnswer out{
      std::vector<std::vector<int32_t>>(samples), std::vector<std::vector<float>>(samples), {}};
  for (size_t ended = 0; ended < samples;) {
    Chunk chunk;
    ASSERT_OK(request.next(60'000'000'000, &chunk));
    const auto sample = static_cast<size_t>(chunk.sample);
    out.tokens[sample].insert(out.tokens[sample].end(), chunk.token_ids.begin(),
                              chunk.token_ids.end());
    out.logprobs[sample].insert(out.logprobs[sample].end(), chunk.logprobs.begin(),
                                chunk.logprobs.end());
    if (chunk.finish_reason == FinishReason::kNone) continue;
    EXPECT(chunk.finish_reason == FinishReason::kLength);
    ++ended;
  }
  out.rows = std::move(mixed.rows);
  return out;
}

std::vector<MixedAnswer> mixed_answers(FakeSetup setup, bool sampling) {
  FakeRunner* runner = nullptr;
  setup.adjust = [&](FakeRunner& made) {
    made.sampling = sampling;
    runner = &made;
  };
  FakeEngine engine(setup);
  std::vector<Mixed> all;
  std::vector<std::shared_ptr<Request>> requests;
  int64_t on_host = 0, on_device = 0;
  for (uint64_t i = 0; i < kMixedRequests; ++i) {
    all.push_back(mixed_request(i));
    on_host += rows_on_host(all.back().options);
    on_device += rows_on_device(all.back().options);
    requests.push_back(must_submit(*engine.engine, all.back().options));
  }
  std::vector<MixedAnswer> answers;
  for (size_t i = 0; i < all.size(); ++i) answers.push_back(mixed_answer(*requests[i], all[i]));
  EXPECT_EQ(engine->stats().preemptions, 0);  // then these are the counts:
  EXPECT_EQ(runner->sampled_rows.load(), sampling ? on_device : 0);
  EXPECT_EQ(runner->host_rows.load(), sampling ? on_host : 0);
  EXPECT(on_device > 1'000 && on_host > 1'000);
  return answers;
}

TEST(a_runner_that_samples_gives_the_same_answers) {
  FakeSetup setup;
  setup.prefix_cache = false;
  setup.kv_tokens = 64 * 256;
  const auto want = mixed_answers(setup, false);
  for (const int32_t sequences : {1, 3, 24}) {
    for (const int threads : {1, 3}) {
      setup.sequences = setup.outputs = sequences;
      setup.threads = threads;
      // The samples of one prompt, of which some wait for a place, compute its rest themselves.
      setup.options = [](EngineOptions& options) { options.max_sequences = 64; };
      EXPECT(mixed_answers(setup, true) == want);
    }
  }
}

TEST(not_finite_on_the_device_fails_as_on_the_host) {
  for (const bool plain : {true, false}) {
    std::vector<std::string> messages;
    for (const bool sampling : {false, true}) {
      const auto prompt = some_prompt(2, 12);
      const auto tokens = reference_greedy(prompt, 10);
      FakeSetup setup;
      setup.sequences = 4;
      setup.adjust = [&](FakeRunner& runner) {
        runner.sampling = sampling;
        runner.nan_after = tokens[6];
      };
      FakeEngine engine(setup);
      RequestOptions options = greedy(prompt, 10);
      options.sampling.logprobs = plain ? -1 : 2;
      const auto failing = must_submit(*engine.engine, options);
      const Answer answer = collect(*failing);
      const auto end = std::find(tokens.begin(), tokens.end(), tokens[6]) + 1;
      EXPECT(answer.tokens == std::vector<int32_t>(tokens.begin(), end));
      EXPECT(answer.status.code() == Code::kCorrupt);
      messages.emplace_back(answer.status.message());
    }
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT(messages[0].starts_with("logit 0 of generated token"));
    EXPECT(messages[0].find("is nan") != std::string::npos);
  }
}

TEST(a_step_that_fails_on_the_device_fails_its_requests_alone) {
  constexpr int32_t kBroken = 7;
  uint64_t seed = 0;  // of a prompt that has nothing to do with that token, nor has its answer
  const auto with_answer = [&] {
    auto tokens = some_prompt(seed, 4);
    const auto answer = reference_greedy(tokens, 3);
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    return tokens;
  };
  auto tokens = with_answer();
  for (; std::find(tokens.begin(), tokens.end(), kBroken) != tokens.end(); tokens = with_answer())
    ++seed;
  FakeSetup setup;
  setup.sequences = 2;
  setup.adjust = [](FakeRunner& runner) {
    runner.sampling = true;
    runner.error_after = kBroken;
  };
  FakeEngine engine(setup);
  const Answer failed = collect(*must_submit(*engine.engine, greedy({kBroken}, 5)));
  EXPECT(failed.status.code() == Code::kIo);
  EXPECT(failed.tokens.empty());
  const Answer answer = collect(*must_submit(*engine.engine, greedy(some_prompt(seed, 4), 3)));
  EXPECT(answer.tokens == std::vector<int32_t>(tokens.begin() + 4, tokens.end()));
}

}  // namespace
}  // namespace lmn::engine
