// SPDX-License-Identifier: Apache-2.0
//
// Every pass over general tensors by itself: the whole text of a small graph before and after it,
// and, with random inputs, the results of both: the same bits from passes that keep the order of
// operations; within 1e-5 of the largest result from those that change it (layer norms, Gelu,
// attention, folded batch norms, products with packed weights, convolutions over channels last).
// Passes of language models are tested in tests/unit/graph and random_graph_test.cc.
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "../graph/tensor_graph.h"
#include "cpu/cpu_device.h"
#include "graph/passes/passes.h"
#include "graph/schema.h"
#include "ops/kernel.h"
#include "plan/program/program.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace graph_test;
using plan::Program;

constexpr double kSameBits = 0, kOtherOrder = 1e-5;

using Sizes = std::map<std::string, int64_t>;

Tensor random_tensor(const graph::ValueType& type, const Sizes& sizes, uint32_t* seed) {
  Shape shape;
  for (const graph::Dim& dim : type.dims)
    shape[shape.rank++] = dim.is_constant() ? dim.size : sizes.at(dim.symbol);
  ASSERT(type.dtype == DType::kF32);
  auto memory = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < shape.elements(); ++i) {
    *seed = *seed * 1664525u + 1013904223u;
    memory->push_back(static_cast<float>(*seed >> 8) / static_cast<float>(1 << 23) - 1.0f);
  }
  return {DType::kF32, shape, reinterpret_cast<std::byte*>(memory->data()), memory};
}

std::shared_ptr<Device> device_of(std::string_view target) {
  auto device = cpu::create_cpu_device(target);
  ASSERT_OK(device);
  return std::move(*device);
}

std::vector<Tensor> results(const Graph& g, std::string_view target, const Sizes& sizes) {
  auto program = Program::create(g, device_of(target), {});
  ASSERT_OK(program);
  std::vector<ops::RuntimeValue> in(g.inputs.size()), out(g.outputs.size());
  uint32_t seed = 7;
  for (size_t i = 0; i < in.size(); ++i)
    in[i].tensor = random_tensor(g.value(g.inputs[i]).type, sizes, &seed);
  ASSERT_OK((*program)->run(in, out, {}));
  std::vector<Tensor> tensors;
  for (const ops::RuntimeValue& value : out) tensors.push_back(value.tensor);
  return tensors;
}

void expect_same(const Tensor& have, const Tensor& want, double tolerance) {
  ASSERT(have.dtype == want.dtype);
  EXPECT_EQ(have.shape.to_string(), want.shape.to_string());
  const auto count = static_cast<size_t>(want.shape.elements());
  if (tolerance == kSameBits || want.dtype != DType::kF32) {
    EXPECT(std::memcmp(have.data, want.data,
                       count * static_cast<size_t>(info(want.dtype).block_bytes)) == 0);
    return;
  }
  double most = 0, worst = 0;
  for (size_t i = 0; i < count; ++i) {
    most = std::max<double>(most, std::abs(want.as<float>()[i]));
    worst = std::max<double>(worst, std::abs(have.as<float>()[i] - want.as<float>()[i]));
  }
  EXPECT(worst <= tolerance * most);
}

std::set<std::string_view>& shown() {
  static std::set<std::string_view> names;
  return names;
}
struct Shown {
  explicit Shown(std::string_view pass) { shown().insert(pass); }
};
#define PASS_TEST(pass)                   \
  static const Shown shown_##pass(#pass); \
  TEST(pass##_alone)

// The pass of this name alone.
void expect_pass(std::string_view name, const Graph& g, std::string_view before,
                 std::string_view after, double tolerance, const std::vector<Sizes>& runs) {
  EXPECT_EQ(to_text(g), std::string(before));
  const auto all = passes();
  const auto pass =
      std::find_if(all.begin(), all.end(), [&](const Pass& p) { return p.name == name; });
  ASSERT(pass != all.end());
  PassOptions options;
  const std::shared_ptr<Device> device = device_of("");
  options.evaluate = [&](const ops::TensorNode& n, std::span<const TensorView> in) {
    return plan::evaluate(device, n, in);
  };
  Result<Graph> changed = pass->run(g, options);
  ASSERT_OK(changed);
  ASSERT_OK(verify(*changed));
  EXPECT_EQ(to_text(*changed), std::string(after));
  for (std::string_view target : cpu::available_targets()) {
    for (const Sizes& sizes : runs) {
      const std::vector<Tensor> want = results(g, target, sizes);
      const std::vector<Tensor> have = results(*changed, target, sizes);
      for (size_t i = 0; i < want.size(); ++i) expect_same(have[i], want[i], tolerance);
    }
  }
}

ValueId input_named(Graph* g, const char* name, Dims dims) {
  return g->add_input(name, tensor(DType::kF32, std::move(dims)));
}
ValueId ints(Graph* g, const char* name, std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return constant<int64_t>(g, name, DType::kI64, {count}, std::move(values));
}
ValueId number(Graph* g, const char* name, float value) {
  return floats(g, name, Shape{}, {value});
}

// Numbers from -1 to 1.
ValueId spread(Graph* g, const char* name, const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<float>(i * 37 % 101) / 50.0f - 1.0f);
  return floats(g, name, shape, values);
}

const std::vector<Sizes> kRowCounts = {{{"n", 1}}, {{"n", 3}}, {{"n", 700}}};

