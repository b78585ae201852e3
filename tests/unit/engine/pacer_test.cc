// SPDX-License-Identifier: Apache-2.0
#include "engine/pacer.h"

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
  EXPECT_EQ(learned(0).prefill_tokens(), 10);          // twice 1 ms leaves 1 ms: ten tokens
  EXPECT_EQ(learned(3'000'000).prefill_tokens(), 20);  // 3 ms leave 2 ms
  EXPECT_EQ(learned(6'000'000).prefill_tokens(), 50);
}

TEST(a_prompt_moves_whatever_the_target) {
  EXPECT_EQ(learned(1).prefill_tokens(), Pacer::kLeastChunk);
  EXPECT_EQ(learned(1'100'000).prefill_tokens(), Pacer::kLeastChunk);
}

TEST(before_anything_is_known) {
  EXPECT_EQ(Pacer(0).prefill_tokens(), Pacer::kFirstChunk);
  EXPECT_EQ(Pacer(5'000'000).prefill_tokens(), Pacer::kFirstChunk);
  Pacer prompts_only(0);  // what a token costs is known, what answers take is not
  prompts_only.record(0, 100, 100 * kToken);
  EXPECT_EQ(prompts_only.prefill_tokens(), Pacer::kFirstChunk);
}

TEST(a_step_in_which_the_machine_was_away_changes_little) {
  Pacer pacer = learned(0);
  pacer.record(4, 0, 1'000 * kAnswers);
  EXPECT(pacer.prefill_tokens() <= 12);
  pacer.record(4, 8, 1'000 * kAnswers);
  EXPECT(pacer.prefill_tokens() >= 8);
}

TEST(it_follows_a_context_that_grows) {
  Pacer pacer = learned(0);
  for (int i = 0; i < 100; ++i) pacer.record(4, 10, kAnswers + 10 * 4 * kToken);
  EXPECT(pacer.prefill_tokens() == Pacer::kLeastChunk);
}

}  // namespace
}  // namespace lmn::engine
