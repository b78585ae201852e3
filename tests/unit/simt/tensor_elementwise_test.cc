// SPDX-License-Identifier: Apache-2.0
//
// Element-wise operators and chains of the CUDA device against the CPU's.
#include <limits>

#include "tensor_case.h"

namespace {

using namespace simt_tests;

constexpr float kLimit = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// Special ones first, then of three sizes; more than one block makes, and no whole number of
// blocks.
std::vector<float> many_numbers() {
  std::vector<float> out = {0.0f,    -0.0f, kLimit, -kLimit, kNoNumber, 1e-40f,
                            3.4e38f, 0.5f,  1.5f,   -2.5f,   88.72f,    -87.5f};
  const std::vector<float> more = some_numbers(1025, 1);
  for (size_t i = 0; out.size() < 1037; ++i)
    out.push_back(more[i] * (i % 3 == 0 ? 100.0f : i % 3 == 1 ? 4.0f : 0.3f));
  return out;
}

TEST(operators_of_one_number) {
  for (const char* op : {"Abs",
                         "Ceil",
                         "Erf",
                         "Exp",
                         "Floor",
                         "Gelu",
                         "HardSwish",
                         "Log",
                         "Mish",
                         "Neg",
                         "Reciprocal",
                         "Relu",
                         "Round",
                         "Sigmoid",
                         "Sign",
                         "Softplus",
                         "Softsign",
                         "Sqrt",
                         "Tanh",
                         "com.microsoft.Gelu",
                         "com.microsoft.QuickGelu",
                         "com.microsoft.FastGelu",
                         "Selu",
                         "Elu",
                         "Celu",
                         "HardSigmoid",
                         "LeakyRelu",
                         "Shrink",
                         "Swish",
                         "ThresholdedRelu",
                         "IsNaN",
                         "IsInf"}) {
    DeviceCase(op).in<float>({17, 61}, many_numbers()).check();
  }
  DeviceCase("Gelu", {{"approximate", "tanh"}}).in<float>({1037}, many_numbers()).check();
  DeviceCase("IsInf", {{"detect_negative", int64_t{0}}}).in<float>({1037}, many_numbers()).check();
  DeviceCase("Elu", {{"alpha", 0.3f}}).in<float>({1037}, many_numbers()).check();
  for (const char* op : {"Sin", "Cos"})
    DeviceCase(op).in<float>({64}, some_numbers(64, 3, 9)).check();
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const char* op : {"Relu", "Sigmoid", "Neg", "Tanh"})
      DeviceCase(op).in<float>({300}, some_numbers(300, 5, 4), type).check();
  }
  for (const DType type : {DType::kI32, DType::kI64}) {
    for (const char* op : {"Abs", "Neg", "Relu", "Sign"})
      DeviceCase(op).in<float>({300}, some_numbers(300, 5, 1000), type).check();
  }
}

TEST(operators_of_two_and_more_broadcast) {
  const std::vector<float> x = some_numbers(60, 1, 5), y = some_numbers(12, 2, 3),
                           z = some_numbers(5, 3, 2);
  for (const DType type : {DType::kF32, DType::kF16, DType::kI32, DType::kI64}) {
    for (const char* op : {"Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater",
                           "GreaterOrEqual", "Min", "Max"}) {
      DeviceCase(op).in<float>({5, 3, 4}, x, type).in<float>({3, 4}, y, type).check();
      DeviceCase(op).in<float>({5, 1, 1}, z, type).in<float>({1, 3, 4}, y, type).check();
      DeviceCase(op).in<float>({}, {2}, type).in<float>({3, 4}, y, type).check();
    }
  }
  DeviceCase("Div").in<float>({5, 3, 4}, x).in<float>({3, 4}, y).check();
  DeviceCase("PRelu").in<float>({5, 3, 4}, x).in<float>({3, 1}, {0.1f, 0.2f, 0.3f}).check();
  DeviceCase("Pow").in<float>({4}, {2, 3, -2, 0.5f}).in<float>({}, {2}).check();
  DeviceCase("Mod", {{"fmod", int64_t{1}}}).in<float>({5, 3, 4}, x).in<float>({3, 4}, y).check();
  DeviceCase("Sum").in<float>({5, 3, 4}, x).in<float>({3, 4}, y).in<float>({5, 1, 1}, z).check();
  DeviceCase("Mean").in<float>({5, 3, 4}, x).in<float>({3, 4}, y).in<float>({5, 1, 1}, z).check();
  DeviceCase("Max").in<float>({5, 3, 4}, x).check();
  DeviceCase("Clip").in<float>({5, 3, 4}, x).in<float>({}, {-1}).in<float>({}, {2}).check();
  DeviceCase("Clip").in<float>({5, 3, 4}, x).absent().in<float>({}, {2}).check();
  DeviceCase("Clip").in<float>({5, 3, 4}, x, DType::kI64).in<float>({}, {-1}, DType::kI64).check();
  DeviceCase("com.microsoft.BiasGelu").in<float>({5, 12}, x).in<float>({12}, y).check();
  DeviceCase("com.microsoft.FastGelu").in<float>({5, 12}, x).in<float>({12}, y).check();
  DeviceCase("SwiGLU").in<float>({5, 12}, x).in<float>({5, 12}, some_numbers(60, 9)).check();
  DeviceCase("Add").in<float>({0, 4}, {}).in<float>({4}, {1, 2, 3, 4}).check();
}