PASS_TEST(fold_constants) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 3});
  const ValueId sizes = node(&g, "Shape", {spread(&g, "like", {6, 2})}, {}, "shape");
  const ValueId flat =
      node(&g, "Reshape", {x, node(&g, "Sub", {sizes, ints(&g, "shift", {7, -4})}, {}, "sizes")},
           {}, "flat");
  const ValueId scale =
      node(&g, "Exp",
           {node(&g, "Add", {floats(&g, "a", {1}, {1}), floats(&g, "b", {1}, {2})}, {}, "sum")}, {},
           "scale");
  g.add_output(node(&g, "Mul", {flat, scale}, {}, "y"), "y");
  expect_pass("fold_constants", g,
              "input x : f32[n, 2, 3]\n"
              "constant like : f32[6, 2]\n"
              "constant shift : i64[2]\n"
              "constant a : f32[1]\n"
              "constant b : f32[1]\n"
              "%2 : i64[2] = Shape(like)  # shape\n"
              "%4 : i64[2] = Sub(%2, shift)  # sizes\n"
              "%5 : f32[?, ?] = Reshape(x, %4)  # flat\n"
              "%8 : f32[1] = Add(a, b)  # sum\n"
              "%9 : f32[1] = Exp(%8)  # scale\n"
              "%10 : f32[?, ?] = Mul(%5, %9)  # y\n"
              "output y = %10\n",
              "input x : f32[n, 2, 3]\n"
              "constant shape : i64[2]\n"
              "constant shift : i64[2]\n"
              "constant sizes : i64[2]\n"
              "constant a : f32[1]\n"
              "constant b : f32[1]\n"
              "constant sum : f32[1]\n"
              "constant scale : f32[1]\n"
              "%4 : f32[n, 6] = Reshape(x, sizes)  # flat\n"
              "%9 : f32[n, 6] = Mul(%4, scale)  # y\n"
              "output y = %9\n",
              kSameBits, kRowCounts);
}

PASS_TEST(fold_shapes) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 3});
  const ValueId shape = node(&g, "Cast", {node(&g, "Shape", {x})}, {{"to", int64_t{6}}});
  const auto small = [&](const char* name, std::vector<int32_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return constant<int32_t>(&g, name, DType::kI32, {count}, std::move(values));
  };
  const auto wide = [&](ValueId sizes) { return node(&g, "Cast", {sizes}, {{"to", int64_t{7}}}); };
  const ValueId one = small("one", {1});
  const ValueId rows = node(&g, "Slice", {shape, small("zero", {0}), one});
  const ValueId columns = node(&g, "Gather", {shape, small("last", {-1})});
  const ValueId flat = wide(node(&g, "Concat", {rows, small("six", {6})}, {{"axis", int64_t{0}}}));
  const ValueId all =
      node(&g, "Concat", {small("two", {2}), rows, columns}, {{"axis", int64_t{0}}});
  const ValueId means = wide(node(&g, "Concat", {rows, one}, {{"axis", int64_t{0}}}));
  const ValueId y = node(&g, "Reshape", {x, flat}, {}, "flat");
  const ValueId sum = node(&g, "ReduceSum", {y, ints(&g, "axes", {1})});
  g.add_output(node(&g, "Sub", {y, node(&g, "Expand", {sum, means})}, {}, "y"), "y");
  g.add_output(node(&g, "Expand", {y, flat}), "same");
  g.add_output(node(&g, "Reshape", {x, wide(all)}, {{"allowzero", int64_t{1}}}, "turned"), "z");
  g.add_output(wide(columns), "columns");
  expect_pass("fold_shapes", g,
              "input x : f32[n, 2, 3]\n"
              "constant one : i32[1]\n"
              "constant zero : i32[1]\n"
              "constant last : i32[1]\n"
              "constant six : i32[1]\n"
              "constant two : i32[1]\n"
              "constant axes : i64[1]\n"
              "%1 : i64[3] = Shape(x)\n"
              "%2 : i32[3] = Cast(%1) {to=6}\n"
              "%5 : i32[1] = Slice(%2, zero, one)\n"
              "%7 : i32[1] = Gather(%2, last)\n"
              "%9 : i32[2] = Concat(%5, six) {axis=0}\n"
              "%10 : i64[2] = Cast(%9) {to=7}\n"
              "%12 : i32[3] = Concat(two, %5, %7) {axis=0}\n"
              "%13 : i32[2] = Concat(%5, one) {axis=0}\n"
              "%14 : i64[2] = Cast(%13) {to=7}\n"
              "%15 : f32[?, ?] = Reshape(x, %10)  # flat\n"
              "%17 : f32[?, 1] = ReduceSum(%15, axes)\n"
              "%18 : f32[?, ?] = Expand(%17, %14)\n"
              "%19 : f32[?, ?] = Sub(%15, %18)  # y\n"
              "%20 : f32[?, ?] = Expand(%15, %10)\n"
              "%21 : i64[3] = Cast(%12) {to=7}\n"
              "%22 : f32[?, ?, ?] = Reshape(x, %21) {allowzero=1}  # turned\n"
              "%23 : i64[1] = Cast(%7) {to=7}\n"
              "output y = %19\n"
              "output same = %20\n"
              "output z = %22\n"
              "output columns = %23\n",
              "input x : f32[n, 2, 3]\n"
              "constant zero : i32[1]\n"
              "constant one : i32[1]\n"
              "constant last : i32[1]\n"
              "constant  : i32[1]\n"
              "constant six : i32[1]\n"
              "constant two : i32[1]\n"
              "constant flat.shape : i64[2]\n"
              "constant axes : i64[1]\n"
              "constant turned.shape : i64[3]\n"
              "constant  : i64[1]\n"
              "%1 : i64[3] = Shape(x)\n"
              "%2 : i32[3] = Cast(%1) {to=6}\n"
              "%5 : i32[1] = Slice(%2, zero, one)\n"
              "%9 : i32[2] = Concat(%5, six) {axis=0}\n"
              "%10 : i64[2] = Cast(%9) {to=7}\n"
              "%12 : i32[3] = Concat(two, %5, %7) {axis=0}\n"
              "%13 : i32[2] = Concat(%5, one) {axis=0}\n"
              "%14 : i64[2] = Cast(%13) {to=7}\n"
              "%16 : f32[n, 6] = Reshape(x, flat.shape)  # flat\n"
              "%18 : f32[n, 1] = ReduceSum(%16, axes)\n"
              "%19 : f32[n, 6] = Sub(%16, %18)  # y\n"
              "%20 : i64[3] = Cast(%12) {to=7}\n"
              "%22 : f32[2, n, 3] = Reshape(x, turned.shape)  # turned\n"
              "output y = %19\n"
              "output same = %16\n"
              "output z = %22\n"
              "output columns = %23\n",
              kSameBits, kRowCounts);
}

