// SPDX-License-Identifier: Apache-2.0
//
// Passes over general tensors, before and after, as text. That results stay the same is shown where
// graphs run: tests/unit/plan/program_test.cc and the ONNX tests.
#include <cmath>
#include <cstring>

#include "graph/passes/passes.h"
#include "tensor_graph.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;
using namespace graph_test;

std::string after(PassFn pass, const Graph& g, const PassOptions& options = {}) {
  Result<Graph> result = pass(g, options);
  if (!result.ok()) return std::string(result.status().message());
  return to_text(*result);
}

TEST(shapes_that_are_known_are_constants) {
  Graph g;
  const ValueId x = input(&g, {2, 3});
  g.add_output(node(&g, "Shape", {x}, {}, "s"), "shape");
  g.add_output(
      node(&g, "Add", {floats(&g, "a", {2}, {1, 2}), floats(&g, "b", {2}, {3, 4})}, {}, "c"),
      "sum");
  PassOptions options;
  options.evaluate = [](const ops::TensorNode& n,
                        std::span<const TensorView> in) -> Result<std::vector<Tensor>> {
    EXPECT_EQ(std::string(ops::name(n.op())), "Add");
    EXPECT_EQ(in[1].as<float>()[1], 4.0f);
    auto memory = std::make_shared<std::vector<float>>(std::vector<float>{4, 6});
    return std::vector<Tensor>{
        {DType::kF32, Shape{2}, reinterpret_cast<std::byte*>(memory->data()), memory}};
  };
  EXPECT_EQ(after(fold_constants, g, options),
            "input x : f32[2, 3]\n"
            "constant s : i64[2]\n"
            "constant a : f32[2]\n"  // nobody reads them: eliminate_dead_code
            "constant b : f32[2]\n"
            "constant c : f32[2]\n"
            "output shape = s\n"
            "output sum = c\n");
}

TEST(what_does_nothing_goes) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  const ValueId one = floats(&g, "one", {1}, {1}), zero = floats(&g, "zero", {1}, {0});
  ValueId y = node(&g, "Mul", {one, node(&g, "Identity", {x})});
  y = node(&g, "Sub", {node(&g, "Div", {y, one}), zero});
  y = node(&g, "Transpose", {y}, {{"perm", ops::Ints{1, 0}}});
  y = node(&g, "Transpose", {y}, {{"perm", ops::Ints{1, 0}}});
  g.add_output(node(&g, "Relu", {y}), "y");
  EXPECT_EQ(after(simplify_tensors, g).substr(0, 20), "input x : f32[n, 4]\n");
  EXPECT(after(simplify_tensors, g).find("Relu(x)") != std::string::npos);
}

// -0 + 0 is 0, and a vector of ones may make a scalar a vector.
TEST(what_does_something_stays) {
  Graph g;
  const ValueId x = input(&g, {});
  g.add_output(node(&g, "Add", {x, floats(&g, "zero", Shape{}, {0})}), "sum");
  g.add_output(node(&g, "Mul", {x, floats(&g, "one", {1}, {1})}), "vector");
  g.add_output(node(&g, "Mul", {x, floats(&g, "two", Shape{}, {2})}), "twice");
  EXPECT_EQ(after(simplify_tensors, g), to_text(g));
}

TEST(the_last_of_two_reshapes_is_enough) {
  Graph g;
  const ValueId x = input(&g, {"n", 6});
  const ValueId first = constant<int64_t>(&g, "first", DType::kI64, {2}, {-1, 3});
  const ValueId second = constant<int64_t>(&g, "second", DType::kI64, {2}, {-1, 2});
  const ValueId copies = constant<int64_t>(&g, "copies", DType::kI64, {2}, {0, -1});
  const ValueId y = node(&g, "Reshape", {x, first});
  g.add_output(node(&g, "Reshape", {y, second}), "y");
  g.add_output(node(&g, "Reshape", {y, copies}), "z");
  const std::string text = after(simplify_tensors, g);
  EXPECT(text.find("Reshape(x, second)") != std::string::npos);
  EXPECT(text.find(", copies)") != std::string::npos &&
         text.find("Reshape(x, copies)") == std::string::npos);
}

