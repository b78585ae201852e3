// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

TEST(equal_nodes_become_one) {
  Builder b;
  const ValueId positions = b.input("positions", tensor(DType::kI32, {"tokens"}));
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 32}));
  const ValueId inv_freq = b.constant(owned_constant("inv_freq", std::vector<float>(8, 1.0f)));
  const ValueId first = b.rope_table(positions, inv_freq, 1, "first");
  const ValueId other = b.rope_table(positions, inv_freq, 2, "another magnitude");
  const ValueId again = b.rope_table(positions, inv_freq, 1, "again");
  ValueId y = b.rope(x, first, 2, "halves", "a");
  y = b.rope(y, again, 2, "halves", "b");
  b.output(b.rope(y, other, 2, "halves", "c"), "y");
  EXPECT_EQ(
      after(eliminate_common_subexpressions, finish(b)),
      std::string("%3 : f32[tokens, 16] = rope_table(positions, inv_freq) {magnitude=1}  # first\n"
                  "%4 : f32[tokens, 16] = rope_table(positions, inv_freq) {magnitude=2}  # another "
                  "magnitude\n"
                  "%5 : f32[tokens, 32] = rope(x, %3) {heads=2, style=halves}  # a\n"
                  "%6 : f32[tokens, 32] = rope(%5, %3) {heads=2, style=halves}  # b\n"
                  "%7 : f32[tokens, 32] = rope(%6, %4) {heads=2, style=halves}  # c\n"
                  "output y = %7\n"));
}

TEST(equal_nodes_merge_through_what_they_read) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 32}));
  const Piece shared = piece("w", DType::kF32, {32, 32});  // two constants over the same bytes
  ValueId first = x, second = x;
  for (int i = 0; i < 2; ++i) {
    first = b.linear(first, b.constant(shared), kNone, false, "first");
    second = b.linear(second, b.constant(shared), kNone, false, "second");
  }
  b.output(first, "a");
  b.output(second, "b");
  auto result = eliminate_common_subexpressions(finish(b), options());
  ASSERT_OK(result);
  EXPECT_EQ(to_text(*result), std::string("input x : f32[tokens, 32]\n"
                                          "constant w : f32[32, 32]\n"
                                          "%2 : f32[tokens, 32] = linear(x, w)  # first\n"
                                          "%3 : f32[tokens, 32] = linear(%2, w)  # first\n"
                                          "output a = %3\n"
                                          "output b = %3\n"));
}

TEST(equal_writes_of_state_stay_apart) {
  AttentionBlock block;
  block.b.kv_write(block.k, block.v, block.slots, block.kv, "write");
  block.b.kv_write(block.k, block.v, block.slots, block.kv, "write");
  const std::string text = after(eliminate_common_subexpressions, finish(block.b));
  EXPECT(text.find("kv_write") != text.rfind("kv_write"));
}

TEST(constants_over_the_same_bytes_in_other_shapes_stay_apart) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 8}));
  const Piece square = piece("w", DType::kF32, {8, 8});
  Piece half = square;
  half.view.shape = Shape{4, 8};
  b.output(b.linear(x, b.constant(square), kNone, false, "square"), "a");
  b.output(b.linear(x, b.constant(half), kNone, false, "half"), "b");
  expect_unchanged(eliminate_common_subexpressions, finish(b));
}