PASS_TEST(simplify_tensors) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 3});
  ValueId y = node(&g, "Mul", {node(&g, "Identity", {x}), floats(&g, "one", {1}, {1})});
  y = node(&g, "Transpose", {y}, {{"perm", ops::Ints{2, 0, 1}}});
  y = node(&g, "Transpose", {y}, {{"perm", ops::Ints{1, 0, 2}}});
  y = node(&g, "Reshape", {y, ints(&g, "first", {-1, 2})});
  y = node(&g, "Reshape", {y, ints(&g, "second", {-1, 6})});
  y = node(&g, "Cast", {y}, {{"to", int64_t{1}}});
  g.add_output(node(&g, "Sub", {y, number(&g, "zero", 0)}), "y");
  ValueId z = node(&g, "Unsqueeze", {node(&g, "Dropout", {x}), ints(&g, "axis", {3})});
  z = node(&g, "Slice",
           {z, ints(&g, "from", {0}), ints(&g, "to", {INT32_MAX}), ints(&g, "in", {0})});
  g.add_output(node(&g, "Neg", {node(&g, "Transpose", {z}, {{"perm", ops::Ints{0, 3, 1, 2}}})}),
               "z");
  expect_pass("simplify_tensors", g,
              "input x : f32[n, 2, 3]\n"
              "constant one : f32[1]\n"
              "constant first : i64[2]\n"
              "constant second : i64[2]\n"
              "constant zero : f32[]\n"
              "constant axis : i64[1]\n"
              "constant from : i64[1]\n"
              "constant to : i64[1]\n"
              "constant in : i64[1]\n"
              "%1 : f32[n, 2, 3] = Identity(x)\n"
              "%3 : f32[n, 2, 3] = Mul(%1, one)\n"
              "%4 : f32[3, n, 2] = Transpose(%3) {perm=[2, 0, 1]}\n"
              "%5 : f32[n, 3, 2] = Transpose(%4) {perm=[1, 0, 2]}\n"
              "%7 : f32[?, 2] = Reshape(%5, first)\n"
              "%9 : f32[?, 6] = Reshape(%7, second)\n"
              "%10 : f32[?, 6] = Cast(%9) {to=1}\n"
              "%12 : f32[?, 6] = Sub(%10, zero)\n"
              "%13 : f32[n, 2, 3] = Dropout(x)\n"
              "%15 : f32[n, 2, 3, 1] = Unsqueeze(%13, axis)\n"
              "%19 : f32[n, 2, 3, 1] = Slice(%15, from, to, in)\n"
              "%20 : f32[n, 1, 2, 3] = Transpose(%19) {perm=[0, 3, 1, 2]}\n"
              "%21 : f32[n, 1, 2, 3] = Neg(%20)\n"
              "output y = %12\n"
              "output z = %21\n",
              "input x : f32[n, 2, 3]\n"
              "constant first : i64[2]\n"
              "constant second : i64[2]\n"
              "constant axis : i64[1]\n"
              "constant  : i64[4]\n"
              "%1 : f32[3, n, 2] = Transpose(x) {perm=[2, 0, 1]}\n"
              "%2 : f32[n, 3, 2] = Transpose(x) {perm=[0, 2, 1]}\n"
              "%4 : f32[?, 2] = Reshape(%2, first)\n"
              "%6 : f32[n, 6] = Reshape(%2, second)\n"
              "%8 : f32[n, 2, 3, 1] = Unsqueeze(x, axis)\n"
              "%10 : f32[n, 1, 2, 3] = Reshape(%8, %9)\n"
              "%11 : f32[n, 1, 2, 3] = Neg(%10)\n"
              "output y = %6\n"
              "output z = %11\n",
              kSameBits, kRowCounts);
}

PASS_TEST(eliminate_common_subexpressions) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  const ValueId w = spread(&g, "w", {4});
  const ValueId first = node(&g, "Exp", {node(&g, "Mul", {x, w})});
  const ValueId second = node(&g, "Exp", {node(&g, "Mul", {x, w})});
  const ValueId other = node(&g, "LeakyRelu", {second}, {{"alpha", 0.5f}});
  g.add_output(node(&g, "Add", {node(&g, "LeakyRelu", {first}), other}), "y");
  expect_pass("eliminate_common_subexpressions", g,
              "input x : f32[n, 4]\n"
              "constant w : f32[4]\n"
              "%2 : f32[n, 4] = Mul(x, w)\n"
              "%3 : f32[n, 4] = Exp(%2)\n"
              "%4 : f32[n, 4] = Mul(x, w)\n"
              "%5 : f32[n, 4] = Exp(%4)\n"
              "%6 : f32[n, 4] = LeakyRelu(%5) {alpha=0.5}\n"
              "%7 : f32[n, 4] = LeakyRelu(%3)\n"
              "%8 : f32[n, 4] = Add(%7, %6)\n"
              "output y = %8\n",
              "input x : f32[n, 4]\n"
              "constant w : f32[4]\n"
              "%2 : f32[n, 4] = Mul(x, w)\n"
              "%3 : f32[n, 4] = Exp(%2)\n"
              "%4 : f32[n, 4] = LeakyRelu(%3) {alpha=0.5}\n"
              "%5 : f32[n, 4] = LeakyRelu(%3)\n"
              "%6 : f32[n, 4] = Add(%5, %4)\n"
              "output y = %6\n",
              kSameBits, kRowCounts);
}

