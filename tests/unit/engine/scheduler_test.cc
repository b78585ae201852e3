// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <string>

#include "testing.h"

namespace lmn::engine {
namespace {

// "sequence:begin+tokens/outputs ..."
std::string plan(const std::vector<SequenceView>& running, const StepBudget& budget) {
  std::vector<Slice> step;
  schedule(running, budget, step);
  std::string out;
  for (const Slice& s : step) {
    out += (out.empty() ? "" : " ") + std::to_string(s.sequence) + ":" + std::to_string(s.begin) +
           "+" + std::to_string(s.tokens) + "/" + std::to_string(s.outputs);
  }
  return out;
}

TEST(one_prompt_in_chunks) {
  const StepBudget budget{64, 64, 1, 1};
  EXPECT_EQ(plan({{100, 0, 32, false}}, budget), "0:0+32/0");
  EXPECT_EQ(plan({{100, 96, 32, false}}, budget), "0:96+4/1");
  EXPECT_EQ(plan({{101, 100, 32, false}}, budget), "0:100+1/1");
  EXPECT_EQ(plan({{1, 0, 32, false}}, budget), "0:0+1/1");
}

TEST(decodes_go_before_prompts) {
  EXPECT_EQ(plan({{500, 0, 64, false}, {40, 39, 64, false}, {90, 89, 64, false}}, {64, 64, 8, 8}),
            "1:39+1/1 2:89+1/1 0:0+62/0");
  EXPECT_EQ(plan({{500, 0, 64, false}, {40, 39, 64, false}}, {64, 10, 8, 8}), "1:39+1/1 0:0+10/0");
  EXPECT_EQ(plan({{30, 0, 64, false}, {30, 0, 64, false}}, {64, 40, 8, 8}), "0:0+30/1 1:0+10/0");
}

TEST(budgets_bound_the_step) {
  const std::vector<SequenceView> decodes = {
      {9, 8, 64, false}, {9, 8, 64, false}, {9, 8, 64, false}};
  EXPECT_EQ(plan(decodes, {2, 2, 8, 8}), "0:8+1/1 1:8+1/1");
  EXPECT_EQ(plan(decodes, {64, 64, 2, 8}), "0:8+1/1 1:8+1/1");
  EXPECT_EQ(plan(decodes, {64, 64, 8, 2}), "0:8+1/1 1:8+1/1");
  EXPECT_EQ(plan({}, {64, 64, 8, 8}), "");
}

TEST(scores_want_a_row_per_token) {
  EXPECT_EQ(plan({{100, 0, 64, true}}, {64, 64, 1, 16}), "0:0+16/16");
  EXPECT_EQ(plan({{100, 96, 64, true}}, {64, 64, 1, 16}), "0:96+4/4");
  EXPECT_EQ(plan({{100, 99, 64, true}}, {64, 64, 1, 16}), "0:99+1/1");
  // What a decode leaves of the outputs.
  EXPECT_EQ(plan({{100, 0, 64, true}, {9, 8, 64, false}}, {64, 64, 8, 16}), "1:8+1/1 0:0+15/15");
}

TEST(a_prompt_without_room_for_its_logits_stops_before_its_last_token) {
  EXPECT_EQ(plan({{9, 8, 64, false}, {10, 0, 64, false}}, {64, 64, 8, 1}), "0:8+1/1 1:0+9/0");
}

}  // namespace
}  // namespace lmn::engine
