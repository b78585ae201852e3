// SPDX-License-Identifier: Apache-2.0
//
// fuse_elementwise: what becomes one chain and what does not, as text. That results keep every bit
// is shown in tests/unit/cpu/tensor_chain_test.cc and tests/unit/plan/each_pass_test.cc.
#include "graph/passes/passes.h"
#include "graph/schema.h"
#include "tensor_graph.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;
using namespace graph_test;

std::string chained(const Graph& g) {
  Result<Graph> result = fuse_elementwise(g, {});
  ASSERT_OK(result);
  ASSERT_OK(verify(*result));
  return to_text(*result);
}

// Sizes of which nothing is known: what is scaled by numbers and rows has the shape that it had.
TEST(shapes_that_are_not_known_may_be_equal) {
  Graph g;
  const ValueId x = g.add_input("x", tensor(DType::kF32, {"?", "?", 4}));
  const ValueId z = g.add_input("z", tensor(DType::kF32, {"?", "?", 4}));
  const ValueId c = floats(&g, "c", Shape{}, {2}), row = floats(&g, "row", {4}, {1, 2, 3, 4});
  const ValueId y = node(&g, "Tanh", {node(&g, "Mul", {row, node(&g, "Mul", {c, x})})});
  g.add_output(node(&g, "Mul", {x, y}), "y");
  g.add_output(node(&g, "Exp", {node(&g, "Add", {node(&g, "Neg", {x}), z})}), "w");
  EXPECT_EQ(chained(g),
            "input x : f32[?, ?, 4]\n"
            "input z : f32[?, ?, 4]\n"
            "constant c : f32[]\n"
            "constant row : f32[4]\n"
            "%4 : f32[?, ?, 4] = lmnative.ElementwiseChain(c, x, row) {steps=[Mul x0 x1, "
            "Mul x2 t0, Tanh t1, Mul x1 t2]}\n"
            "%5 : f32[?, ?, 4] = Neg(x)\n"  // of x's shape, which may be a part of the sum's
            "%6 : f32[?, ?, 4] = lmnative.ElementwiseChain(%5, z) {steps=[Add x0 x1, Exp t0]}\n"
            "output y = %4\n"
            "output w = %6\n");
}

// The exponential of a column is computed once for all columns that it is repeated to.
TEST(what_is_smaller_than_the_result_is_computed_apart) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  const ValueId column = g.add_input("c", tensor(DType::kF32, {"n", 1}));
  const ValueId sum = node(&g, "Add", {node(&g, "Exp", {column}), x});
  g.add_output(node(&g, "Relu", {sum}, {}, "last"), "y");
  EXPECT_EQ(chained(g),
            "input x : f32[n, 4]\n"
            "input c : f32[n, 1]\n"
            "%2 : f32[n, 1] = Exp(c)\n"
            "%3 : f32[n, 4] = lmnative.ElementwiseChain(%2, x) {steps=[Add x0 x1, Relu t0]}  "
            "# last\n"
            "output y = %3\n");
}

TEST(what_others_read_ends_a_chain) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  const ValueId first = node(&g, "Neg", {node(&g, "Exp", {x})});
  const ValueId second = node(&g, "Abs", {node(&g, "Sqrt", {first})});
  g.add_output(second, "second");
  g.add_output(node(&g, "Softmax", {first}), "soft");
  g.add_output(node(&g, "Log", {node(&g, "Abs", {second})}), "log");
  EXPECT_EQ(chained(g),
            "input x : f32[n, 4]\n"
            "%1 : f32[n, 4] = lmnative.ElementwiseChain(x) {steps=[Exp x0, Neg t0]}\n"
            "%2 : f32[n, 4] = lmnative.ElementwiseChain(%1) {steps=[Sqrt x0, Abs t0]}\n"
            "%3 : f32[n, 4] = Softmax(%1)\n"
            "%4 : f32[n, 4] = lmnative.ElementwiseChain(%2) {steps=[Abs x0, Log t0]}\n"
            "output second = %2\n"
            "output soft = %3\n"
            "output log = %4\n");
}

// Other types, operators and operands: limits and powers that only a run knows, three operands.
TEST(what_is_no_step_stays) {
  Graph g;
  const ValueId x = input(&g, {"n", 4}), c = g.add_input("c", tensor(DType::kF32, {}));
  const ValueId d = g.add_input("d", tensor(DType::kF64, {"n"}));
  const ValueId none = g.add_input("none", ValueType{Kind::kTensor, DType::kF32, {}, false});
  g.add_output(node(&g, "Neg", {node(&g, "Clip", {x, c})}), "clip");
  g.add_output(node(&g, "Neg", {node(&g, "Pow", {x, c})}), "pow");
  g.add_output(node(&g, "Neg", {node(&g, "Pow", {x, floats(&g, "half", Shape{}, {0.5f})})}),
               "root");
  g.add_output(node(&g, "Neg", {node(&g, "Max", {x, x, c})}), "max");
  g.add_output(node(&g, "Neg", {node(&g, "Abs", {d})}), "double");
  g.add_output(node(&g, "Neg", {node(&g, "Abs", {none})}), "rank");
  g.add_output(node(&g, "Neg", {node(&g, "Cos", {x})}), "cos");
  EXPECT_EQ(chained(g), to_text(g));
}

TEST(a_long_chain_is_several) {
  Graph g;
  ValueId y = input(&g, {"n"});
  for (int i = 0; i < 70; ++i) y = node(&g, "Neg", {y});
  g.add_output(y, "y");
  Result<Graph> result = fuse_elementwise(g, {});
  ASSERT_OK(result);
  ASSERT_OK(verify(*result));
  ASSERT(result->nodes.size() == 3);
  for (const size_t n : {0, 1, 2}) {
    const auto& steps = result->nodes[n].attributes.get<ops::Strings>("steps");
    EXPECT_EQ(steps.size(), n == 0 ? 6u : 32u);
    EXPECT_EQ(steps.front(), "Neg x0");
  }
}

}  // namespace