PASS_TEST(eliminate_dead_code) {
  Graph g;
  const ValueId x = input(&g, {"n", 4});
  const ValueId y = node(&g, "Exp", {x});
  node(&g, "Mul", {y, node(&g, "Add", {y, spread(&g, "unread", {4})})});
  g.add_output(node(&g, "Neg", {y}), "y");
  expect_pass("eliminate_dead_code", g,
              "input x : f32[n, 4]\n"
              "constant unread : f32[4]\n"
              "%1 : f32[n, 4] = Exp(x)\n"
              "%3 : f32[n, 4] = Add(%1, unread)\n"
              "%4 : f32[n, 4] = Mul(%1, %3)\n"
              "%5 : f32[n, 4] = Neg(%1)\n"
              "output y = %5\n",
              "input x : f32[n, 4]\n"
              "%1 : f32[n, 4] = Exp(x)\n"
              "%2 : f32[n, 4] = Neg(%1)\n"
              "output y = %2\n",
              kSameBits, kRowCounts);
}

PASS_TEST(fuse_gelu) {
  Graph g;
  const ValueId x = input(&g, {"n", 5});
  const ValueId erf = node(&g, "Erf", {node(&g, "Div", {x, number(&g, "root", 1.41421356f)})});
  const ValueId sum = node(&g, "Add", {erf, number(&g, "one", 1)});
  g.add_output(node(&g, "Mul", {node(&g, "Mul", {x, sum}), number(&g, "half", 0.5f)}, {}, "gelu"),
               "y");
  expect_pass("fuse_gelu", g,
              "input x : f32[n, 5]\n"
              "constant root : f32[]\n"
              "constant one : f32[]\n"
              "constant half : f32[]\n"
              "%2 : f32[n, 5] = Div(x, root)\n"
              "%3 : f32[n, 5] = Erf(%2)\n"
              "%5 : f32[n, 5] = Add(%3, one)\n"
              "%6 : f32[n, 5] = Mul(x, %5)\n"
              "%8 : f32[n, 5] = Mul(%6, half)  # gelu\n"
              "output y = %8\n",
              "input x : f32[n, 5]\n"
              "constant root : f32[]\n"
              "constant one : f32[]\n"
              "%2 : f32[n, 5] = Div(x, root)\n"
              "%3 : f32[n, 5] = Erf(%2)\n"
              "%5 : f32[n, 5] = Add(%3, one)\n"
              "%6 : f32[n, 5] = Mul(x, %5)\n"
              "%7 : f32[n, 5] = Gelu(x)  # gelu\n"
              "output y = %7\n",
              kOtherOrder, kRowCounts);
}

PASS_TEST(fuse_layer_norm) {
  Graph g;
  const ValueId x = input(&g, {"n", 40});
  const ValueId axes = ints(&g, "axes", {-1});
  const ValueId distance = node(&g, "Sub", {x, node(&g, "ReduceMean", {x, axes})});
  const ValueId square = node(&g, "Pow", {distance, number(&g, "two", 2)});
  const ValueId variance = node(&g, "ReduceMean", {square, axes});
  const ValueId root = node(&g, "Sqrt", {node(&g, "Add", {variance, number(&g, "eps", 1e-5f)})});
  const ValueId scaled =
      node(&g, "Mul", {node(&g, "Div", {distance, root}), spread(&g, "gamma", {40})});
  g.add_output(node(&g, "Add", {scaled, spread(&g, "beta", {40})}, {}, "norm"), "y");
  expect_pass(
      "fuse_layer_norm", g,
      "input x : f32[n, 40]\n"
      "constant axes : i64[1]\n"
      "constant two : f32[]\n"
      "constant eps : f32[]\n"
      "constant gamma : f32[40]\n"
      "constant beta : f32[40]\n"
      "%2 : f32[n, 1] = ReduceMean(x, axes)\n"
      "%3 : f32[n, 40] = Sub(x, %2)\n"
      "%5 : f32[n, 40] = Pow(%3, two)\n"
      "%6 : f32[n, 1] = ReduceMean(%5, axes)\n"
      "%8 : f32[n, 1] = Add(%6, eps)\n"
      "%9 : f32[n, 1] = Sqrt(%8)\n"
      "%10 : f32[n, 40] = Div(%3, %9)\n"
      "%12 : f32[n, 40] = Mul(%10, gamma)\n"
      "%14 : f32[n, 40] = Add(%12, beta)  # norm\n"
      "output y = %14\n",
      "input x : f32[n, 40]\n"
      "constant axes : i64[1]\n"
      "constant two : f32[]\n"
      "constant eps : f32[]\n"
      "constant gamma : f32[40]\n"
      "constant beta : f32[40]\n"
      "%2 : f32[n, 1] = ReduceMean(x, axes)\n"
      "%3 : f32[n, 40] = Sub(x, %2)\n"
      "%5 : f32[n, 40] = Pow(%3, two)\n"
      "%6 : f32[n, 1] = ReduceMean(%5, axes)\n"
      "%8 : f32[n, 1] = Add(%6, eps)\n"
      "%9 : f32[n, 1] = Sqrt(%8)\n"
      "%10 : f32[n, 40] = Div(%3, %9)\n"
      "%12 : f32[n, 40] = Mul(%10, gamma)\n"
      "%14 : f32[n, 40] = LayerNormalization(x, gamma, beta) {axis=-1, epsilon=1e-05}  # norm\n"
      "output y = %14\n",
      kOtherOrder, kRowCounts);
}

