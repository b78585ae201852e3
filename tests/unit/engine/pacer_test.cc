// SPDX-License-Identifier: Apache-2.0
#include "engine/pacer.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "testing.h"

namespace lmn::engine {
namespace {

// A machine on which a step of answers takes 1 ms and each prompt token 0.1 ms.
constexpr int64_t kAnswers = 1'000'000, kToken = 100'000;

Pacer learned(int64_t target_ns) {
  Pacer pacer(target_ns);
  for (int i = 0; i < 50; ++i) {
    pacer.record(4, 0, kAnswers);
    pacer.record(4, 8, kAnswers + 8 * kToken);
  }
  return pacer;
}

TEST(a_chunk_fills_what_the_target_leaves) {
  EXPECT_EQ(learned(0).prefill_tokens(4, 1), 10);          // twice 1 ms leaves 1 ms: ten tokens
  EXPECT_EQ(learned(3'000'000).prefill_tokens(4, 1), 20);  // 3 ms leave 2 ms
  EXPECT_EQ(learned(6'000'000).prefill_tokens(4, 1), 50);
}

TEST(prompts_that_are_more_than_the_answers_get_more_of_the_time) {
  EXPECT_EQ(learned(0).prefill_tokens(4, 1), 10);  // half
  EXPECT_EQ(learned(0).prefill_tokens(4, 4), 10);
  EXPECT_EQ(learned(0).prefill_tokens(4, 12), 30);          // three quarters: 3 ms beside 1 ms
  EXPECT_EQ(learned(0).prefill_tokens(4, 60), 70);          // seven eighths at most
  EXPECT_EQ(learned(3'000'000).prefill_tokens(4, 60), 20);  // a target is kept whoever waits
}

TEST(a_prompt_moves_whatever_the_target) {
  EXPECT_EQ(learned(1).prefill_tokens(4, 1), Pacer::kLeastChunk);
  EXPECT_EQ(learned(1'100'000).prefill_tokens(4, 1), Pacer::kLeastChunk);
}

TEST(before_anything_is_known) {
  EXPECT_EQ(Pacer(0).prefill_tokens(1, 1), 0);  // first a look at what answers take
  EXPECT_EQ(Pacer(5'000'000).prefill_tokens(1, 1), 0);
  Pacer answers_only(0);
  answers_only.record(1, 0, kAnswers);
  EXPECT_EQ(answers_only.prefill_tokens(1, 1), Pacer::kFirstChunk);
  Pacer prompts_only(0);  // what a token costs is known, what answers take is not
  prompts_only.record(0, 100, 100 * kToken);
  EXPECT_EQ(prompts_only.prefill_tokens(1, 1), 0);
}

// Twenty answers take four times as long as one: that is not put down to the prompts beside them,
// which get as much time as those.
TEST(more_answers_take_longer) {
  Pacer pacer(0);
  pacer.record(1, 0, kAnswers);
  pacer.record(0, 100, 100 * kToken);
  EXPECT_EQ(pacer.prefill_tokens(20, 1), 0);  // so many have not been seen
  pacer.record(20, 0, 4 * kAnswers);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pacer.prefill_tokens(20, 20), 40);
    pacer.record(20, 40, 4 * kAnswers + 40 * kToken);
  }
  EXPECT_EQ(pacer.prefill_tokens(1, 1), 10);
  EXPECT_EQ(pacer.prefill_tokens(17, 1), 40);  // a size class
  EXPECT_EQ(pacer.prefill_tokens(100'000, 1), 0);
}

TEST(a_step_in_which_the_machine_was_away_changes_little) {
  Pacer pacer = learned(0);
  pacer.record(4, 0, 1'000 * kAnswers);
  EXPECT(pacer.prefill_tokens(4, 1) <= 12);
  pacer.record(4, 8, 1'000 * kAnswers);
  EXPECT(pacer.prefill_tokens(4, 1) >= 8);
}

TEST(it_follows_a_context_that_grows) {
  Pacer pacer = learned(0);
  for (int i = 0; i < Pacer::kLookEvery - 3; ++i) pacer.record(4, 10, kAnswers + 100 * kToken);
  EXPECT_EQ(pacer.prefill_tokens(4, 1), Pacer::kLeastChunk);
}

// A prompt of 4,000 tokens beside an answer on a modelled clock. What is measured is what a step
// costs, give or take a fifth, and now and then ten times that; a prompt token costs more the
// longer its context is.
TEST(an_answer_keeps_its_pace_beside_a_long_prompt) {
  std::mt19937 random(1);
  const auto noise = [&] {
    if (random() % 100 == 0) return 10.0;
    return 0.8 + 0.4 * static_cast<double>(random() % 1000) / 1000;
  };
  const auto cost = [](int32_t computed, int32_t tokens) {
    return static_cast<double>(kAnswers + tokens * (kToken + computed * kToken / 1'000));
  };
  Pacer pacer(0);
  for (int i = 0; i < 20; ++i) pacer.record(1, 0, static_cast<int64_t>(cost(0, 0) * noise()));
  std::vector<double> costs;
  for (int32_t computed = 0; computed < 4'000;) {
    const int32_t tokens = std::min(pacer.prefill_tokens(1, 1), 4'000 - computed);
    costs.push_back(cost(computed, tokens));
    pacer.record(1, tokens, static_cast<int64_t>(costs.back() * noise()));
    computed += tokens;
  }
  std::sort(costs.begin(), costs.end());
  EXPECT(costs[costs.size() * 99 / 100] <= 3 * kAnswers);
  EXPECT(costs[costs.size() / 2] >= 1.5 * kAnswers);  // and the prompt gets its share
  EXPECT(costs.size() < 2'000);
}

TEST(it_looks_how_fast_answers_are_alone) {
  Pacer pacer = learned(0);
  int steps = 0;
  for (int i = 0; i < 100 * Pacer::kLookEvery; ++i) {
    const int32_t tokens = pacer.prefill_tokens(4, 1);
    if (tokens == 0) ++steps;
    pacer.record(4, tokens, 3 * kAnswers + tokens * 3 * kToken);  // the machine has become slower
  }
  EXPECT_EQ(steps, 100);
  EXPECT(pacer.prefill_tokens(4, 1) == 9 ||
         pacer.prefill_tokens(4, 1) == 10);  // ten, less rounding
}

}  // namespace
}  // namespace lmn::engine
