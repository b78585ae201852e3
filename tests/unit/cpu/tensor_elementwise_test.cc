// SPDX-License-Identifier: Apache-2.0
//
// Operators of elementwise.def: what ONNX's own tests leave out. Every run() also compares splits
// of the work and running in place, bit for bit (tensor_case.h).
#include <limits>

#include "tensor_case.h"

namespace {

using lmn::DType;
using lmn::Shape;
using lmn::cpu::BFloat;
using lmn::cpu::Half;
using lmn::cpu::kInfinity;
using lmn::cpu::kNaN;
using lmn::cpu::TensorCase;
using lmn::ops::Attributes;

// Numbers between -3 and 3, none of them twice in a row.
std::vector<float> numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 601) - 300) / 100.0f;
  return values;
}
template <typename T>
std::vector<T> as(const std::vector<float>& from) {
  std::vector<T> values;
  for (float x : from) values.push_back(T(x));
  return values;
}

// op(x) of 1500 numbers in every float type against `reference` of the rounded input, with an error
// of at most `tolerance` relative to 1 + |result| above the rounding of the type.
template <typename Reference>
void check_function(const char* op, Reference reference, double tolerance,
                    Attributes attributes = {}, float scale = 1.0f, float shift = 0.0f) {
  std::vector<float> x = numbers(1500);
  for (float& value : x) value = value * scale + shift;
  const auto check = [&](auto zero, DType dtype, double rounding) {
    using T = decltype(zero);
    TensorCase c(op, attributes);
    const std::vector<T> in = as<T>(x);
    c.in<T>({3, 500}, in, dtype);
    ASSERT_OK(c.run());
    EXPECT(c.dtype() == dtype);
    double worst = 0;
    const std::vector<T> out = c.values<T>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double want = reference(static_cast<double>(in[i]));
      worst = std::max(worst, std::abs(static_cast<double>(out[i]) - want) / (1 + std::abs(want)));
    }
    if (!(worst <= tolerance + rounding)) {
      testing::report_failure(__FILE__, __LINE__,
                              std::string(op) + ": error " + std::to_string(worst * 1e9) + "e-9");
    }
  };
  check(0.0f, DType::kF32, 0);
  check(Half(0.0f), DType::kF16, 0x1p-11);
  check(BFloat(0.0f), DType::kBF16, 0x1p-8);
  TensorCase c(op, attributes);
  c.in<double>({1500}, std::vector<double>(x.begin(), x.end()));
  ASSERT_OK(c.run());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = reference(static_cast<double>(x[i]));
    EXPECT_NEAR(c.values<double>()[i], want, 1e-6 * (1 + std::abs(want)));
    if (i == 20) break;
  }
}