PASS_TEST(fuse_attention) {
  Graph g;
  const ValueId q = input_named(&g, "q", {"b", "t", 2, 8}),
                k = input_named(&g, "k", {"b", "s", 2, 8});
  const ValueId v = input_named(&g, "v", {"b", "s", 2, 8}),
                mask = input_named(&g, "mask", {"b", 1, 1, "s"});
  const auto transpose = [&](ValueId of, ops::Ints perm) {
    return node(&g, "Transpose", {of}, {{"perm", std::move(perm)}});
  };
  ValueId x = node(&g, "MatMul", {transpose(q, {0, 2, 1, 3}), transpose(k, {0, 2, 3, 1})});
  x = node(&g, "Add", {node(&g, "Div", {x, number(&g, "root", 2.828427f)}), mask});
  x = node(&g, "MatMul", {node(&g, "Softmax", {x}), transpose(v, {0, 2, 1, 3})});
  g.add_output(transpose(x, {0, 2, 1, 3}), "y");
  expect_pass("fuse_attention", g,
              "input q : f32[b, t, 2, 8]\n"
              "input k : f32[b, s, 2, 8]\n"
              "input v : f32[b, s, 2, 8]\n"
              "input mask : f32[b, 1, 1, s]\n"
              "constant root : f32[]\n"
              "%4 : f32[b, 2, t, 8] = Transpose(q) {perm=[0, 2, 1, 3]}\n"
              "%5 : f32[b, 2, 8, s] = Transpose(k) {perm=[0, 2, 3, 1]}\n"
              "%6 : f32[b, 2, t, s] = MatMul(%4, %5)\n"
              "%8 : f32[b, 2, t, s] = Div(%6, root)\n"
              "%9 : f32[b, 2, t, s] = Add(%8, mask)\n"
              "%10 : f32[b, 2, t, s] = Softmax(%9)\n"
              "%11 : f32[b, 2, s, 8] = Transpose(v) {perm=[0, 2, 1, 3]}\n"
              "%12 : f32[b, 2, t, 8] = MatMul(%10, %11)\n"
              "%13 : f32[b, t, 2, 8] = Transpose(%12) {perm=[0, 2, 1, 3]}\n"
              "output y = %13\n",
              "input q : f32[b, t, 2, 8]\n"
              "input k : f32[b, s, 2, 8]\n"
              "input v : f32[b, s, 2, 8]\n"
              "input mask : f32[b, 1, 1, s]\n"
              "constant root : f32[]\n"
              "%4 : f32[b, 2, t, 8] = Transpose(q) {perm=[0, 2, 1, 3]}\n"
              "%5 : f32[b, 2, 8, s] = Transpose(k) {perm=[0, 2, 3, 1]}\n"
              "%6 : f32[b, 2, t, s] = MatMul(%4, %5)\n"
              "%8 : f32[b, 2, t, s] = Div(%6, root)\n"
              "%9 : f32[b, 2, t, s] = Add(%8, mask)\n"
              "%10 : f32[b, 2, t, s] = Softmax(%9)\n"
              "%11 : f32[b, 2, s, 8] = Transpose(v) {perm=[0, 2, 1, 3]}\n"
              "%12 : f32[b, 2, t, 8] = MatMul(%10, %11)\n"
              "%13 : f32[b, t, 2, 8] = lmnative.Attention(q, k, v, mask) {k_perm=[0, 2, 1, 3], "
              "q_perm=[0, 2, 1, 3], scale=0.35355338, v_perm=[0, 2, 1, 3], y_perm=[0, 2, 1, 3]}\n"
              "output y = %13\n",
              kOtherOrder, {{{"b", 1}, {"t", 1}, {"s", 1}}, {{"b", 2}, {"t", 3}, {"s", 70}}});
}

// Ids from -6 to 6, of which five have rows: the others have zeros.
PASS_TEST(gather_one_hot) {
  Graph g;
  const ValueId x = input(&g, {"n", 3});
  const ValueId scaled = node(&g, "Mul", {x, number(&g, "six", 6.5f)});
  const ValueId ids = node(&g, "Cast", {scaled}, {{"to", int64_t{6}}});
  const ValueId column = node(&g, "Unsqueeze", {ids, ints(&g, "axis", {2})});
  const ValueId numbers = constant<int32_t>(&g, "numbers", DType::kI32, {1, 5}, {0, 1, 2, 3, 4});
  const ValueId hot =
      node(&g, "Cast", {node(&g, "Equal", {column, numbers})}, {{"to", int64_t{1}}});
  g.add_output(node(&g, "MatMul", {hot, spread(&g, "w", {5, 7})}, {}, "rows"), "y");
  expect_pass("gather_one_hot", g,
              "input x : f32[n, 3]\n"
              "constant six : f32[]\n"
              "constant axis : i64[1]\n"
              "constant numbers : i32[1, 5]\n"
              "constant w : f32[5, 7]\n"
              "%2 : f32[n, 3] = Mul(x, six)\n"
              "%3 : i32[n, 3] = Cast(%2) {to=6}\n"
              "%5 : i32[n, 3, 1] = Unsqueeze(%3, axis)\n"
              "%7 : bool[n, 3, 5] = Equal(%5, numbers)\n"
              "%8 : f32[n, 3, 5] = Cast(%7) {to=1}\n"
              "%10 : f32[n, 3, 7] = MatMul(%8, w)  # rows\n"
              "output y = %10\n",
              "input x : f32[n, 3]\n"
              "constant six : f32[]\n"
              "constant axis : i64[1]\n"
              "constant numbers : i32[1, 5]\n"
              "constant w : f32[7, 7]\n"
              "constant  : i64[1]\n"
              "constant  : i32[]\n"
              "constant  : i32[]\n"
              "constant  : i32[]\n"
              "%2 : f32[n, 3] = Mul(x, six)\n"
              "%3 : i32[n, 3] = Cast(%2) {to=6}\n"
              "%5 : i32[n, 3, 1] = Unsqueeze(%3, axis)\n"
              "%7 : bool[n, 3, 5] = Equal(%5, numbers)\n"
              "%8 : f32[n, 3, 5] = Cast(%7) {to=1}\n"
              "%11 : i32[n, 3] = Squeeze(%5, %10)  # rows\n"
              "%14 : i32[n, 3] = Clip(%11, %12, %13)  # rows\n"
              "%16 : i32[n, 3] = Add(%14, %15)  # rows\n"
              "%17 : f32[n, 3, 7] = Gather(w, %16) {axis=0}  # rows\n"
              "output y = %17\n",
              kSameBits, kRowCounts);
}

