// SPDX-License-Identifier: Apache-2.0
//
// Passes over convolutions and quantised products, before and text_after, as text; and, of what
// they compute themselves, the numbers. That graphs keep their results is shown in
// tests/unit/plan/program_passes_test.cc.
#include <cmath>
#include <stdexcept>

#include "graph/passes/passes.h"
#include "tensor_graph.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;
using namespace graph_test;

std::string text_after(PassFn pass, const Graph& g) {
  Result<Graph> result = pass(g, {});
  if (!result.ok()) return std::string(result.status().message());
  return to_text(*result);
}
size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(batch_norm_goes_into_the_convolution) {
  Graph g;
  const ValueId x = input(&g, {"n", 1, 4});
  const ValueId w = floats(&g, "w", {2, 1, 2}, {1, 2, 3, 4});
  const ValueId b = floats(&g, "b", {2}, {1, 2});
  const ValueId conv = node(&g, "Conv", {x, w, b}, {}, "c");
  const ValueId scale = floats(&g, "scale", {2}, {2, 3}), shift = floats(&g, "shift", {2}, {5, 6});
  const ValueId mean = floats(&g, "mean", {2}, {3, 4}), variance = floats(&g, "var", {2}, {4, 9});
  Attributes attributes;
  attributes.set("epsilon", 0.0f);
  g.add_output(node(&g, "BatchNormalization", {conv, scale, shift, mean, variance}, attributes),
               "y");
  Result<Graph> folded = fold_batch_norm(g, {});
  ASSERT(folded.ok());
  EXPECT_EQ(to_text(*folded),
            "input x : f32[n, 1, 4]\n"
            "constant w.folded : f32[2, 1, 2]\n"
            "constant shift.folded : f32[2]\n"
            "%3 : f32[n, 2, 3] = Conv(x, w.folded, shift.folded)  # c\n"
            "output y = %3\n");
  const auto numbers = [&](ValueId id) {
    const TensorView& view = folded->value(id).constant->pieces[0].view;
    return std::vector<float>(view.as<float>(), view.as<float>() + view.shape.elements());
  };
  EXPECT(numbers(1) == (std::vector<float>{1, 2, 3, 4}));  // times 2 / 2 and 3 / 3
  EXPECT(numbers(2) == (std::vector<float>{3, 4}));        // (1 - 3) * 1 + 5, (2 - 4) * 1 + 6
}

TEST(a_convolution_that_is_read_twice_keeps_its_batch_norm) {
  Graph g;
  const ValueId x = input(&g, {"n", 1, 4});
  const ValueId conv = node(&g, "Conv", {x, floats(&g, "w", {1, 1, 2}, {1, 2})});
  const ValueId one = floats(&g, "one", {1}, {1});
  g.add_output(node(&g, "BatchNormalization", {conv, one, one, one, one}), "y");
  g.add_output(conv, "z");
  EXPECT_EQ(text_after(fold_batch_norm, g), to_text(g));
}

ValueId weights(Graph* g, const char* name, int64_t outputs, int64_t channels) {
  return floats(g, name, {outputs, channels, 1, 1},
                std::vector<float>(static_cast<size_t>(outputs * channels), 1.0f));
}

TEST(a_chain_is_turned_once_at_each_end) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 5, 5});
  ValueId y = node(&g, "Relu", {node(&g, "Conv", {x, weights(&g, "v", 8, 2)})});
  Attributes pool;
  pool.set("kernel_shape", ops::Ints{2, 2});
  y = node(&g, "MaxPool", {y}, pool);
  const ValueId scale = floats(&g, "scale", {8, 1, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  y = node(&g, "Mul", {y, scale});
  y = node(&g, "Add", {y, node(&g, "Conv", {y, weights(&g, "w", 8, 8)})});
  g.add_output(y, "y");
  const std::string text = text_after(use_channels_last, g);
  EXPECT_EQ(count(text, "Transpose"), 2u);
  EXPECT_EQ(count(text, "lmnative.Conv"), 2u);
  EXPECT_EQ(count(text, "f32[n, 5, 5, 8] = Relu"), 1u);
  EXPECT_EQ(count(text, "f32[n, 4, 4, 8] = lmnative.MaxPool"), 1u);
  EXPECT_EQ(count(text, "f32[n, 4, 4, 8] = Mul"), 1u);
  EXPECT_EQ(count(text, "f32[8] = Reshape(scale"), 1u);
  EXPECT_EQ(count(text, "f32[n, 8, 4, 4] = Transpose"), 1u);
}

// A mean over all positions is no Transpose, and neither is an image of one channel.
TEST(what_moves_past_ones_is_reshaped) {
  Graph g;
  const ValueId x = input(&g, {"n", 1, 5, 5});
  const ValueId y = node(&g, "Conv", {x, weights(&g, "w", 8, 1)});
  g.add_output(node(&g, "GlobalAveragePool", {y}), "y");
  const ValueId axes = constant<int64_t>(&g, "axes", DType::kI64, {2}, {-1, 2});
  Attributes attributes;
  attributes.set("keepdims", int64_t{0});
  g.add_output(node(&g, "ReduceMean", {y, axes}, attributes), "z");
  const std::string text = text_after(use_channels_last, g);
  EXPECT_EQ(count(text, "Transpose"), 0u);
  EXPECT_EQ(count(text, "f32[n, 5, 5, 1] = Reshape(x"), 1u);
  EXPECT_EQ(count(text, "lmnative.GlobalAveragePool"), 2u);
  EXPECT_EQ(count(text, "f32[n, 8, 1, 1] = Reshape"), 1u);
  EXPECT_EQ(count(text, "f32[n, 8] = Reshape"), 1u);
}

TEST(what_is_no_part_of_a_chain_stays) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 5, 5});
  const ValueId w = g.add_input("w", tensor(DType::kF32, {8, 2, 1, 1}));  // nothing to pack
  ValueId y = node(&g, "Conv", {x, w});
  Attributes pool;
  pool.set("kernel_shape", ops::Ints{2, 2});
  y = node(&g, "Relu", {node(&g, "MaxPool", {y}, pool)});
  g.add_output(node(&g, "Conv", {y, weights(&g, "v", 3, 8)}), "y");  // too few outputs
  EXPECT_EQ(text_after(use_channels_last, g), to_text(g));
}

