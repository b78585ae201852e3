// SPDX-License-Identifier: Apache-2.0
//
// lmnative.ElementwiseChain: every step gives the bits of the operator by itself, on every
// instruction set, whatever is broadcast.
#include <cmath>
#include <limits>
#include <string_view>

#include "cpu/tensor/vector_math.h"
#include "ops/elementwise_chain.h"
#include "tensor_case.h"

namespace {

using lmn::Shape;
using lmn::cpu::TensorCase;
using lmn::ops::Attributes;
using lmn::ops::Strings;

// Numbers of every size and sign, and special ones, 1037 in all: more than a block.
std::vector<float> values_of_all_sizes() {
  constexpr float kLimit = std::numeric_limits<float>::infinity();
  std::vector<float> out = {
      0.0f,   -0.0f,   kLimit,  -kLimit,    std::numeric_limits<float>::quiet_NaN(),
      1e-40f, -1e-40f, 3.4e38f, -3.4e38f,   0.5f,
      1.5f,   2.5f,    -0.5f,   8388609.0f, 16.0f,
      88.72f, -87.5f};
  uint32_t seed = 1;
  while (out.size() < 1037) {
    seed = seed * 1664525u + 1013904223u;
    const float unit = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1.0f;
    out.push_back(unit * (out.size() % 3 == 0 ? 100.0f : out.size() % 3 == 1 ? 4.0f : 0.3f));
  }
  return out;
}

// Equal bits, or both no numbers.
void expect_same(const std::vector<float>& have, const std::vector<float>& want,
                 const std::string& what) {
  ASSERT(have.size() == want.size());
  for (size_t i = 0; i < have.size(); ++i) {
    const bool same = std::memcmp(&have[i], &want[i], sizeof(float)) == 0 ||
                      (have[i] != have[i] && want[i] != want[i]);
    if (same) continue;
    testing::report_failure(__FILE__, __LINE__,
                            what + ": element " + std::to_string(i) + " is " +
                                testing::show(have[i]) + ", want " + testing::show(want[i]));
    return;
  }
}

void expect_chain(const Strings& steps, const std::vector<std::pair<Shape, std::vector<float>>>& in,
                  const std::vector<float>& want) {
  for (std::string_view target : lmn::cpu::available_targets()) {
    TensorCase chain("lmnative.ElementwiseChain", {{"steps", steps}});
    for (const auto& [shape, values] : in) chain.in<float>(shape, values);
    ASSERT_OK(chain.run_constant(target));
    expect_same(chain.values<float>(), want, std::string(target) + " " + steps.back());
  }
}

// Operators that run on the same kernels, against the functions as the baseline compiles them.
TEST(steps_give_the_bits_of_vector_math) {
  namespace vm = lmn::cpu::vector_math;
  const std::vector<float> x = values_of_all_sizes();
  const auto check = [&](const char* step, auto f) {
    std::vector<float> want;
    for (float v : x) want.push_back(f(v));
    expect_chain({step}, {{{17, 61}, x}}, want);
  };
  check("Exp x0", [](float v) { return vm::exp(v); });
  check("Log x0", [](float v) { return vm::log(v); });
  check("Tanh x0", [](float v) { return vm::tanh(v); });
  check("Erf x0", [](float v) { return vm::erf(v); });
  check("Sigmoid x0", [](float v) { return vm::sigmoid(v); });
  check("Gelu x0", [](float v) { return vm::gelu(v); });
  check("GeluTanh x0", [](float v) {
    return v * vm::sigmoid(1.5957691216057308f * (v + 0.044715f * (v * v * v)));
  });
  check("Mish x0", [](float v) { return v * vm::tanh(vm::softplus(v)); });
  check("Swish x0 1.3", [](float v) { return v / (1.0f + vm::exp(-1.3f * v)); });
  check("Softplus x0", [](float v) { return vm::softplus(v); });
  check("Elu x0 0.7",
        [](float v) { return v > 0 ? v : 0.7f * vm::exp_minus_one(v > 0 ? 0.0f : v); });
  check("Sqrt x0", [](float v) { return std::sqrt(v); });
  check("Reciprocal x0", [](float v) { return 1 / v; });
}

TEST(steps_give_the_bits_of_their_operators) {
  const std::vector<float> x = values_of_all_sizes();
  std::vector<float> y(x.rbegin(), x.rend());
  const Shape shape{17, 61};
  struct Step {
    std::string_view op;
    const char* step;
    Attributes attributes;
  };
  const std::vector<Step> steps = {
      {"Add", "Add x0 x1", {}},
      {"Sub", "Sub x0 x1", {}},
      {"Mul", "Mul x0 x1", {}},
      {"Div", "Div x0 x1", {}},
      {"Min", "Min x0 x1", {}},
      {"Max", "Max x0 x1", {}},
      {"PRelu", "PRelu x0 x1", {}},
      {"Abs", "Abs x0", {}},
      {"Ceil", "Ceil x0", {}},
      {"Elu", "Elu x0 0.7", {{"alpha", 0.7f}}},
      {"Erf", "Erf x0", {}},
      {"Exp", "Exp x0", {}},
      {"Floor", "Floor x0", {}},
      {"Gelu", "Gelu x0", {}},
      {"Gelu", "GeluTanh x0", {{"approximate", std::string("tanh")}}},
      {"HardSigmoid", "HardSigmoid x0 0.3 0.4", {{"alpha", 0.3f}, {"beta", 0.4f}}},
      {"HardSwish", "HardSwish x0", {}},
      {"LeakyRelu", "LeakyRelu x0 0.1", {{"alpha", 0.1f}}},
      {"Log", "Log x0", {}},
      {"Mish", "Mish x0", {}},
      {"Neg", "Neg x0", {}},
      {"Reciprocal", "Reciprocal x0", {}},
      {"Relu", "Relu x0", {}},
      {"Round", "Round x0", {}},
      {"Sigmoid", "Sigmoid x0", {}},
      {"Softplus", "Softplus x0", {}},
      {"Softsign", "Softsign x0", {}},
      {"Sqrt", "Sqrt x0", {}},
      {"Swish", "Swish x0 1.3", {{"alpha", 1.3f}}},
      {"com.microsoft.QuickGelu", "Swish x0 1.702", {}},
      {"Tanh", "Tanh x0", {}},
  };
  for (const Step& step : steps) {
    const bool two = std::string_view(step.step).find("x1") != std::string_view::npos;
    TensorCase alone(step.op, step.attributes);
    alone.in<float>(shape, x);
    if (two) alone.in<float>(shape, y);
    ASSERT_OK(alone.run());
    std::vector<std::pair<Shape, std::vector<float>>> in{{shape, x}};
    if (two) in.push_back({shape, y});
    expect_chain({step.step}, in, alone.values<float>());
  }
  TensorCase clip("Clip");
  clip.in<float>(shape, x).in<float>({}, {-1.0f}).in<float>({}, {2.5f});
  ASSERT_OK(clip.run());
  expect_chain({"Clip x0 -1 2.5"}, {{shape, x}}, clip.values<float>());
  TensorCase upper("Clip");
  upper.in<float>(shape, x).absent().in<float>({}, {6.0f});
  ASSERT_OK(upper.run());
  expect_chain({"Clip x0 -inf 6"}, {{shape, x}}, upper.values<float>());
}

// Operands that repeat along rows, columns and the middle, against plain loops.
TEST(operands_of_a_chain_are_broadcast) {
  const Shape shape{3, 5, 150};
  const std::vector<float> all = values_of_all_sizes();
  const auto part = [&](size_t first, size_t count) {
    std::vector<float> out(count);
    for (size_t i = 0; i < count; ++i) out[i] = all[20 + (first + i) % 1000];
    return out;
  };
  const std::vector<float> x = part(0, 2250), row = part(7, 150), column = part(11, 5),
                           middle = part(13, 450), one = {0.75f};
  std::vector<float> want(2250);
  for (size_t i = 0; i < want.size(); ++i) {
    const float scaled = x[i] * row[i % 150];
    const float shifted = scaled + column[i / 150 % 5];
    const float ratio = middle[i / 750 * 150 + i % 150] - shifted;
    want[i] = 0.75f * ratio + scaled;
  }
  expect_chain({"Mul x0 x1", "Add t0 x2", "Sub x3 t1", "Mul x4 t2", "Add t3 t0"},
               {{shape, x}, {{150}, row}, {{5, 1}, column}, {{3, 1, 150}, middle}, {{}, one}},
               want);
  // What repeats in all of its dimensions gives one value, which the output repeats.
  const std::vector<float> half = {0.5f};
  expect_chain({"Neg x0", "Add t0 x1", "Add t1 x2"}, {{{1, 1}, one}, {{}, half}, {{150}, row}},
               [&] {
                 std::vector<float> out;
                 for (float v : row) out.push_back(-0.25f + v);
                 return out;
               }());
}

// Values that live long, a result that nobody reads, and one that is read twice by one step.
TEST(results_of_steps_stay_until_they_are_read) {
  const std::vector<float> x = {1, 2, 3, 4};
  const auto each = [&](auto f) {
    std::vector<float> out;
    for (float v : x) out.push_back(f(v));
    return out;
  };
  expect_chain({"Add x0 x0", "Mul t0 t0", "Exp x0", "Add t1 t0", "Neg t3", "Sub t4 t1"}, {{{4}, x}},
               each([](float v) { return -(4 * v * v + 2 * v) - 4 * v * v; }));
  expect_chain({"Neg x0"}, {{{4}, x}}, each([](float v) { return -v; }));
  expect_chain({"Neg x0"}, {{{0, 4}, {}}}, {});
}

TEST(chains_that_are_none_are_refused) {
  const auto refusal = [](const Strings& steps) {
    TensorCase chain("lmnative.ElementwiseChain", {{"steps", steps}});
    chain.in<float>({1}, {1});
    return chain.refusal();
  };
  EXPECT_EQ(refusal({"Neg x0"}), "");
  const std::string none = "lmnative.ElementwiseChain 't': '";
  for (const char* step : {"Neg", "Neg x1", "Neg t0", "Neg x-1", "Neg x0 x0", "Add x0", "Clip x0 1",
                           "Clip x0 1 two", "Cosh x0", "", "Neg x99999999999"}) {
    EXPECT_EQ(refusal({step}), none + step + "' is no step over 1 inputs and 0 steps");
  }
  EXPECT_EQ(refusal({}), "lmnative.ElementwiseChain 't': it has 0 steps; 1 to 32 are possible");
  EXPECT_EQ(refusal(Strings(33, "Neg x0")),
            "lmnative.ElementwiseChain 't': it has 33 steps; 1 to 32 are possible");
}

}  // namespace
