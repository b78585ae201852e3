// SPDX-License-Identifier: Apache-2.0
//
// fold_shapes: what is folded of a shape, and what is not, as text. That results stay is shown in
// tests/unit/plan/each_pass_test.cc.
#include "graph/passes/passes.h"
#include "graph/schema.h"
#include "tensor_graph.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;
using namespace graph_test;

struct ShapeMaker {
  Graph g;
  ValueId x = input(&g, {"n", "m", 12});
  ValueId shape = node(&g, "Shape", {x});

  ValueId ints(std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return constant<int64_t>(&g, "c", DType::kI64, {count}, std::move(values));
  }
  ValueId size(int64_t axis) { return node(&g, "Gather", {shape, ints({axis})}); }
  ValueId concat(std::vector<ValueId> parts) {
    return node(&g, "Concat", std::move(parts), {{"axis", int64_t{0}}});
  }
  // The type of Reshape(x, sizes), and its second operand's name, after the pass.
  std::string reshaped(ValueId sizes, int64_t allowzero = 0) {
    Attributes attributes;
    if (allowzero != 0) attributes.set("allowzero", allowzero);
    g.outputs.clear();
    g.add_output(node(&g, "Reshape", {x, sizes}, attributes, "r"), "y");
    Result<Graph> result = fold_shapes(g, {});
    ASSERT_OK(result);
    ASSERT_OK(verify(*result));
    const Node& last = result->nodes.back();
    const Value& wanted = result->value(last.inputs[1]);
    std::string out = result->value(last.outputs[0]).type.to_string();
    if (wanted.constant == nullptr) return out + " computed";
    const TensorView& view = wanted.constant->pieces[0].view;
    for (int64_t i = 0; i < view.shape.elements(); ++i)
      out += " " + std::to_string(view.as<int64_t>()[i]);
    return out;
  }
};

TEST(sizes_that_the_input_has_are_kept) {
  ShapeMaker m;
  EXPECT_EQ(m.reshaped(m.concat({m.size(0), m.size(1), m.ints({3, 4})})),
            "f32[n, m, 3, 4] 0 0 3 4");
  EXPECT_EQ(m.reshaped(m.concat({m.size(0), m.size(-2), m.ints({-1, 4})}), 1),
            "f32[n, m, 3, 4] 0 0 -1 4");
  EXPECT_EQ(m.reshaped(m.concat({m.size(0), m.ints({-1})})), "f32[n, ?] 0 -1");
}

TEST(one_size_may_be_found_beside_numbers) {
  ShapeMaker m;
  const ValueId z = m.g.add_input("z", tensor(DType::kF32, {"k", 12}));
  const ValueId k = node(&m.g, "Slice", {node(&m.g, "Shape", {z}), m.ints({0}), m.ints({1})});
  EXPECT_EQ(m.reshaped(m.concat({m.ints({2, 3}), k})), "f32[2, 3, ?] 2 3 -1");
  EXPECT_EQ(m.reshaped(m.concat({m.size(0), k})), "f32[?, ?] computed");  // n may be 0
  EXPECT_EQ(m.reshaped(m.concat({k, k})), "f32[?, ?] computed");
  EXPECT_EQ(m.reshaped(m.concat({k, m.ints({-1})})), "f32[?, ?] computed");
  EXPECT_EQ(m.reshaped(m.concat({m.size(0), m.ints({0})}), 1), "f32[?, ?] computed");
  const ValueId twice = node(&m.g, "Mul", {m.size(0), m.ints({2})});
  EXPECT_EQ(m.reshaped(m.concat({twice, m.ints({-1})})), "f32[?, ?] computed");
}

// Sizes that turn out to be numbers are constants, of the type that they had.
TEST(numbers_among_sizes_are_constants) {
  ShapeMaker m;
  const ValueId last = node(&m.g, "Squeeze", {m.size(2)});
  m.g.add_output(node(&m.g, "Cast", {last}, {{"to", int64_t{6}}}, "twelve"), "y");
  m.g.add_output(node(&m.g, "Shape", {m.x}, {{"start", int64_t{2}}}, "tail"), "z");
  m.g.add_output(m.size(1), "m");
  Result<Graph> result = fold_shapes(m.g, {});
  ASSERT_OK(result);
  ASSERT_OK(verify(*result));
  const Graph& g = *result;
  const auto view = [&](size_t output) -> const TensorView& {
    return g.value(g.outputs[output].value).constant->pieces[0].view;
  };
  EXPECT_EQ(g.value(g.outputs[0].value).type.to_string(), "i32[]");
  EXPECT_EQ(*view(0).as<int32_t>(), 12);
  EXPECT_EQ(g.value(g.outputs[1].value).type.to_string(), "i64[1]");
  EXPECT_EQ(*view(1).as<int64_t>(), 12);
  EXPECT(g.value(g.outputs[2].value).constant == nullptr);
}

TEST(an_expand_to_other_sizes_stays) {
  ShapeMaker m;
  const auto nodes_after = [&](ValueId sizes) {
    m.g.outputs.clear();
    m.g.add_output(node(&m.g, "Expand", {m.x, sizes}), "y");
    Result<Graph> result = fold_shapes(m.g, {});
    ASSERT_OK(result);
    return result->outputs[0].value == result->inputs[0] ? "x" : "expanded";
  };
  EXPECT_EQ(nodes_after(m.concat({m.size(0), m.size(1), m.ints({12})})), "x");
  EXPECT_EQ(nodes_after(m.concat({m.size(1), m.ints({1})})), "x");
  EXPECT_EQ(nodes_after(m.concat({m.size(1), m.size(1), m.ints({12})})), "expanded");
  EXPECT_EQ(nodes_after(m.concat({m.ints({1}), m.size(0), m.size(1), m.ints({1})})), "expanded");
}

}  // namespace