TEST(a_product_takes_bias_and_activation_along) {
  Graph g;
  const ValueId x = input(&g, {"n", 2});
  const ValueId w = floats(&g, "w", {2, 3}, {1, 2, 3, 4, 5, 6});
  const ValueId b = floats(&g, "b", {3}, {1, 2, 3});
  g.add_output(node(&g, "Relu", {node(&g, "Add", {node(&g, "MatMul", {x, w}), b})}, {}, "r"), "y");
  EXPECT_EQ(after(fuse_linear, g),
            "input x : f32[n, 2]\n"
            "constant w : f32[2, 3]\n"
            "constant b : f32[3]\n"
            "%3 : f32[n, 3] = lmnative.Linear(x, w, b) {activation=Relu}  # r\n"
            "output y = %3\n");
}

// What is added to the result is taken along as well; of two products one takes the other.
TEST(a_product_takes_a_residual_along) {
  Graph g;
  const ValueId x = input(&g, {"n", 2});
  const ValueId w = floats(&g, "w", {2, 2}, {1, 2, 3, 4}), b = floats(&g, "b", {2}, {1, 2});
  const ValueId first = node(&g, "Add", {node(&g, "MatMul", {x, w}), b});
  const ValueId second = node(&g, "MatMul", {x, w});
  const ValueId sum = node(&g, "Add", {first, second}, {}, "sum");
  g.add_output(node(&g, "Add", {node(&g, "Relu", {node(&g, "MatMul", {sum, w})}), sum}), "y");
  EXPECT_EQ(after(fuse_linear, g),
            "input x : f32[n, 2]\n"
            "constant w : f32[2, 2]\n"
            "constant b : f32[2]\n"
            "%2 : f32[n, 2] = lmnative.Linear(x, w)\n"
            "%4 : f32[n, 2] = lmnative.Linear(x, w, b, %2)  # sum\n"
            "%5 : f32[n, 2] = lmnative.Linear(%4, w, -, %4) {activation=Relu}\n"
            "output y = %5\n");
}

// A product that somebody else reads, or whose addend is no vector over its columns, keeps it
// apart.
TEST(a_product_that_is_read_twice_stays_apart) {
  Graph g;
  const ValueId x = input(&g, {"n", 2});
  const ValueId w = floats(&g, "w", {2, 2}, {1, 2, 3, 4});
  const ValueId product = node(&g, "MatMul", {x, w});
  const ValueId column = floats(&g, "column", {2, 1}, {1, 2});
  g.add_output(node(&g, "Add", {product, column}), "y");
  g.add_output(node(&g, "Relu", {product}), "z");
  const std::string text = after(fuse_linear, g);
  EXPECT(text.find("lmnative.Linear(x, w)\n") != std::string::npos);
  EXPECT(text.find("Add(") != std::string::npos && text.find("Relu(") != std::string::npos);
}

TEST(gelu_in_the_orders_of_exporters) {
  if (ops::find_tensor_op("Gelu") == nullptr || ops::find_tensor_op("Erf") == nullptr)
    throw std::runtime_error("no Gelu");
  for (int order = 0; order < 3; ++order) {
    Graph g;
    const ValueId x = input(&g, {"n", 2});
    const ValueId half = floats(&g, "half", Shape{}, {0.5f}), one = floats(&g, "one", Shape{}, {1});
    const ValueId root = floats(&g, "root", Shape{}, {1.41421356f});
    const ValueId erf = node(&g, "Erf", {node(&g, "Div", {x, root})});
    const ValueId sum = node(&g, "Add", {erf, one});
    ValueId y = kNone;
    if (order == 0) y = node(&g, "Mul", {node(&g, "Mul", {x, sum}), half});
    if (order == 1) y = node(&g, "Mul", {node(&g, "Mul", {x, half}), sum});
    if (order == 2) y = node(&g, "Mul", {x, node(&g, "Mul", {half, sum})});
    g.add_output(y, "y");
    Result<Graph> fused = fuse_gelu(g, {});
    EXPECT(fused.ok());
    EXPECT_EQ(after(eliminate_dead_code, *fused).find("Gelu(x)") != std::string::npos, true);
    EXPECT_EQ(after(eliminate_dead_code, *fused).find("Erf"), std::string::npos);
  }
}