TEST(integers_wrap_and_refuse_to_be_divided_by_zero) {
  for (const char* op : {"Div", "Mod"}) {
    const auto divided = [&](const std::vector<double>& by) {
      DeviceCase c(op);
      c.in<double>({4}, {7, -7, 9, -9}, DType::kI64).in<double>({4}, by, DType::kI64).check();
      return c.failure();
    };
    EXPECT_EQ(divided({2, 2, -4, -1}), "");
    EXPECT_EQ(divided({2, 0, -4, -1}), std::string(op) + ": an integer is divided by zero");
  }
  DeviceCase("Mul")
      .in<double>({2}, {2e9, -3}, DType::kI32)
      .in<double>({2}, {3, 5}, DType::kI32)
      .check();
}

TEST(logic_choice_and_casts) {
  const std::vector<int> a = {0, 1, 0, 1}, b = {0, 0, 1, 1};
  for (const char* op : {"And", "Or", "Xor", "Equal"})
    DeviceCase(op).in<int>({4}, a, DType::kBool).in<int>({4}, b, DType::kBool).check();
  DeviceCase("Not").in<int>({4}, a, DType::kBool).check();
  for (const DType type : {DType::kF32, DType::kF16, DType::kI64, DType::kBool}) {
    DeviceCase("Where")
        .in<int>({2, 1}, {0, 1}, DType::kBool)
        .in<float>({2, 2}, {1, 0, 1, 0}, type)
        .in<float>({2}, {0, 1}, type)
        .check();
  }
  // Numbers of TensorProto.DataType.
  const std::vector<std::pair<DType, int64_t>> types = {
      {DType::kF32, 1}, {DType::kU8, 2},   {DType::kI8, 3},   {DType::kI32, 6},
      {DType::kI64, 7}, {DType::kBool, 9}, {DType::kF16, 10}, {DType::kBF16, 16}};
  for (const auto& [from, from_number] : types) {
    for (const auto& [to, to_number] : types) {
      if (from == DType::kI8) continue;  // which set_number() does not write
      DeviceCase("Cast", {{"to", to_number}})
          .in<float>({5}, {0, 1, 7.5f, 100, 42.25f}, from)
          .check();
    }
  }
  DeviceCase("Cast", {{"to", int64_t{6}}}).in<float>({4}, {-1.5f, -0.4f, 3e9f, 2.5f}).check();
  DeviceCase("Cast", {{"to", int64_t{9}}}).in<float>({3}, {-1.5f, 0, kNoNumber}).check();
}

TEST(chains_are_their_operators) {
  const ops::Strings steps = {"Mul x0 x1", "Add t0 x2", "Sub x3 t1",         "Mul x4 t2",
                              "Add t3 t0", "Tanh t4",   "Clip t5 -0.5 0.75", "Gelu x0",
                              "Max t7 t6", "Neg t8"};
  DeviceCase("lmnative.ElementwiseChain", {{"steps", steps}})
      .in<float>({3, 5, 150}, some_numbers(2250, 1))
      .in<float>({150}, some_numbers(150, 2))
      .in<float>({5, 1}, some_numbers(5, 3))
      .in<float>({3, 1, 150}, some_numbers(450, 4))
      .in<float>({}, {0.75f})
      .check();
  // All results live to the end: as many buffers as there can be.
  ops::Strings wide;
  for (int i = 0; i < 16; ++i) wide.push_back("Add x0 x" + std::to_string(i % 2));
  wide.push_back("Mul t0 t15");
  for (int i = 1; i < 15; ++i)
    wide.push_back("Sub t" + std::to_string(15 + i) + " t" + std::to_string(i));
  DeviceCase("lmnative.ElementwiseChain", {{"steps", wide}})
      .in<float>({700}, some_numbers(700, 1))
      .in<float>({700}, some_numbers(700, 2))
      .check();
  for (const char* step : {"Add x0 x1",
                           "Sub x0 x1",
                           "Mul x0 x1",
                           "Div x0 x1",
                           "Min x0 x1",
                           "Max x0 x1",
                           "PRelu x0 x1",
                           "Abs x0",
                           "Ceil x0",
                           "Clip x0 -1 2.5",
                           "Elu x0 0.7",
                           "Erf x0",
                           "Exp x0",
                           "Floor x0",
                           "Gelu x0",
                           "GeluTanh x0",
                           "HardSigmoid x0 0.2 0.5",
                           "HardSwish x0",
                           "LeakyRelu x0 0.1",
                           "Log x0",
                           "Mish x0",
                           "Neg x0",
                           "Reciprocal x0",
                           "Relu x0",
                           "Round x0",
                           "Sigmoid x0",
                           "Softplus x0",
                           "Softsign x0",
                           "Sqrt x0",
                           "Swish x0 1.3",
                           "Tanh x0"}) {
    std::vector<float> x = many_numbers(), y = x;
    std::reverse(y.begin(), y.end());
    DeviceCase c("lmnative.ElementwiseChain", {{"steps", ops::Strings{step}}});
    c.in<float>({1037}, x);
    if (std::string_view(step).find("x1") != std::string_view::npos) c.in<float>({1037}, y);
    c.check();
  }
}

TEST(what_has_no_kernel_says_so) {
  DeviceCase wide("Add");
  wide.in<float>({1}, {1}, DType::kF64).in<float>({1}, {1}, DType::kF64);
  EXPECT_EQ(wide.refusal(), "Add 't': no kernel for f64 on a GPU");
  DeviceCase other("Asin");
  other.in<float>({1}, {1});
  EXPECT_EQ(other.refusal(), "Asin 't': no kernel on a GPU");
}

}  // namespace