PASS_TEST(fold_batch_norm) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 6, 5});
  const ValueId conv =
      node(&g, "Conv", {x, spread(&g, "w", {4, 2, 3, 3}), spread(&g, "b", {4})}, {}, "conv");
  g.add_output(node(&g, "BatchNormalization",
                    {conv, spread(&g, "scale", {4}), spread(&g, "shift", {4}),
                     spread(&g, "mean", {4}), floats(&g, "variance", {4}, {0.5f, 1, 2, 0.25f})}),
               "y");
  expect_pass("fold_batch_norm", g,
              "input x : f32[n, 2, 6, 5]\n"
              "constant w : f32[4, 2, 3, 3]\n"
              "constant b : f32[4]\n"
              "constant scale : f32[4]\n"
              "constant shift : f32[4]\n"
              "constant mean : f32[4]\n"
              "constant variance : f32[4]\n"
              "%3 : f32[n, 4, 4, 3] = Conv(x, w, b)  # conv\n"
              "%8 : f32[n, 4, 4, 3] = BatchNormalization(%3, scale, shift, mean, variance)\n"
              "output y = %8\n",
              "input x : f32[n, 2, 6, 5]\n"
              "constant w.folded : f32[4, 2, 3, 3]\n"
              "constant shift.folded : f32[4]\n"
              "%3 : f32[n, 4, 4, 3] = Conv(x, w.folded, shift.folded)  # conv\n"
              "output y = %3\n",
              kOtherOrder, {{{"n", 1}}, {{"n", 3}}});
}

PASS_TEST(use_channels_last) {
  Graph g;
  const ValueId x = input(&g, {"n", 2, 6, 5});
  ValueId y = node(&g, "Relu", {node(&g, "Conv", {x, spread(&g, "w", {4, 2, 3, 3})}, {}, "conv")});
  y = node(&g, "MaxPool", {y}, {{"kernel_shape", ops::Ints{2, 2}}});
  g.add_output(node(&g, "Mul", {y, spread(&g, "scale", {4, 1, 1})}), "y");
  expect_pass("use_channels_last", g,
              "input x : f32[n, 2, 6, 5]\n"
              "constant w : f32[4, 2, 3, 3]\n"
              "constant scale : f32[4, 1, 1]\n"
              "%2 : f32[n, 4, 4, 3] = Conv(x, w)  # conv\n"
              "%3 : f32[n, 4, 4, 3] = Relu(%2)\n"
              "%4 : f32[n, 4, 3, 2] = MaxPool(%3) {kernel_shape=[2, 2]}\n"
              "%6 : f32[n, 4, 3, 2] = Mul(%4, scale)\n"
              "output y = %6\n",
              "input x : f32[n, 2, 6, 5]\n"
              "constant w : f32[4, 2, 3, 3]\n"
              "constant scale : f32[4, 1, 1]\n"
              "constant  : i64[1]\n"
              "%1 : f32[n, 6, 5, 2] = Transpose(x) {perm=[0, 2, 3, 1]}\n"
              "%3 : f32[n, 4, 3, 4] = lmnative.Conv(%1, w)  # conv\n"
              "%4 : f32[n, 4, 3, 4] = Relu(%3)\n"
              "%5 : f32[n, 3, 2, 4] = lmnative.MaxPool(%4) {kernel_shape=[2, 2]}\n"
              "%8 : f32[4] = Reshape(scale, %7)\n"
              "%9 : f32[n, 3, 2, 4] = Mul(%5, %8)\n"
              "%10 : f32[n, 4, 3, 2] = Transpose(%9) {perm=[0, 3, 1, 2]}\n"
              "output y = %10\n",
              kOtherOrder, {{{"n", 1}}, {{"n", 3}}});
}