TEST(gelu_with_tanh_in_the_orders_of_exporters) {
  for (int order = 0; order < 4; ++order) {
    Graph g;
    const ValueId x = input(&g, {"n", 2});
    const auto number = [&](const char* name, float value) {
      return floats(&g, name, Shape{}, {value});
    };
    const auto times = [&](ValueId a, ValueId b) { return node(&g, "Mul", {a, b}); };
    const ValueId half = number("half", 0.5f), one = number("one", 1);
    const ValueId cubic = number("cubic", 0.044715f), root = number("root", 0.7978845608f);
    ValueId argument = kNone;
    if (order == 0) {  // torch
      const ValueId cube = node(&g, "Pow", {x, number("three", 3)});
      argument = times(root, node(&g, "Add", {x, times(cubic, cube)}));
    }
    if (order == 1)  // JAX
      argument = times(root, node(&g, "Add", {x, times(x, times(x, times(cubic, x)))}));
    if (order >= 2) {  // x before the sum
      const ValueId square = times(x, x);
      argument = times(times(x, root), node(&g, "Add", {one, times(cubic, square)}));
    }
    const ValueId sum = node(&g, "Add", {one, node(&g, "Tanh", {argument})});
    ValueId y = kNone;
    if (order == 0) y = times(times(half, x), sum);
    if (order == 1) y = times(x, times(half, sum));
    if (order == 2) y = times(half, times(x, sum));
    if (order == 3) y = times(times(x, x), sum);  // that is none
    g.add_output(y, "y");
    Result<Graph> fused = fuse_gelu(g, {});
    ASSERT_OK(fused);
    const std::string text = after(eliminate_dead_code, *fused);
    EXPECT_EQ(text.find("Gelu(x) {approximate=tanh}") != std::string::npos, order < 3);
    EXPECT_EQ(text.find("Tanh") != std::string::npos, order == 3);
  }
}

