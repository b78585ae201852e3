// SPDX-License-Identifier: Apache-2.0
//
// fuse_layer_norm, before and after, as text: the forms of exporters, and what is none of them.
// That results stay is shown where graphs run: tests/unit/plan/each_pass_test.cc,
// tests/python/fused_norms_test.py.
#include "graph/passes/passes.h"
#include "graph/schema.h"
#include "tensor_graph.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;
using namespace graph_test;

struct NormMaker {
  Graph g;
  ValueId x = input(&g, {"n", 3, 4});
  ValueId axes = constant<int64_t>(&g, "axes", DType::kI64, {1}, {-1});
  ValueId epsilon = floats(&g, "eps", Shape{}, {1e-5f});
  ValueId gamma = floats(&g, "gamma", {4}, {1, 2, 3, 4}),
          beta = floats(&g, "beta", {4}, {5, 6, 7, 8});

  ValueId number(const char* name, float value) { return floats(&g, name, Shape{}, {value}); }
  ValueId of(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return node(&g, op, std::move(inputs), std::move(attributes));
  }
  ValueId mean(ValueId of_what) { return of("ReduceMean", {of_what, axes}); }
  ValueId root_of_mean_square(ValueId of_what) {
    return of("Sqrt", {of("Add", {mean(of("Mul", {of_what, of_what})), epsilon})});
  }
  std::string fused() {
    Result<Graph> result = fuse_layer_norm(g, {});
    ASSERT_OK(result);
    ASSERT_OK(verify(*result));
    result = eliminate_dead_code(*result, {});
    ASSERT_OK(result);
    return to_text(*result);
  }
  void expect_unchanged() {
    Result<Graph> clean = eliminate_dead_code(g, {});
    ASSERT_OK(clean);
    EXPECT_EQ(fused(), to_text(*clean));
  }
};

constexpr const char* kLayerNorm =
    "input x : f32[n, 3, 4]\n"
    "constant gamma : f32[4]\n"
    "constant beta : f32[4]\n"
    "%3 : f32[n, 3, 4] = LayerNormalization(x, gamma, beta) {axis=-1, epsilon=1e-05}\n"
    "output y = %3\n";

// (x - mean) / sqrt(variance + eps) * gamma + beta, the square as a power: torch below opset 17.
TEST(layer_norm_by_quotients) {
  NormMaker m;
  const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
  const ValueId variance = m.mean(m.of("Pow", {d, m.number("two", 2)}));
  const ValueId root = m.of("Sqrt", {m.of("Add", {m.epsilon, variance})});
  const ValueId y = m.of("Mul", {m.gamma, m.of("Div", {d, root})});
  m.g.add_output(m.of("Add", {m.beta, y}), "y");
  EXPECT_EQ(m.fused(), kLayerNorm);
}

// The inverse of the root as a Reciprocal, as 1 / root and as a power; the factor first.
TEST(layer_norm_by_inverses) {
  for (int form = 0; form < 4; ++form) {
    NormMaker m;
    const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
    ValueId inverse = kNone;
    if (form == 0) inverse = m.of("Reciprocal", {m.root_of_mean_square(d)});
    if (form == 1) inverse = m.of("Div", {m.number("one", 1), m.root_of_mean_square(d)});
    if (form >= 2) {
      const ValueId variance = m.mean(m.of("Mul", {d, d}));
      inverse = m.of("Pow", {m.of("Add", {variance, m.epsilon}), m.number("half", -0.5f)});
    }
    const ValueId y = form == 3 ? m.of("Mul", {d, m.of("Mul", {inverse, m.gamma})})
                                : m.of("Mul", {m.of("Mul", {inverse, d}), m.gamma});
    m.g.add_output(m.of("Add", {y, m.beta}), "y");
    EXPECT_EQ(m.fused(), kLayerNorm);
  }
}

// x * inverse * gamma + (beta - mean * inverse * gamma): Keras.
TEST(layer_norm_of_tensorflow) {
  NormMaker m;
  const ValueId mean = m.mean(m.x);
  const ValueId root = m.root_of_mean_square(m.of("Sub", {m.x, mean}));
  const ValueId factor = m.of("Mul", {m.of("Reciprocal", {root}), m.gamma});
  const ValueId rest = m.of("Sub", {m.beta, m.of("Mul", {mean, factor})});
  m.g.add_output(m.of("Add", {m.of("Mul", {m.x, factor}), rest}), "y");
  EXPECT_EQ(m.fused(), kLayerNorm);
}

