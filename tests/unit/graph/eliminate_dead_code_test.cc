// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

TEST(dead_code_goes_with_its_constants) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 8}));
  const ValueId unread = b.input("unread", tensor(DType::kF32, {"tokens", 8}));
  const ValueId w = b.constant(piece("w", DType::kF32, {8, 8}));
  const ValueId dead = b.linear(x, w, kNone, false, "dead");
  b.add(dead, unread, "dead too");
  b.output(b.add(x, x, "kept"), "y");
  const Graph before = finish(b);
  EXPECT_EQ(nodes_of(before),
            std::string("%3 : f32[tokens, 8] = linear(x, w)  # dead\n"
                        "%4 : f32[tokens, 8] = residual_add(%3, unread)  # dead too\n"
                        "%5 : f32[tokens, 8] = residual_add(x, x)  # kept\n"
                        "output y = %5\n"));
  auto result = eliminate_dead_code(before, options());
  ASSERT_OK(result);
  EXPECT_EQ(to_text(*result),
            std::string("input x : f32[tokens, 8]\n"
                        "input unread : f32[tokens, 8]\n"  // callers still find what they bind
                        "%2 : f32[tokens, 8] = residual_add(x, x)  # kept\n"
                        "output y = %2\n"));
}

TEST(dead_code_keeps_writes_of_state) {
  AttentionBlock block;
  block.b.kv_write(block.k, block.v, block.slots, block.kv,
                   "write");  // read in the next step, if not in this
  const std::string text = after(eliminate_dead_code, finish(block.b));
  EXPECT(text.find("= kv_write(") != std::string::npos);
  EXPECT(text.find("# k\n") != std::string::npos);
  EXPECT(text.find("# q\n") == std::string::npos);
  EXPECT(text.find("rope_table") == std::string::npos);
}