// To the end of a size that is not known is ONNX's largest integer, or more.
TEST(a_slice_of_everything_goes) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  const auto ints = [&](const char* name, std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return constant<int64_t>(&g, name, DType::kI64, {count}, std::move(values));
  };
  const ValueId zero = ints("zero", {0}), one = ints("one", {1}), most = ints("most", {INT32_MAX});
  const ValueId zeros = ints("zeros", {0, 0}), ends = ints("ends", {INT64_MAX, 4});
  const ValueId back = ints("back", {-1}), two = ints("two", {2}), four = ints("four", {4});
  g.add_output(node(&g, "Slice", {x, zeros, ends}), "all");
  g.add_output(node(&g, "Slice", {x, zero, four, back}), "columns");
  g.add_output(node(&g, "Slice", {x, zero, most, zero, one}), "rows");
  g.add_output(node(&g, "Slice", {x, zero, four, zero}), "few_rows");
  g.add_output(node(&g, "Slice", {x, zero, ints("billion", {1'000'000'000}), zero}), "many_rows");
  const ValueId wide = g.add_input("wide", tensor(DType::kF32, {"n", 1 << 16}));
  g.add_output(node(&g, "Slice", {wide, zero, ints("billion", {1'000'000'000}), zero}), "no_more");
  g.add_output(node(&g, "Slice", {x, zero, most, one, two}), "every_second");
  g.add_output(node(&g, "Slice", {x, one, four, one}), "all_but_one");
  EXPECT_EQ(after(simplify_tensors, g),
            "input x : f32[n, 4]\n"
            "input wide : f32[n, 65536]\n"
            "constant zero : i64[1]\n"
            "constant four : i64[1]\n"
            "constant billion : i64[1]\n"
            "constant most : i64[1]\n"
            "constant one : i64[1]\n"
            "constant two : i64[1]\n"
            "%4 : f32[?, 4] = Slice(x, zero, four, zero)\n"
            "%6 : f32[?, 4] = Slice(x, zero, billion, zero)\n"
            "%10 : f32[n, 2] = Slice(x, zero, most, one, two)\n"
            "%11 : f32[n, 3] = Slice(x, one, four, one)\n"
            "output all = x\n"
            "output columns = x\n"
            "output rows = x\n"
            "output few_rows = %4\n"
            "output many_rows = %6\n"
            "output no_more = wide\n"
            "output every_second = %10\n"
            "output all_but_one = %11\n");
}

// Where only sizes of 1 move, elements stay where they are.
TEST(a_transpose_of_ones_is_a_reshape) {
  Graph g;
  const ValueId x = input(&g, {"n", 5, 1, 4});
  const ValueId z = g.add_input("z", tensor(DType::kF32, {"n", "m", 1}));
  const auto turned = [&](ValueId of, ops::Ints perm) {
    return node(&g, "Transpose", {of}, {{"perm", std::move(perm)}});
  };
  g.add_output(turned(x, {0, 2, 1, 3}), "a");
  g.add_output(turned(x, {2, 0, 1, 3}), "b");
  g.add_output(turned(x, {0, 3, 1, 2}), "c");
  g.add_output(turned(z, {0, 2, 1}), "d");
  EXPECT_EQ(after(simplify_tensors, g),
            "input x : f32[n, 5, 1, 4]\n"
            "input z : f32[n, m, 1]\n"
            "constant  : i64[4]\n"
            "constant  : i64[4]\n"
            "%3 : f32[n, 1, 5, 4] = Reshape(x, %2)\n"
            "%5 : f32[1, n, 5, 4] = Reshape(x, %4)\n"
            "%6 : f32[n, 4, 5, 1] = Transpose(x) {perm=[0, 3, 1, 2]}\n"
            "%7 : f32[n, 1, m] = Transpose(z) {perm=[0, 2, 1]}\n"
            "output a = %3\n"
            "output b = %5\n"
            "output c = %6\n"
            "output d = %7\n");
}

// A bias with dimensions of 1 in front is one, unless the result would get more dimensions.
TEST(a_bias_may_have_ones_in_front) {
  Graph g;
  const ValueId x = input(&g, {"n", 2});
  const ValueId w = floats(&g, "w", {2, 3}, {1, 2, 3, 4, 5, 6});
  const ValueId b = floats(&g, "b", {1, 3}, {1, 2, 3});
  const ValueId deep = floats(&g, "deep", {1, 1, 3}, {1, 2, 3});
  g.add_output(node(&g, "Tanh", {node(&g, "Add", {node(&g, "MatMul", {x, w}), b})}), "y");
  g.add_output(node(&g, "Tanh", {node(&g, "Add", {node(&g, "MatMul", {x, w}), deep})}), "z");
  EXPECT_EQ(after(fuse_linear, g),
            "input x : f32[n, 2]\n"
            "constant w : f32[2, 3]\n"
            "constant b : f32[3]\n"
            "constant deep : f32[1, 1, 3]\n"
            "%3 : f32[n, 3] = lmnative.Linear(x, w, b) {activation=Tanh}\n"
            "%5 : f32[1, n, 3] = lmnative.Linear(x, w, -, deep)\n"
            "%6 : f32[1, n, 3] = Tanh(%5)\n"
            "output y = %3\n"
            "output z = %6\n");
}

// Rows of infinities, numbers in another order, and several ids in a row stay a product.
TEST(products_that_are_of_no_one_hot_rows_stay) {
  for (int form = 0; form < 3; ++form) {
    Graph g;
    const ValueId ids = g.add_input("ids", tensor(DType::kI64, {"n", form == 2 ? 2 : 1}));
    const ValueId numbers =
        constant<int64_t>(&g, "numbers", DType::kI64, {2}, {form == 1 ? 1 : 0, form == 1 ? 0 : 1});
    const ValueId hot = node(&g, "Cast", {node(&g, "Equal", {ids, numbers})}, {{"to", int64_t{1}}});
    const float last = form == 0 ? HUGE_VALF : 4.0f;
    g.add_output(node(&g, "MatMul", {hot, floats(&g, "w", {2, 2}, {1, 2, 3, last})}), "y");
    EXPECT_EQ(after(gather_one_hot, g), to_text(g));
  }
}

}  // namespace