TEST(layer_norm_without_factor_and_over_two_axes) {
  NormMaker m;
  const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
  m.g.add_output(m.of("Div", {d, m.root_of_mean_square(d)}), "y");
  EXPECT_EQ(m.fused(),
            "input x : f32[n, 3, 4]\n"
            "constant ones : f32[4]\n"
            "%2 : f32[n, 3, 4] = LayerNormalization(x, ones) {axis=-1, epsilon=1e-05}\n"
            "output y = %2\n");
  NormMaker two;
  two.axes = constant<int64_t>(&two.g, "both", DType::kI64, {2}, {2, -2});
  two.gamma = floats(&two.g, "wide", {1, 3, 4}, std::vector<float>(12, 2.0f));
  const ValueId e = two.of("Sub", {two.x, two.mean(two.x)});
  two.g.add_output(two.of("Mul", {two.of("Div", {e, two.root_of_mean_square(e)}), two.gamma}), "y");
  EXPECT_EQ(two.fused(),
            "input x : f32[n, 3, 4]\n"
            "constant wide : f32[1, 3, 4]\n"
            "%2 : f32[n, 3, 4] = LayerNormalization(x, wide) {axis=-2, epsilon=1e-05}\n"
            "output y = %2\n");
}

// A residual stays what it is: it is read elsewhere.
TEST(rms_norm) {
  NormMaker m;
  const ValueId inverse = m.of("Reciprocal", {m.root_of_mean_square(m.x)});
  const ValueId y = m.of("Mul", {m.gamma, m.of("Mul", {m.x, inverse})});
  m.g.add_output(m.of("Add", {y, m.x}), "y");
  EXPECT_EQ(m.fused(),
            "input x : f32[n, 3, 4]\n"
            "constant gamma : f32[4]\n"
            "%2 : f32[n, 3, 4] = RMSNormalization(x, gamma) {axis=-1, epsilon=1e-05}\n"
            "%3 : f32[n, 3, 4] = Add(%2, x)\n"
            "output y = %3\n");
}

// Half precision that is cast for the statistics: the norm computes in float32 by itself.
TEST(casts_around_a_norm_are_taken_along) {
  for (const bool centered : {false, true}) {
    NormMaker m;
    const ValueId half = m.g.add_input("h", tensor(DType::kF16, {"n", 4}));
    m.gamma = constant<uint16_t>(&m.g, "scale", DType::kF16, {4}, {0, 0, 0, 0});
    const ValueId x = m.of("Cast", {half}, {{"to", int64_t{1}}});
    const ValueId d = centered ? m.of("Sub", {x, m.mean(x)}) : x;
    const ValueId y =
        m.of("Cast", {m.of("Div", {d, m.root_of_mean_square(d)})}, {{"to", int64_t{10}}});
    m.g.add_output(m.of("Mul", {m.gamma, y}), "y");
    const std::string op = centered ? "LayerNormalization" : "RMSNormalization";
    EXPECT_EQ(m.fused(),
              "input x : f32[n, 3, 4]\n"
              "input h : f16[n, 4]\n"
              "constant scale : f16[4]\n"
              "%3 : f16[n, 4] = " +
                  op +
                  "(h, scale) {axis=-1, epsilon=1e-05}\n"
                  "output y = %3\n");
  }
}

TEST(what_is_no_norm_stays) {
  {
    NormMaker m;  // the mean is read elsewhere
    const ValueId mean = m.mean(m.x), d = m.of("Sub", {m.x, mean});
    m.g.add_output(m.of("Mul", {m.of("Div", {d, m.root_of_mean_square(d)}), m.gamma}), "y");
    m.g.add_output(mean, "mean");
    m.expect_unchanged();
  }
  {
    NormMaker m;  // over an axis in the middle
    m.axes = constant<int64_t>(&m.g, "middle", DType::kI64, {1}, {1});
    const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
    m.g.add_output(m.of("Div", {d, m.root_of_mean_square(d)}), "y");
    m.expect_unchanged();
  }
  {
    NormMaker m;  // a cube is no square
    const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
    const ValueId cube = m.mean(m.of("Pow", {d, m.number("three", 3)}));
    m.g.add_output(m.of("Div", {d, m.of("Sqrt", {m.of("Add", {cube, m.epsilon})})}), "y");
    m.expect_unchanged();
  }
  {
    NormMaker m;  // the root over what it belongs to
    const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
    m.g.add_output(m.of("Div", {m.root_of_mean_square(d), d}), "y");
    m.expect_unchanged();
  }
  {
    NormMaker m;  // an epsilon for every row
    m.epsilon = floats(&m.g, "many", {3, 1}, {1, 2, 3});
    const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
    m.g.add_output(m.of("Div", {d, m.root_of_mean_square(d)}), "y");
    m.expect_unchanged();
  }
}

// A factor that is no row of columns stays behind the norm.
TEST(a_factor_of_another_shape_is_not_taken) {
  NormMaker m;
  const ValueId column = floats(&m.g, "column", {3, 1}, {1, 2, 3});
  const ValueId d = m.of("Sub", {m.x, m.mean(m.x)});
  m.g.add_output(m.of("Mul", {m.of("Div", {d, m.root_of_mean_square(d)}), column}), "y");
  EXPECT_EQ(m.fused(),
            "input x : f32[n, 3, 4]\n"
            "constant ones : f32[4]\n"
            "constant column : f32[3, 1]\n"
            "%2 : f32[n, 3, 4] = LayerNormalization(x, ones) {axis=-1, epsilon=1e-05}\n"
            "%4 : f32[n, 3, 4] = Mul(%2, column)\n"
            "output y = %4\n");
}

}  // namespace