double normal(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
double logistic_of(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST(elementwise_functions_of_one_number) {
  check_function(
      "Exp", [](double x) { return std::exp(x); }, 2e-7);
  check_function(
      "Log", [](double x) { return std::log(x); }, 2e-7, {}, 1.0f, 4.0f);
  check_function(
      "Tanh", [](double x) { return std::tanh(x); }, 2e-7);
  check_function(
      "Erf", [](double x) { return std::erf(x); }, 2e-7);
  check_function("Sigmoid", logistic_of, 2e-7);
  check_function(
      "Sin", [](double x) { return std::sin(x); }, 2e-7);
  check_function(
      "Atan", [](double x) { return std::atan(x); }, 2e-7);
  check_function(
      "Reciprocal", [](double x) { return 1 / x; }, 2e-7, {}, 1.0f, 4.0f);
  check_function(
      "Floor", [](double x) { return std::floor(x); }, 0);
  check_function(
      "Ceil", [](double x) { return std::ceil(x); }, 0);
  check_function(
      "Round", [](double x) { return std::nearbyint(x); }, 0);
  check_function(
      "Gelu", [](double x) { return x * normal(x); }, 2e-7);
  check_function(
      "com.microsoft.Gelu", [](double x) { return x * normal(x); }, 2e-7);
  const auto gelu_tanh = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  check_function("Gelu", gelu_tanh, 3e-7, {{"approximate", std::string("tanh")}});
  check_function("com.microsoft.FastGelu", gelu_tanh, 3e-7);
  check_function(
      "com.microsoft.QuickGelu", [](double x) { return x * logistic_of(1.702 * x); }, 3e-7);
  check_function("Swish", [](double x) { return x * logistic_of(0.5 * x); }, 2e-7,
                 {{"alpha", 0.5f}});
  check_function("Elu", [](double x) { return x > 0 ? x : 2 * std::expm1(x); }, 5e-7,
                 {{"alpha", 2.0f}});
  check_function("Celu",
                 [](double x) { return std::max(0.0, x) + std::min(0.0, 2 * std::expm1(x / 2)); },
                 4e-7, {{"alpha", 2.0f}});
  check_function(
      "Softplus", [](double x) { return std::log1p(std::exp(x)); }, 3e-7, {}, 10.0f);
  check_function(
      "Mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, 4e-7);
  check_function(
      "HardSwish", [](double x) { return x * std::min(1.0, std::max(0.0, x / 6 + 0.5)); }, 3e-7);
  check_function("Shrink", [](double x) { return x > 1    ? x - 0.5
                                                 : x < -1 ? x + 0.5
                                                          : 0; }, 2e-7,
                 {{"lambd", 1.0f}, {"bias", 0.5f}});
}

// Small results keep their digits: no 1 is subtracted from something near 1.
TEST(elementwise_small_results_are_accurate) {
  TensorCase softplus("Softplus");
  softplus.in<float>({3}, {-20.0f, -100.0f, 100.0f});
  ASSERT_OK(softplus.run());
  EXPECT_NEAR(softplus.values<float>()[0], std::log1p(std::exp(-20.0)), 1e-15);
  EXPECT_NEAR(softplus.values<float>()[1], std::exp(-100.0), 2e-45);
  EXPECT_EQ(softplus.values<float>()[2], 100.0f);
  TensorCase elu("Elu");
  elu.in<float>({2}, {-1e-5f, -kInfinity});
  ASSERT_OK(elu.run());
  EXPECT_NEAR(elu.values<float>()[0], std::expm1(static_cast<double>(-1e-5f)), 2e-12);
  EXPECT_EQ(elu.values<float>()[1], -1.0f);
}

TEST(elementwise_integers_wrap_and_divide) {
  const std::vector<int32_t> x = {INT32_MAX, INT32_MIN, -7, 7}, y = {1, -1, 2, -2};
  const auto result = [&](const char* op, Attributes attributes = {}) {
    TensorCase c(op, std::move(attributes));
    c.in<int32_t>({4}, x).in<int32_t>({4}, y);
    ASSERT_OK(c.run());
    return c.values<int32_t>();
  };
  EXPECT(result("Add") == std::vector<int32_t>({INT32_MIN, INT32_MAX, -5, 5}));
  EXPECT(result("Sub") == std::vector<int32_t>({INT32_MAX - 1, INT32_MIN + 1, -9, 9}));
  EXPECT(result("Mul") == std::vector<int32_t>({INT32_MAX, INT32_MIN, -14, -14}));
  EXPECT(result("Div") == std::vector<int32_t>({INT32_MAX, INT32_MIN, -3, -3}));
  EXPECT(result("Mod") == std::vector<int32_t>({0, 0, 1, -1}));
  EXPECT(result("Mod", {{"fmod", int64_t{1}}}) == std::vector<int32_t>({0, 0, -1, 1}));
  TensorCase big("Mul");
  big.in<uint8_t>({2}, {200, 3}, DType::kU8).in<uint8_t>({2}, {200, 4}, DType::kU8);
  ASSERT_OK(big.run());
  EXPECT(big.values<uint8_t>() == std::vector<uint8_t>({64, 12}));
  for (const char* op : {"Div", "Mod"}) {
    TensorCase zero(op);
    zero.in<int64_t>({3}, {1, 2, 3}).in<int64_t>({}, {0});
    EXPECT(std::string(zero.run().message()).find("divided by zero") != std::string::npos);
  }
  TensorCase negated("Neg");
  negated.in<int32_t>({2}, {INT32_MIN, 5});
  ASSERT_OK(negated.run());
  EXPECT(negated.values<int32_t>() == std::vector<int32_t>({INT32_MIN, -5}));
}

TEST(elementwise_broadcasts_every_way) {
  const std::vector<float> x = numbers(2 * 1 * 5 * 3), y = numbers(7 * 1 * 3);
  TensorCase c("Sub");
  c.in<float>({2, 1, 5, 3}, x).in<float>({7, 1, 3}, y);
  ASSERT_OK(c.run());
  EXPECT(c.shape() == Shape({2, 7, 5, 3}));
  bool equal = true;
  for (size_t i = 0; i < 210; ++i) {
    const size_t last = i % 3, row = i / 3 % 5, plane = i / 15 % 7, batch = i / 105;
    equal = equal && c.values<float>()[i] == x[(batch * 5 + row) * 3 + last] - y[plane * 3 + last];
  }
  EXPECT(equal);
  TensorCase empty("Add");
  empty.in<float>({0, 3}, {}).in<float>({1}, {1.0f});
  ASSERT_OK(empty.run());
  EXPECT(empty.shape() == Shape({0, 3}));
  TensorCase scalars("Mul");
  scalars.in<Half>({}, {Half(3.0f)}).in<Half>({1, 1}, {Half(0.5f)});
  ASSERT_OK(scalars.run());
  EXPECT_EQ(static_cast<float>(scalars.values<Half>()[0]), 1.5f);
  // A run of more halves than are converted at a time, with a scalar on the left.
  TensorCase halves("Sub");
  halves.in<Half>({}, {Half(1.0f)}).in<Half>({1300}, std::vector<Half>(1300, Half(0.25f)));
  ASSERT_OK(halves.run());
  EXPECT_EQ(static_cast<float>(halves.values<Half>()[1299]), 0.75f);
}

TEST(elementwise_nan_and_infinity) {
  TensorCase max("Max");
  max.in<float>({4}, {kNaN, 1, 2, -kInfinity}).in<float>({4}, {1, kNaN, 1, -5}).in<float>({}, {0});
  ASSERT_OK(max.run());
  const std::vector<float> largest = max.values<float>();
  EXPECT(std::isnan(largest[0]) && std::isnan(largest[1]) && largest[2] == 2 && largest[3] == 0);
  TensorCase relu("Relu");
  relu.in<float>({3}, {kNaN, -1, 2});
  ASSERT_OK(relu.run());
  EXPECT(std::isnan(relu.values<float>()[0]) && relu.values<float>()[1] == 0);
  TensorCase clip("Clip");
  clip.in<float>({4}, {kNaN, -9, 9, kInfinity}).in<float>({}, {2}).in<float>({}, {1});
  ASSERT_OK(clip.run());
  EXPECT(std::isnan(clip.values<float>()[0]) && clip.values<float>()[1] == 1 &&
         clip.values<float>()[3] == 1);
  TensorCase is_inf("IsInf", {{"detect_negative", int64_t{0}}});
  is_inf.in<uint8_t>({4}, {0x7C, 0xFC, 0x7D, 0x00}, DType::kF8E5M2);
  ASSERT_OK(is_inf.run());
  EXPECT(is_inf.values<uint8_t>() == std::vector<uint8_t>({1, 0, 0, 0}));
  TensorCase mod("Mod");
  mod.in<float>({5}, {-5.5f, 5.5f, 0.0f, 1, kInfinity}).in<float>({5}, {2, -2, -2, -kInfinity, 1});
  ASSERT_OK(mod.run());
  EXPECT_EQ(mod.values<float>()[0], 0.5f);
  EXPECT_EQ(mod.values<float>()[1], -0.5f);
  EXPECT(std::signbit(mod.values<float>()[2]));
  EXPECT_EQ(mod.values<float>()[3], -kInfinity);
  EXPECT(std::isnan(mod.values<float>()[4]));
}

TEST(elementwise_powers) {
  TensorCase of_integers("Pow");
  of_integers.in<int64_t>({6}, {3, -2, 1, -1, 5, 0}).in<int32_t>({6}, {39, 3, -5, -3, -1, 0});
  ASSERT_OK(of_integers.run());
  EXPECT(of_integers.values<int64_t>() ==
         std::vector<int64_t>({4052555153018976267, -8, 1, -1, 0, 1}));
  TensorCase mixed("Pow");
  mixed.in<Half>({3}, {Half(2.0f), Half(9.0f), Half(3.0f)}).in<double>({3}, {10, 0.5, -1});
  ASSERT_OK(mixed.run());
  EXPECT_EQ(static_cast<float>(mixed.values<Half>()[0]), 1024.0f);
  EXPECT_EQ(static_cast<float>(mixed.values<Half>()[2]), 0x1.554p-2f);  // 1/3 rounded once
  for (float exponent : {2.0f, 3.0f, 0.5f, -1.5f}) {
    TensorCase c("Pow");
    c.in<float>({4}, {0.5f, 1.5f, 2.0f, 7.0f}).in<float>({}, {exponent});
    ASSERT_OK(c.run());
    EXPECT_NEAR(c.values<float>()[1], std::pow(1.5, exponent), 1e-6);
    EXPECT_NEAR(c.values<float>()[3], std::pow(7.0, exponent), 4e-5);
  }
}

TEST(elementwise_choices_of_every_layout) {
  for (int layout = 0; layout < 8; ++layout) {
    const auto shape = [&](int bit) { return (layout >> bit & 1) != 0 ? Shape{4} : Shape{1}; };
    const std::vector<uint8_t> all = {1, 0, 0, 1};
    const std::vector<int64_t> x = {1, 2, 3, 4}, y = {-1, -2, -3, -4};
    const auto first = [](const auto& values, const Shape& to) {
      return std::decay_t<decltype(values)>(values.begin(), values.begin() + to[0]);
    };
    TensorCase c("Where");
    c.in<uint8_t>(shape(0), first(all, shape(0)))
        .in<int64_t>(shape(1), first(x, shape(1)))
        .in<int64_t>(shape(2), first(y, shape(2)));
    ASSERT_OK(c.run());
    for (size_t i = 0; i < c.values<int64_t>().size(); ++i) {
      const auto at = [&](int bit) { return (layout >> bit & 1) != 0 ? i : size_t{0}; };
      EXPECT_EQ(c.values<int64_t>()[i], all[at(0)] != 0 ? x[at(1)] : y[at(2)]);
    }
  }
  TensorCase strings("Where");
  strings.in<uint8_t>({2, 1}, {1, 0}).in<std::string>({2}, {"a", "a string that is long enough"});
  strings.in<std::string>({}, {"no"});
  ASSERT_OK(strings.run());
  EXPECT(strings.values<std::string>() ==
         std::vector<std::string>({"a", "a string that is long enough", "no", "no"}));
  TensorCase equal("Equal");
  equal.in<std::string>({2}, {"a", "b"}).in<std::string>({}, {"b"});
  ASSERT_OK(equal.run());
  EXPECT(equal.values<uint8_t>() == std::vector<uint8_t>({0, 1}));
}

TEST(elementwise_shifts) {
  TensorCase right("BitShift", {{"direction", std::string("RIGHT")}});
  right.in<int8_t>({4}, {-128, -1, 64, 64}).in<int8_t>({4}, {3, 100, -1, 6});
  ASSERT_OK(right.run());
  EXPECT(right.values<int8_t>() == std::vector<int8_t>({-16, -1, 0, 1}));
  TensorCase left("BitShift", {{"direction", std::string("LEFT")}});
  left.in<int8_t>({3}, {1, 1, -1}).in<int8_t>({3}, {7, 8, 1});
  ASSERT_OK(left.run());
  EXPECT(left.values<int8_t>() == std::vector<int8_t>({-128, 0, -2}));
}

TEST(elementwise_dropout) {
  TensorCase inference("Dropout", {}, 2);
  inference.in<float>({3}, {1, 2, 3}).in<float>({}, {0.5f}).in<uint8_t>({}, {0});
  ASSERT_OK(inference.run());
  EXPECT(inference.values<float>() == std::vector<float>({1, 2, 3}));
  EXPECT(inference.values<uint8_t>(1) == std::vector<uint8_t>({1, 1, 1}));
  // numpy.random.RandomState(1).uniform(size=4) is 0.417 0.720 0.0001 0.302.
  TensorCase training("Dropout", {{"seed", int64_t{1}}}, 2);
  training.in<float>({4}, {1, 2, 3, 4}).in<float>({}, {0.4f}).in<uint8_t>({}, {1});
  ASSERT_OK(training.run());
  EXPECT(training.values<uint8_t>(1) == std::vector<uint8_t>({1, 1, 0, 0}));
  EXPECT_NEAR(training.values<float>()[1], 2 / 0.6, 1e-6);
  TensorCase all("Dropout");
  all.in<float>({1}, {1}).in<float>({}, {1.0f}).in<uint8_t>({}, {1});
  EXPECT(std::string(all.run().message()).find("ratio") != std::string::npos);
}

TEST(elementwise_refuses_what_does_not_fit) {
  TensorCase types("Add");
  types.in<float>({1}, {1}).in<int32_t>({1}, {1});
  EXPECT(says(types, "f32 and i32"));
  TensorCase shapes("Add");
  shapes.in<float>({2}, {1, 2}).in<float>({3}, {1, 2, 3});
  EXPECT(says(shapes, "[2] and [3]"));
  TensorCase huge("Add");
  huge.in<uint8_t>({1 << 21, 1}, std::vector<uint8_t>(1 << 21), DType::kU8)
      .in<uint8_t>({1 << 21}, std::vector<uint8_t>(1 << 21), DType::kU8);
  EXPECT(says(huge, "2^40"));
  TensorCase slope("PRelu");
  slope.in<float>({1}, {1}).in<float>({3}, {1, 2, 3});
  EXPECT(says(slope, "does not repeat"));
  TensorCase limits("Clip");
  limits.in<float>({1}, {1}).in<float>({2}, {1, 2});
  EXPECT(says(limits, "one number"));
  TensorCase shift("BitShift", {{"direction", std::string("UP")}});
  shift.in<int32_t>({1}, {1}).in<int32_t>({1}, {1});
  EXPECT(says(shift, "LEFT or RIGHT"));
  TensorCase celu("Celu", {{"alpha", 0.0f}});
  celu.in<float>({1}, {1});
  EXPECT(says(celu, "alpha is 0"));
  TensorCase gelu("Gelu", {{"approximate", std::string(1000, 'x')}});
  gelu.in<float>({1}, {1});
  EXPECT(says(gelu, "none or tanh"));
  TensorCase none("Sum");
  EXPECT(says(none, "no inputs"));
  TensorCase kind("Exp");
  kind.in<int32_t>({1}, {1});
  EXPECT(std::string(kind.run().message()).find("no kernel for i32") != std::string::npos);
}
