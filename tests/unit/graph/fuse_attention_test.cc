// SPDX-License-Identifier: Apache-2.0
//
// fuse_attention, before and after, as text. That results stay is shown where graphs run:
// tests/unit/plan/fused_program_test.cc.
#include "graph/passes/passes.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;

struct Maker {
  Graph g;

  ValueId number(const char* name, float value) {
    auto memory = std::make_shared<float>(value);
    return g.add_constant(
        name, Tensor{DType::kF32, Shape{}, reinterpret_cast<std::byte*>(memory.get()), memory});
  }
  ValueId input(const char* name, Dims dims) {
    return g.add_input(name, tensor(DType::kF32, std::move(dims)));
  }
  ValueId node(Op op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    auto id = g.add(op, std::move(inputs), std::move(attributes), "");
    ASSERT_OK(id.status());
    return g.node(*id).outputs[0];
  }
  ValueId transpose(ValueId x, ops::Ints perm) {
    return node(Op::kTranspose, {x}, {{"perm", std::move(perm)}});
  }
  std::string fused() {
    Result<Graph> result = fuse_attention(g, {});
    ASSERT_OK(result.status());
    result = eliminate_dead_code(*result, {});
    ASSERT_OK(result.status());
    return to_text(*result);
  }
};

TEST(scores_mask_and_softmax_become_one) {
  Maker m;
  const ValueId q = m.input("q", {"b", "t", 12, 32}), k = m.input("k", {"b", "s", 12, 32});
  const ValueId v = m.input("v", {"b", "s", 12, 32}), mask = m.input("mask", {"b", 1, 1, "s"});
  ValueId x = m.node(Op::kMatMul, {m.transpose(q, {0, 2, 1, 3}), m.transpose(k, {0, 2, 3, 1})});
  x = m.node(Op::kAdd, {m.node(Op::kDiv, {x, m.number("four", 4)}), mask});
  x = m.node(Op::kMatMul,
             {m.node(Op::kSoftmax, {x}, {{"axis", int64_t{-1}}}), m.transpose(v, {0, 2, 1, 3})});
  m.g.add_output(m.transpose(x, {0, 2, 1, 3}), "y");
  EXPECT_EQ(m.fused(),
            "input q : f32[b, t, 12, 32]\n"
            "input k : f32[b, s, 12, 32]\n"
            "input v : f32[b, s, 12, 32]\n"
            "input mask : f32[b, 1, 1, s]\n"
            "%4 : f32[b, t, 12, 32] = lmnative.Attention(q, k, v, mask) {k_perm=[0, 2, 1, 3], "
            "q_perm=[0, 2, 1, 3], scale=0.25, v_perm=[0, 2, 1, 3], y_perm=[0, 2, 1, 3]}\n"
            "output y = %4\n");
}

// Factors on both sides, one of which only the run knows, and keys that lie in columns.
TEST(factors_of_queries_and_keys_are_taken_along) {
  Maker m;
  const ValueId q = m.input("q", {1, 2, "t", 8}), k = m.input("k", {1, 2, 8, "s"});
  const ValueId v = m.input("v", {1, 2, "s", 8}), root = m.input("root", {1});
  const ValueId x = m.node(
      Op::kMatMul, {m.node(Op::kMul, {q, root}), m.node(Op::kMul, {m.number("half", 0.5f), k})});
  m.g.add_output(m.node(Op::kMatMul, {m.node(Op::kSoftmax, {x}, {{"axis", int64_t{3}}}), v}), "y");
  EXPECT_EQ(m.fused(),
            "input q : f32[1, 2, t, 8]\n"
            "input k : f32[1, 2, 8, s]\n"
            "input v : f32[1, 2, s, 8]\n"
            "input root : f32[1]\n"
            "%4 : f32[1, 2, t, 8] = lmnative.Attention(q, k, v, -, root) {k_perm=[0, 1, 3, 2], "
            "scale=0.5}\n"
            "output y = %4\n");
}

TEST(weights_that_somebody_else_reads_stay) {
  Maker m;
  const ValueId q = m.input("q", {1, 2, "t", 8}), k = m.input("k", {1, 2, 8, "s"});
  const ValueId v = m.input("v", {1, 2, "s", 8});
  const ValueId weights =
      m.node(Op::kSoftmax, {m.node(Op::kMatMul, {q, k})}, {{"axis", int64_t{-1}}});
  m.g.add_output(m.node(Op::kMatMul, {weights, v}), "y");
  m.g.add_output(weights, "weights");
  EXPECT_EQ(m.fused(), to_text(m.g));
}

TEST(a_softmax_over_another_axis_is_none_of_it) {
  Maker m;
  const ValueId q = m.input("q", {1, 2, "t", 8}), k = m.input("k", {1, 2, 8, "s"});
  const ValueId v = m.input("v", {1, 2, "s", 8});
  const ValueId weights =
      m.node(Op::kSoftmax, {m.node(Op::kMatMul, {q, k})}, {{"axis", int64_t{2}}});
  m.g.add_output(m.node(Op::kMatMul, {weights, v}), "y");
  EXPECT_EQ(m.fused(), to_text(m.g));
}

}  // namespace