TEST(a_convolution_takes_along_what_follows) {
  Graph g;
  const ValueId x = input(&g, {"n", 5, 5, 2});
  const ValueId b = floats(&g, "b", {4}, {1, 2, 3, 4});
  const ValueId one = node(&g, "lmnative.Conv", {x, weights(&g, "v", 4, 2)}, {}, "one");
  const ValueId two = node(&g, "lmnative.Conv", {x, weights(&g, "w", 4, 2), b}, {}, "two");
  const ValueId y = node(&g, "Relu", {node(&g, "Add", {node(&g, "Add", {one, b}), two})});
  g.add_output(y, "y");
  EXPECT_EQ(text_after(fuse_convolution, g),
            "input x : f32[n, 5, 5, 2]\n"
            "constant v : f32[4, 2, 1, 1]\n"
            "constant b : f32[4]\n"
            "constant w : f32[4, 2, 1, 1]\n"
            "%3 : f32[n, 5, 5, 4] = lmnative.Conv(x, v, b)  # one\n"
            "%5 : f32[n, 5, 5, 4] = lmnative.Conv(x, w, b, %3) {activation=Relu}  # two\n"
            "output y = %5\n");
}

TEST(a_tensor_that_is_broadcast_is_no_residual) {
  Graph g;
  const ValueId x = input(&g, {"n", 5, 5, 2}),
                z = g.add_input("z", tensor(DType::kF32, {"n", 1, 1, 4}));
  const ValueId y = node(&g, "lmnative.Conv", {x, weights(&g, "v", 4, 2)});
  g.add_output(node(&g, "Add", {y, z}), "y");
  EXPECT_EQ(text_after(fuse_convolution, g), to_text(g));
}

// What onnxruntime.quantization.quantize_dynamic writes.
TEST(a_quantised_product_becomes_one) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  Attributes none;
  const auto quantize =
      g.add(op_of(*ops::find_tensor_op("DynamicQuantizeLinear")), {x}, none, "q", 3);
  ASSERT(quantize.ok());
  const std::vector<ValueId> q = g.node(*quantize).outputs;
  const ValueId w = constant<int8_t>(&g, "w", DType::kI8, {4, 2}, std::vector<int8_t>(8, 1));
  const ValueId zero = constant<int8_t>(&g, "zero", DType::kI8, Shape{}, {0});
  const ValueId scale = floats(&g, "scale", Shape{}, {0.5f}), b = floats(&g, "b", {2}, {1, 2});
  const ValueId sums = node(&g, "MatMulInteger", {q[0], w, q[2], zero});
  Attributes to;
  to.set("to", int64_t{1});
  const ValueId scales = node(&g, "Mul", {q[1], scale});
  ValueId y = node(&g, "Mul", {node(&g, "Cast", {sums}, to), scales});
  y = node(&g, "Relu", {node(&g, "Add", {b, y})}, {}, "r");
  g.add_output(y, "y");
  Result<Graph> fused = fuse_integer_linear(g, {});
  ASSERT(fused.ok());
  Result<Graph> clean = eliminate_dead_code(*fused, {});
  ASSERT(clean.ok());
  EXPECT_EQ(to_text(*clean),
            "input x : f32[n, 4]\n"
            "constant w : i8[4, 2]\n"
            "constant scale : f32[]\n"
            "constant zero : i8[]\n"
            "constant b : f32[2]\n"
            "%1 : f32[64, 2] = lmnative.BlockRanges(x)  # q\n"
            "%2 : u8[n, 4], %3 : f32[], %4 : u8[] = lmnative.QuantizeByRanges(x, %1)  # q\n"
            "%9 : f32[n, 2] = lmnative.IntegerLinear(%2, %3, %4, w, scale, zero, b) "
            "{activation=Relu}  # r\n"
            "output y = %9\n");
}

}  // namespace
