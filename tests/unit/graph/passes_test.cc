// SPDX-License-Identifier: Apache-2.0
//
// The list of passes as a whole. That results stay what they were is shown by running plans
// (tests/unit/plan).
#include "graph/graph_fixture.h"

using namespace graph_test;

TEST(passes_are_observed_in_order_and_verified) {
  AttentionBlock block;
  block.attend();
  std::vector<std::string> seen;
  PassOptions o = options();
  o.observe = [&](std::string_view pass, const Graph& graph) {
    seen.emplace_back(pass);
    EXPECT(verify(graph).ok());
  };
  ASSERT_OK(optimize(finish(block.b), o));
  std::vector<std::string> want{"input"};
  for (const Pass& pass : passes()) want.emplace_back(pass.name);
  EXPECT(seen == want);
  EXPECT(want.size() > 9);
}

TEST(a_layer_of_attention_ends_as_six_nodes) {
  AttentionBlock block;
  block.attend();
  auto result = optimize(finish(block.b), options());
  ASSERT_OK(result);
  EXPECT_EQ(nodes_of(*result),
            std::string(
                "%6 : qa16[tokens, 64] = quantize(x) {type=qa16}  # q+k+v\n"
                "%8 : f32[tokens, 128] = linear(%6, {q,k,v}.weight) {precise=1}  # q+k+v\n"
                "%10 : f32[tokens, 16] = rope_table(positions, inv_freq) {magnitude=1}  # table\n"
                "%11 : f32[tokens, 128], %12 : kv[2, 16] = rope_kv_write(%8, %10, kv_slots, kv.0) "
                "{heads=4, style=halves}  # write\n"
                "%13 : f32[tokens, 64] = columns(%11) {begin=0, count=64}  # rope_q\n"
                "%14 : f32[tokens, 64] = paged_attention(%13, %12, positions, sequence_index, "
                "block_tables) "
                "{heads=4, scale=0.25}  # attention\n"
                "output y = %14\n"));
}

TEST(an_error_of_a_pass_names_the_weight) {
  AttentionBlock block(DType::kBool);
  block.attend();
  auto result = optimize(finish(block.b), options());
  ASSERT(!result.ok());
  EXPECT(result.status().code() == Code::kUnsupported);
  EXPECT_EQ(std::string(result.status().message()), std::string("k.weight: no weights of bool"));
}