PASS_TEST(fuse_convolution) {
  Graph g;
  const ValueId x = input(&g, {"n", 6, 5, 2});
  const ValueId first = node(&g, "lmnative.Conv", {x, spread(&g, "v", {4, 2, 1, 1})}, {}, "first");
  ValueId y = node(&g, "lmnative.Conv", {x, spread(&g, "w", {4, 2, 1, 1})}, {}, "second");
  y = node(&g, "Add", {node(&g, "Add", {y, spread(&g, "b", {4})}), first});
  g.add_output(node(&g, "Relu", {y}), "y");
  expect_pass("fuse_convolution", g,
              "input x : f32[n, 6, 5, 2]\n"
              "constant v : f32[4, 2, 1, 1]\n"
              "constant w : f32[4, 2, 1, 1]\n"
              "constant b : f32[4]\n"
              "%2 : f32[n, 6, 5, 4] = lmnative.Conv(x, v)  # first\n"
              "%4 : f32[n, 6, 5, 4] = lmnative.Conv(x, w)  # second\n"
              "%6 : f32[n, 6, 5, 4] = Add(%4, b)\n"
              "%7 : f32[n, 6, 5, 4] = Add(%6, %2)\n"
              "%8 : f32[n, 6, 5, 4] = Relu(%7)\n"
              "output y = %8\n",
              "input x : f32[n, 6, 5, 2]\n"
              "constant v : f32[4, 2, 1, 1]\n"
              "constant w : f32[4, 2, 1, 1]\n"
              "constant b : f32[4]\n"
              "%2 : f32[n, 6, 5, 4] = lmnative.Conv(x, v)  # first\n"
              "%5 : f32[n, 6, 5, 4] = lmnative.Conv(x, w, b, %2) {activation=Relu}  # second\n"
              "output y = %5\n",
              kOtherOrder, {{{"n", 1}}, {{"n", 3}}});
}

PASS_TEST(fuse_linear) {
  Graph g;
  const ValueId x = input(&g, {"n", 24});
  const ValueId first = node(&g, "Gemm", {x, spread(&g, "v", {20, 24}), spread(&g, "c", {20})},
                             {{"transB", int64_t{1}}}, "first");
  ValueId y = node(&g, "Add",
                   {node(&g, "MatMul", {first, spread(&g, "w", {20, 24})}, {}, "second"),
                    spread(&g, "b", {1, 24})});
  g.add_output(node(&g, "Add", {node(&g, "Tanh", {y}), x}), "y");
  expect_pass("fuse_linear", g,
              "input x : f32[n, 24]\n"
              "constant v : f32[20, 24]\n"
              "constant c : f32[20]\n"
              "constant w : f32[20, 24]\n"
              "constant b : f32[1, 24]\n"
              "%3 : f32[n, 20] = Gemm(x, v, c) {transB=1}  # first\n"
              "%5 : f32[n, 24] = MatMul(%3, w)  # second\n"
              "%7 : f32[n, 24] = Add(%5, b)\n"
              "%8 : f32[n, 24] = Tanh(%7)\n"
              "%9 : f32[n, 24] = Add(%8, x)\n"
              "output y = %9\n",
              "input x : f32[n, 24]\n"
              "constant v : f32[20, 24]\n"
              "constant c : f32[20]\n"
              "constant w : f32[20, 24]\n"
              "constant b : f32[24]\n"
              "%3 : f32[n, 20] = lmnative.Linear(x, v, c) {transposed=1}  # first\n"
              "%6 : f32[n, 24] = lmnative.Linear(%3, w, b, x) {activation=Tanh}\n"
              "output y = %6\n",
              kOtherOrder, kRowCounts);
}

// Integers, and the same operations on their sums: the same bits.
PASS_TEST(fuse_integer_linear) {
  Graph g;
  const ValueId x = input(&g, {"n", 24});
  const auto made = g.add(op_of(*ops::find_tensor_op("DynamicQuantizeLinear")), {x}, {}, "q", 3);
  ASSERT_OK(made);
  const std::vector<ValueId> q = g.node(*made).outputs;
  std::vector<int8_t> bytes;
  for (int i = 0; i < 24 * 10; ++i) bytes.push_back(static_cast<int8_t>(i * 97 % 251 - 125));
  const ValueId w = constant<int8_t>(&g, "w", DType::kI8, {24, 10}, bytes);
  const ValueId zero = constant<int8_t>(&g, "zero", DType::kI8, Shape{}, {0});
  const ValueId sums = node(&g, "MatMulInteger", {q[0], w, q[2], zero});
  const ValueId scales = node(&g, "Mul", {q[1], number(&g, "scale", 0.02f)});
  const ValueId y = node(&g, "Mul", {node(&g, "Cast", {sums}, {{"to", int64_t{1}}}), scales});
  g.add_output(node(&g, "Relu", {node(&g, "Add", {y, spread(&g, "b", {10})})}), "y");
  expect_pass(
      "fuse_integer_linear", g,
      "input x : f32[n, 24]\n"
      "constant w : i8[24, 10]\n"
      "constant zero : i8[]\n"
      "constant scale : f32[]\n"
      "constant b : f32[10]\n"
      "%1 : u8[n, 24], %2 : f32[], %3 : u8[] = DynamicQuantizeLinear(x)  # q\n"
      "%6 : i32[n, 10] = MatMulInteger(%1, w, %3, zero)\n"
      "%8 : f32[] = Mul(%2, scale)\n"
      "%9 : f32[n, 10] = Cast(%6) {to=1}\n"
      "%10 : f32[n, 10] = Mul(%9, %8)\n"
      "%12 : f32[n, 10] = Add(%10, b)\n"
      "%13 : f32[n, 10] = Relu(%12)\n"
      "output y = %13\n",
      "input x : f32[n, 24]\n"
      "constant scale : f32[]\n"
      "constant w : i8[24, 10]\n"
      "constant zero : i8[]\n"
      "constant b : f32[10]\n"
      "%1 : f32[64, 2] = lmnative.BlockRanges(x)  # q\n"
      "%2 : u8[n, 24], %3 : f32[], %4 : u8[] = lmnative.QuantizeByRanges(x, %1)  # q\n"
      "%6 : f32[] = Mul(%3, scale)\n"
      "%10 : f32[n, 10] = lmnative.IntegerLinear(%2, %3, %4, w, scale, zero, b) {activation=Relu}\n"
      "output y = %10\n",
      kSameBits, kRowCounts);
}

