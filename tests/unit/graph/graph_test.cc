// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include "graph/graph_fixture.h"

using namespace graph_test;

TEST(names_of_operators_are_those_of_ops_def) {
  EXPECT_EQ(name(Op::kEmbedding), std::string_view("embedding"));
  EXPECT_EQ(name(Op::kRopeKvWrite), std::string_view("rope_kv_write"));
  EXPECT_EQ(name(Op::kColumns), std::string_view("columns"));
  EXPECT(kernel_of(Op::kLinear) == ops::Op::kLinear);
  EXPECT(!kernel_of(Op::kColumns));
}

TEST(attributes_are_sorted_and_typed) {
  Attributes a{{"scale", 0.5f}, {"heads", int64_t{4}}};
  a.set("heads", int64_t{8});
  EXPECT_EQ(a.entries().size(), size_t{2});
  EXPECT_EQ(a.entries()[0].first, std::string("heads"));
  EXPECT_EQ(a.get<int64_t>("heads"), int64_t{8});
  EXPECT_EQ(a.get<float>("scale"), 0.5f);
  EXPECT_EQ(a.get_or<int64_t>("missing", 3), int64_t{3});
  EXPECT(a.find("missing") == nullptr);
  EXPECT(a == (Attributes{{"heads", int64_t{8}}, {"scale", 0.5f}}));
  EXPECT(!(a == Attributes{{"heads", int64_t{8}}}));
  bool thrown = false;
  try {
    (void)a.get<float>("heads");
  } catch (const BrokenInvariant&) {
    thrown = true;
  }
  EXPECT(thrown);
}

TEST(text_shows_inputs_constants_nodes_and_outputs) {
  Builder b;
  const ValueId ids = b.input("token_ids", tensor(DType::kI32, {"tokens"}));
  const ValueId table = b.constant(piece("token_embd.weight", DType::kQ8_0, {100, 64}));
  const ValueId weight = b.constant(piece("norm.weight", DType::kF32, {64}));
  const ValueId x = b.embedding(ids, table, "embed");
  b.output(b.rms_norm(x, weight, 1e-5f, "norm"), "y");
  EXPECT_EQ(to_text(finish(b)),
            std::string("input token_ids : i32[tokens]\n"
                        "constant token_embd.weight : q8_0[100, 64]\n"
                        "constant norm.weight : f32[64]\n"
                        "%3 : f32[tokens, 64] = embedding(token_ids, token_embd.weight)  # embed\n"
                        "%4 : f32[tokens, 64] = rms_norm(%3, norm.weight) {eps=1e-05}  # norm\n"
                        "output y = %4\n"));
}

TEST(text_shows_absent_operands_and_several_outputs) {
  AttentionBlock block;
  const ValueId qkv = block.b.node(
      Op::kLinear, {block.x, block.b.constant(piece("qkv", DType::kF32, {128, 64})), kNone, kNone},
      {}, "");
  const ValueId out =
      block.b.node(Op::kRopeKvWrite, {qkv, block.cos_sin, block.slots, block.kv},
                   {{"heads", int64_t{4}}, {"style", std::string("halves")}}, "fused");
  block.b.output(out, "y");
  const std::string text = to_text(finish(block.b));
  EXPECT(text.find("= linear(x, qkv, -, -)\n") != std::string::npos);
  EXPECT(text.find(" : f32[tokens, 128], %17 : kv[2, 16] = rope_kv_write(") != std::string::npos);
  EXPECT(text.find("{heads=4, style=halves}  # fused\n") != std::string::npos);
}

TEST(merged_constants_have_the_common_name_and_the_sum_of_rows) {
  Graph graph;
  Constant merged;
  merged.pieces = {piece("blk.0.attn_q.weight", DType::kQ4_0, {64, 64}),
                   piece("blk.0.attn_k.weight", DType::kQ4_0, {32, 64}),
                   piece("blk.0.attn_v.weight", DType::kQ8_0, {32, 64})};
  const ValueId id = graph.add_constant(merged);
  EXPECT_EQ(graph.value(id).name, std::string("blk.0.attn_{q,k,v}.weight"));
  EXPECT_EQ(graph.value(id).type.to_string(), std::string("q4_0[128, 64]"));
  EXPECT_EQ(to_text(graph),
            std::string("constant blk.0.attn_{q,k,v}.weight : q4_0+q8_0[128, 64]\n"));

  // Names that are prefixes of each other, equal, or have nothing in common.
  merged.pieces = {piece("ab", DType::kF32, {1}), piece("abc", DType::kF32, {2})};
  EXPECT_EQ(graph.value(graph.add_constant(merged)).name, std::string("ab{,c}"));
  merged.pieces = {piece("aa", DType::kF32, {1}), piece("a", DType::kF32, {2})};
  EXPECT_EQ(graph.value(graph.add_constant(merged)).name, std::string("a{a,}"));
  merged.pieces = {piece("x", DType::kF32, {1}), piece("y", DType::kF32, {2})};
  EXPECT_EQ(graph.value(graph.add_constant(merged)).name, std::string("{x,y}"));
}

TEST(users_are_listed_in_order_and_twice_where_read_twice) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 8}));
  const ValueId y = b.add(x, x, "double");
  b.output(b.add(y, x, "triple"), "z");
  const auto users = users_of(finish(b));
  EXPECT(users[static_cast<size_t>(x)] == (std::vector<NodeId>{0, 0, 1}));
  EXPECT(users[static_cast<size_t>(y)] == (std::vector<NodeId>{1}));
}

TEST(owned_constants_outlive_their_source) {
  Graph copy;
  {
    Graph graph;
    graph.add_constant(owned_constant("c", {1, 2, 3}));
    copy = graph;
  }
  const TensorView& view = copy.values[0].constant->pieces[0].view;
  EXPECT_EQ(view.as<float>()[2], 3.0f);
  EXPECT_EQ(view.shape.to_string(), std::string("[3]"));
}

TEST(builder_keeps_the_first_error) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 8}));
  const ValueId bad = b.rms_norm(x, b.constant(piece("w", DType::kF32, {9})), 1e-5f, "norm");
  EXPECT_EQ(bad, kNone);
  EXPECT(!b.ok());
  EXPECT_EQ(b.add(bad, x, "later"), kNone);
  b.output(bad, "y");
  const auto graph = b.finish();
  ASSERT(!graph.ok());
  EXPECT_EQ(std::string(graph.status().message()),
            std::string("rms_norm 'norm': weight is f32[9], expected a constant f32[8]"));
}
