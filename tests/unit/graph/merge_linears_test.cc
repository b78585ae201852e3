// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

TEST(q_k_and_v_become_one_linear_and_three_views) {
  AttentionBlock block(DType::kQ8_0);
  block.attend();
  const Graph before = finish(block.b);
  EXPECT_EQ(nodes_of(before).find("%7 : f32[tokens, 64] = linear(x, q.weight) {precise=1}  # q\n"
                                  "%9 : f32[tokens, 32] = linear(x, k.weight) {precise=1}  # k\n"
                                  "%11 : f32[tokens, 32] = linear(x, v.weight) {precise=1}  # v\n"),
            size_t{0});
  auto result = merge_linears(before, options());
  ASSERT_OK(result);
  EXPECT(to_text(*result).find("constant {q,k,v}.weight : q4_0+q8_0[128, 64]\n") !=
         std::string::npos);
  EXPECT_EQ(
      nodes_of(*result),
      std::string("%7 : f32[tokens, 128] = linear(x, {q,k,v}.weight) {precise=1}  # q+k+v\n"
                  "%8 : f32[tokens, 64] = columns(%7) {begin=0, count=64}  # q\n"
                  "%9 : f32[tokens, 32] = columns(%7) {begin=64, count=32}  # k\n"
                  "%10 : f32[tokens, 32] = columns(%7) {begin=96, count=32}  # v\n"
                  "%12 : f32[tokens, 16] = rope_table(positions, inv_freq) {magnitude=1}  # table\n"
                  "%13 : f32[tokens, 64] = rope(%8, %12) {heads=4, style=halves}  # rope_q\n"
                  "%14 : f32[tokens, 32] = rope(%9, %12) {heads=2, style=halves}  # rope_k\n"
                  "%15 : kv[2, 16] = kv_write(%14, %10, kv_slots, kv.0)  # write\n"
                  "%16 : f32[tokens, 64] = paged_attention(%13, %15, positions, sequence_index, "
                  "block_tables) "
                  "{heads=4, scale=0.25}  # attention\n"
                  "output y = %16\n"));
}

TEST(biases_are_merged_in_the_order_of_the_weights) {
  AttentionBlock block(DType::kQ4_0, /*bias=*/true);
  block.attend();
  EXPECT(after(merge_linears, finish(block.b)).find("linear(x, {q,k,v}.weight, {q,k,v}.bias)") !=
         std::string::npos);
}

TEST(linears_with_readers_of_whole_rows_stay_apart) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 64}));
  const ValueId one =
      b.linear(x, b.constant(piece("one", DType::kQ4_0, {64, 64})), kNone, false, "one");
  const ValueId two =
      b.linear(x, b.constant(piece("two", DType::kQ4_0, {64, 64})), kNone, false, "two");
  b.output(b.add(one, two, "sum"), "y");
  expect_unchanged(merge_linears, finish(b));
}

TEST(a_reader_of_whole_rows_behind_a_change_in_place_counts) {
  AttentionBlock block;
  block.attend();
  // rope_q is read by the attention, which takes strides, and now by an add, which does not.
  const ValueId extra = block.b.rope(block.q, block.cos_sin, 4, "interleaved", "other rope");
  block.b.output(block.b.add(extra, extra, "sum"), "z");
  const std::string text = after(merge_linears, finish(block.b));
  EXPECT(text.find("linear(x, q.weight)") != std::string::npos);
  EXPECT(text.find("linear(x, {k,v}.weight)") != std::string::npos);
}

TEST(linears_for_different_inputs_stay_apart) {
  AttentionBlock block(DType::kF16);  // k and v read f32, q reads qa16
  block.attend();
  const std::string text = after(merge_linears, finish(block.b));
  EXPECT(text.find("linear(x, q.weight)") != std::string::npos);
  EXPECT(text.find("linear(x, {k,v}.weight)") != std::string::npos);
}

TEST(the_finer_input_suits_both_integer_formats) {
  AttentionBlock block(DType::kQ8_0);
  block.attend();
  PassOptions mixed = options();
  mixed.linear_input_type = [](DType weight, int64_t, bool) -> Result<DType> {
    return weight == DType::kQ8_0 ? DType::kQA16 : DType::kQA8;
  };
  auto result = merge_linears(finish(block.b), mixed);
  ASSERT_OK(result);
  EXPECT(nodes_of(*result).find("linear(x, {q,k,v}.weight)") != std::string::npos);
  auto lowered = lower_quantize(*result, mixed);
  ASSERT_OK(lowered);
  EXPECT(nodes_of(*lowered).find("= quantize(x) {type=qa16}") != std::string::npos);
}

TEST(merging_names_the_weight_that_a_device_refuses) {
  AttentionBlock block(DType::kBool);
  block.attend();
  auto result = merge_linears(finish(block.b), options());
  ASSERT(!result.ok());
  EXPECT(result.status().code() == Code::kUnsupported);
  EXPECT_EQ(std::string(result.status().message()), std::string("k.weight: no weights of bool"));
}