PASS_TEST(fuse_skip_norm) {
  Graph g;
  const ValueId x = input(&g, {"n", 40}), z = input_named(&g, "z", {"n", 40});
  const ValueId gamma = spread(&g, "gamma", {40}), beta = spread(&g, "beta", {40});
  const ValueId first = node(&g, "LayerNormalization", {node(&g, "Add", {x, z}), gamma, beta},
                             {{"epsilon", 1e-3f}}, "first");
  const ValueId read_twice = node(&g, "Add", {first, x});
  const ValueId second = node(&g, "LayerNormalization", {read_twice, gamma}, {}, "second");
  const ValueId sum = node(&g, "Add", {second, read_twice});
  g.add_output(node(&g, "LayerNormalization", {sum, gamma}, {{"axis", int64_t{1}}}, "third"), "y");
  expect_pass("fuse_skip_norm", g,
              "input x : f32[n, 40]\n"
              "input z : f32[n, 40]\n"
              "constant gamma : f32[40]\n"
              "constant beta : f32[40]\n"
              "%4 : f32[n, 40] = Add(x, z)\n"
              "%5 : f32[n, 40] = LayerNormalization(%4, gamma, beta) {epsilon=0.001}  # first\n"
              "%6 : f32[n, 40] = Add(%5, x)\n"
              "%7 : f32[n, 40] = LayerNormalization(%6, gamma)  # second\n"
              "%8 : f32[n, 40] = Add(%7, %6)\n"
              "%9 : f32[n, 40] = LayerNormalization(%8, gamma) {axis=1}  # third\n"
              "output y = %9\n",
              "input x : f32[n, 40]\n"
              "input z : f32[n, 40]\n"
              "constant gamma : f32[40]\n"
              "constant beta : f32[40]\n"
              "%2 : f32[n, 40] = Add(x, z)\n"
              "%5 : f32[n, 40] = com.microsoft.SkipLayerNormalization(x, z, gamma, beta) "
              "{epsilon=0.001}  # first\n"
              "%6 : f32[n, 40] = Add(%5, x)\n"
              "%7 : f32[n, 40] = LayerNormalization(%6, gamma)  # second\n"
              "%8 : f32[n, 40] = Add(%7, %6)\n"
              "%9 : f32[n, 40] = com.microsoft.SkipLayerNormalization(%7, %6, gamma) "
              "{epsilon=1e-05}  # third\n"
              "output y = %9\n",
              kSameBits, kRowCounts);
}

PASS_TEST(fuse_elementwise) {
  Graph g;
  const ValueId x = input(&g, {"n", 40});
  const ValueId gate = input_named(&g, "gate", {"n", 1});
  const ValueId row = spread(&g, "row", {40});
  ValueId y = node(&g, "Add", {node(&g, "Mul", {x, row}), gate}, {}, "shifted");
  y = node(&g, "Mul",
           {node(&g, "Clip", {y, kNone, number(&g, "most", 0.5f)}), node(&g, "Sigmoid", {y})});
  y = node(&g, "Div", {node(&g, "Pow", {y, number(&g, "three", 3)}), node(&g, "Exp", {x})}, {},
           "ratio");
  g.add_output(y, "y");
  g.add_output(node(&g, "Neg", {node(&g, "LeakyRelu", {y}, {{"alpha", 0.25f}})}), "z");
  expect_pass(
      "fuse_elementwise", g,
      "input x : f32[n, 40]\n"
      "input gate : f32[n, 1]\n"
      "constant row : f32[40]\n"
      "constant most : f32[]\n"
      "constant three : f32[]\n"
      "%3 : f32[n, 40] = Mul(x, row)\n"
      "%4 : f32[n, 40] = Add(%3, gate)  # shifted\n"
      "%6 : f32[n, 40] = Clip(%4, -, most)\n"
      "%7 : f32[n, 40] = Sigmoid(%4)\n"
      "%8 : f32[n, 40] = Mul(%6, %7)\n"
      "%10 : f32[n, 40] = Pow(%8, three)\n"
      "%11 : f32[n, 40] = Exp(x)\n"
      "%12 : f32[n, 40] = Div(%10, %11)  # ratio\n"
      "%13 : f32[n, 40] = LeakyRelu(%12) {alpha=0.25}\n"
      "%14 : f32[n, 40] = Neg(%13)\n"
      "output y = %12\n"
      "output z = %14\n",
      "input x : f32[n, 40]\n"
      "input gate : f32[n, 1]\n"
      "constant row : f32[40]\n"
      "%3 : f32[n, 40] = lmnative.ElementwiseChain(x, row, gate) {steps=[Mul x0 x1, Add t0 x2, "
      "Clip t1 -inf 0.5, Sigmoid t1, Mul t2 t3, Mul t4 t4, Mul t5 t4, Exp x0, Div t6 t7]}  # "
      "ratio\n"
      "%4 : f32[n, 40] = lmnative.ElementwiseChain(%3) {steps=[LeakyRelu x0 0.25, Neg t0]}\n"
      "output y = %3\n"
      "output z = %4\n",
      kSameBits, kRowCounts);
}

// What another file shows of the passes that language models need.
TEST(every_pass_is_shown_alone) {
  const std::set<std::string_view> elsewhere = {
      "hoist_gather",  "merge_gate_up",  "merge_linears",     "fuse_rope_kv_write",
      "fuse_residual", "lower_quantize", "fuse_norm_quantize"};
  for (const Pass& pass : passes())
    EXPECT(shown().contains(pass.name) || elsewhere.contains(pass.name));
}

}  // namespace
