// SPDX-License-Identifier: Apache-2.0
//
// Operators of quantized.def against sums over plain integers and against real arithmetic. Every
// run() also compares splits of the work, bit for bit (tensor_case.h).
#include <cmath>

#include "tensor_case.h"

namespace {

using lmn::DType;
using lmn::Shape;
using lmn::cpu::Half;
using lmn::cpu::TensorCase;
using lmn::ops::Attributes;
using lmn::ops::Ints;

using Codes = std::vector<uint8_t>;

Codes codes(int64_t count, int seed) {
  Codes values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<uint8_t>((i * 7919 + static_cast<size_t>(seed) * 131) % 257 % 256);
  return values;
}
int value_of(uint8_t code, DType dtype) {
  return dtype == DType::kI8 ? static_cast<int8_t>(code) : code;
}
int round_to(double x, int zero, DType dtype) {
  const double code = std::nearbyint(x) + zero;
  return static_cast<int>(dtype == DType::kI8 ? std::clamp(code, -128.0, 127.0)
                                              : std::clamp(code, 0.0, 255.0));
}

}  // namespace

TEST(quantize_by_tensor_axis_and_block) {
  const std::vector<float> x = {-1.5f, 0.5f, 2.5f, 300, -300, 7, NAN, 1.5f, 0, 3.5f, -0.5f, 1e30f};
  const auto quantized = [&](const Shape& scale_shape, std::vector<float> scale, Codes zero,
                             Attributes attributes) {
    TensorCase c("QuantizeLinear", std::move(attributes));
    c.in<float>({2, 6}, x).in<float>(scale_shape, scale).in<uint8_t>(scale_shape, zero, DType::kU8);
    ASSERT_OK(c.run());
    EXPECT(c.dtype() == DType::kU8);
    return c.values<uint8_t>();
  };
  // Ties go to even before the zero point is added; a NaN becomes the zero point.
  EXPECT(quantized({}, {1}, {3}, {}) == Codes({1, 3, 5, 255, 0, 10, 3, 5, 3, 7, 3, 255}));
  EXPECT(quantized({2}, {1, 0.5f}, {0, 10}, {{"axis", int64_t{0}}}) ==
         Codes({0, 0, 2, 255, 0, 7, 10, 13, 10, 17, 9, 255}));
  EXPECT(quantized({6}, {1, 1, 1, 1, 1, 2}, {0, 1, 2, 3, 4, 5}, {{"axis", int64_t{-1}}}) ==
         Codes({0, 1, 4, 255, 0, 9, 0, 3, 2, 7, 4, 255}));
  EXPECT(quantized({2, 2}, {1, 2, 1, 0.5f}, {1, 2, 3, 4},
                   {{"axis", int64_t{1}}, {"block_size", int64_t{4}}}) ==
         Codes({0, 1, 3, 255, 0, 6, 3, 5, 3, 7, 3, 255}));
  EXPECT(quantized({1, 6}, {1, 1, 1, 1, 1, 2}, {0, 1, 2, 3, 4, 5},
                   {{"axis", int64_t{0}}, {"block_size", int64_t{2}}}) ==
         Codes({0, 1, 4, 255, 0, 9, 0, 3, 2, 7, 4, 255}));
}

TEST(quantize_to_narrow_types_and_back) {
  const std::vector<float> x = {-100, -3, 0.4f, 5, 100};
  TensorCase to_i4("QuantizeLinear", {{"output_dtype", int64_t{22}}});
  to_i4.in<float>({5}, x).in<float>({}, {1});
  ASSERT_OK(to_i4.run());
  EXPECT(to_i4.dtype() == DType::kI4);
  EXPECT(to_i4.values<int8_t>() == std::vector<int8_t>({-8, -3, 0, 5, 7}));
  TensorCase back("DequantizeLinear", {{"output_dtype", int64_t{10}}});
  back.in<int8_t>({5}, to_i4.values<int8_t>(), DType::kI4).in<float>({}, {0.5f});
  back.in<int8_t>({}, {1}, DType::kI4);
  ASSERT_OK(back.run());
  EXPECT(back.dtype() == DType::kF16);
  EXPECT_EQ(static_cast<float>(back.values<Half>()[0]), -4.5f);
  EXPECT_EQ(static_cast<float>(back.values<Half>()[4]), 3.0f);
  // i32 is exact beyond what float holds.
  TensorCase wide("DequantizeLinear");
  wide.in<int32_t>({2}, {16777217, -5}).in<float>({}, {2});
  ASSERT_OK(wide.run());
  EXPECT(wide.values<float>() == std::vector<float>({33554434.0f, -10.0f}));
  // Long enough for several chunks.
  TensorCase many("QuantizeLinear");
  many.in<float>({1700}, std::vector<float>(1700, 12.4f)).in<float>({}, {0.1f});
  ASSERT_OK(many.run());
  EXPECT(many.values<uint8_t>() == Codes(1700, 124));
}

TEST(dynamic_quantization) {
  TensorCase c("DynamicQuantizeLinear", {}, 3);
  c.in<float>({5}, {0, 2, -3, -2.5f, 1.34f});
  ASSERT_OK(c.run());
  EXPECT(c.values<uint8_t>() == Codes({153, 255, 0, 26, 221}));  // ONNX's example
  EXPECT_NEAR(c.values<float>(1)[0], 5.0 / 255, 1e-8);
  EXPECT_EQ(c.values<uint8_t>(2)[0], 153);
  TensorCase zeros("DynamicQuantizeLinear", {}, 3);
  zeros.in<float>({2}, {0, 0});
  ASSERT_OK(zeros.run());
  EXPECT(zeros.values<uint8_t>() == Codes({0, 0}));
  TensorCase empty("DynamicQuantizeLinear", {}, 3);
  empty.in<float>({0}, {});
  ASSERT_OK(empty.run());
}

TEST(integer_matrices_of_every_type_and_size) {
  for (const auto& [a_type, w_type] :
       {std::pair{DType::kU8, DType::kI8}, {DType::kI8, DType::kU8}, {DType::kI8, DType::kI8}}) {
    for (const Shape& sizes : {Shape{1, 9, 5}, Shape{37, 70, 35}, Shape{3, 0, 2}, Shape{2, 8, 1}}) {
      const int64_t m = sizes[0], k = sizes[1], n = sizes[2];
      const Codes a = codes(2 * m * k, 1), w = codes(k * n, 2), az = codes(m, 3), wz = codes(n, 4);
      TensorCase c("MatMulInteger");
      c.in<uint8_t>({2, m, k}, a, a_type).in<uint8_t>({k, n}, w, w_type);
      c.in<uint8_t>({m}, az, a_type).in<uint8_t>({n}, wz, w_type);
      ASSERT_OK(c.run());
      bool equal = true;
      for (int64_t i = 0; i < 2 * m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          int sum = 0;
          for (int64_t p = 0; p < k; ++p) {
            const auto at = [](int64_t index) { return static_cast<size_t>(index); };
            sum += (value_of(a[at(i * k + p)], a_type) - value_of(az[at(i % m)], a_type)) *
                   (value_of(w[at(p * n + j)], w_type) - value_of(wz[at(j)], w_type));
          }
          equal = equal && c.values<int32_t>()[static_cast<size_t>(i * n + j)] == sum;
        }
      }
      EXPECT(equal);
    }
  }
}

TEST(quantized_matrices_with_scales_by_row_and_column) {
  const int64_t m = 5, k = 33, n = 19;
  const Codes a = codes(m * k, 5), w = codes(k * n, 6);
  std::vector<float> a_scale, w_scale, bias;
  for (int i = 0; i < m; ++i) a_scale.push_back(0.01f * static_cast<float>(i + 1));
  for (int i = 0; i < n; ++i) {
    w_scale.push_back(0.02f + 0.001f * static_cast<float>(i));
    bias.push_back(static_cast<float>(i));
  }
  const auto sum_of = [&](int64_t i, int64_t j, int az, int wz) {
    int sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      sum += (a[static_cast<size_t>(i * k + p)] - az) *
             (static_cast<int8_t>(w[static_cast<size_t>(p * n + j)]) - wz);
    }
    return sum;
  };
  TensorCase c("QLinearMatMul");
  c.in<uint8_t>({m, k}, a, DType::kU8).in<float>({m}, a_scale);
  c.in<uint8_t>({m}, Codes(m, 9), DType::kU8);
  c.in<uint8_t>({k, n}, w, DType::kI8)
      .in<float>({n}, w_scale)
      .in<uint8_t>({n}, Codes(n, 2), DType::kI8);
  c.in<float>({}, {1.7f}).in<int8_t>({}, {-4});
  ASSERT_OK(c.run());
  EXPECT(c.dtype() == DType::kI8);
  TensorCase f("com.microsoft.MatMulIntegerToFloat");
  f.in<uint8_t>({m, k}, a, DType::kU8).in<uint8_t>({k, n}, w, DType::kI8);
  f.in<float>({}, {0.5f}).in<float>({n}, w_scale).absent().in<uint8_t>({}, {3}, DType::kI8);
  f.in<float>({n}, bias);
  ASSERT_OK(f.run());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<size_t>(i * n + j), row = static_cast<size_t>(i),
                 column = static_cast<size_t>(j);
      const double scaled =
          sum_of(i, j, 9, 2) * static_cast<double>(a_scale[row]) * w_scale[column] / 1.7f;
      EXPECT(std::abs(c.values<int8_t>()[at] - round_to(scaled, -4, DType::kI8)) <=
             (std::abs(std::abs(scaled - std::floor(scaled)) - 0.5) < 1e-4 ? 1 : 0));
      const double want = sum_of(i, j, 0, 3) * 0.5 * w_scale[column] + bias[column];
      EXPECT_NEAR(f.values<float>()[at], want, 1e-5 * (1 + std::abs(want)));
    }
  }
}

TEST(dynamically_quantized_matrices) {
  const int64_t m = 3, k = 20, n = 6;
  std::vector<float> a;
  for (int i = 0; i < m * k; ++i) a.push_back(static_cast<float>(i * 37 % 50 - 20) / 10.0f);
  const Codes w = codes(k * n, 8);
  TensorCase quantize("DynamicQuantizeLinear", {}, 3);
  quantize.in<float>({m, k}, a);
  ASSERT_OK(quantize.run());
  const Codes a_codes = quantize.values<uint8_t>();
  const int zero = quantize.values<uint8_t>(2)[0];
  const double scale = quantize.values<float>(1)[0];
  TensorCase c("com.microsoft.DynamicQuantizeMatMul");
  c.in<float>({m, k}, a).in<uint8_t>({k, n}, w, DType::kU8).in<float>({}, {0.25f});
  c.in<uint8_t>({}, {128}, DType::kU8);
  ASSERT_OK(c.run());
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 6; ++j) {
      int sum = 0;
      for (size_t p = 0; p < 20; ++p) sum += (a_codes[i * 20 + p] - zero) * (w[p * 6 + j] - 128);
      EXPECT_NEAR(c.values<float>()[i * 6 + j], sum * scale * 0.25, 1e-3);
    }
  }
}

TEST(quantized_gemm) {
  // [[1, 2], [3, 4]]^T times [[1, 0], [2, 1]]^T, and a bias by column.
  TensorCase c("com.microsoft.QGemm", {{"transA", int64_t{1}}, {"transB", int64_t{1}}});
  c.in<uint8_t>({2, 2}, {1, 2, 3, 4}, DType::kU8)
      .in<float>({}, {0.5f})
      .in<uint8_t>({}, {0}, DType::kU8);
  c.in<int8_t>({2, 2}, {1, 0, 2, 1}).in<float>({}, {2.0f}).in<int8_t>({}, {0});
  c.in<int32_t>({1, 2}, {10, -100}).in<float>({}, {1}).in<uint8_t>({}, {100}, DType::kU8);
  ASSERT_OK(c.run());
  EXPECT(c.values<uint8_t>() == Codes({111, 5, 112, 8}));
}

TEST(integer_convolutions) {
  const int64_t channels = 4, size = 7, outputs = 6;
  const Codes x = codes(2 * channels * size * size, 11), w = codes(outputs * 2 * 9, 12),
              wz = codes(outputs, 13);
  TensorCase c("ConvInteger", {{"group", int64_t{2}},
                               {"pads", Ints{1, 0, 2, 1}},
                               {"strides", Ints{2, 1}},
                               {"dilations", Ints{1, 2}}});
  c.in<uint8_t>({2, channels, size, size}, x, DType::kU8);
  c.in<uint8_t>({outputs, 2, 3, 3}, w, DType::kI8).in<uint8_t>({}, {77}, DType::kU8);
  c.in<uint8_t>({outputs}, wz, DType::kI8);
  ASSERT_OK(c.run());
  EXPECT(c.shape() == Shape({2, outputs, 4, 4}));
  bool equal = true;
  for (int64_t i = 0; i < 2 * outputs * 16; ++i) {
    const int64_t ox = i % 4, oy = i / 4 % 4, o = i / 16 % outputs, image = i / 16 / outputs;
    int sum = 0;
    for (int64_t ch = 0; ch < 2; ++ch) {
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t iy = oy * 2 - 1 + tap / 3, ix = ox + tap % 3 * 2;
        if (iy < 0 || iy >= size || ix < 0 || ix >= size) continue;
        const int64_t in = ((image * channels + o / 3 * 2 + ch) * size + iy) * size + ix;
        sum += (x[static_cast<size_t>(in)] - 77) *
               (value_of(w[static_cast<size_t>((o * 2 + ch) * 9 + tap)], DType::kI8) -
                value_of(wz[static_cast<size_t>(o)], DType::kI8));
      }
    }
    equal = equal && c.values<int32_t>()[static_cast<size_t>(i)] == sum;
  }
  EXPECT(equal);
}

TEST(maps_of_codes) {
  const Codes a = {0, 100, 200, 255}, b = {10, 20, 30, 40};
  const auto binary = [&](const char* op) {
    TensorCase c(std::string("com.microsoft.") + op);
    c.in<uint8_t>({2, 2}, a, DType::kU8).in<float>({}, {0.5f}).in<uint8_t>({}, {100}, DType::kU8);
    c.in<uint8_t>({4, 1, 1}, b, DType::kU8).in<float>({}, {0.25f}).absent();
    c.in<float>({}, {0.75f}).in<uint8_t>({}, {7}, DType::kU8);
    ASSERT_OK(c.run());
    EXPECT(c.shape() == Shape({4, 2, 2}));
    return c.values<uint8_t>();
  };
  const Codes sums = binary("QLinearAdd"), products = binary("QLinearMul");
  for (size_t i = 0; i < 16; ++i) {
    const double x = (a[i % 4] - 100) * 0.5, y = b[i / 4] * 0.25;
    EXPECT_EQ(int{sums[i]}, round_to((x + y) / 0.75, 7, DType::kU8));
    EXPECT_EQ(int{products[i]}, round_to(x * y / 0.75, 7, DType::kU8));
  }
  TensorCase sigmoid("com.microsoft.QLinearSigmoid");
  sigmoid.in<int8_t>({3}, {-128, 0, 127}).in<float>({}, {0.05f}).absent();
  sigmoid.in<float>({}, {1 / 256.0f}).in<int8_t>({}, {-128});
  ASSERT_OK(sigmoid.run());
  EXPECT(sigmoid.values<int8_t>() == std::vector<int8_t>({-128, 0, 127}));
  TensorCase leaky("com.microsoft.QLinearLeakyRelu", {{"alpha", 0.5f}});
  leaky.in<int8_t>({2}, {-10, 10}).in<float>({}, {1}).absent().in<float>({}, {1}).absent();
  ASSERT_OK(leaky.run());
  EXPECT(leaky.values<int8_t>() == std::vector<int8_t>({-5, 10}));
}

TEST(concatenation_and_pools_of_codes) {
  TensorCase c("com.microsoft.QLinearConcat", {{"axis", int64_t{-1}}});
  c.in<float>({}, {1}).in<uint8_t>({}, {10}, DType::kU8);
  c.in<uint8_t>({2, 1}, {1, 2}, DType::kU8).in<float>({}, {2}).in<uint8_t>({}, {0}, DType::kU8);
  c.in<uint8_t>({2, 2}, {8, 9, 10, 11}, DType::kU8)
      .in<float>({}, {1})
      .in<uint8_t>({}, {8}, DType::kU8);
  ASSERT_OK(c.run());
  EXPECT(c.values<uint8_t>() == Codes({12, 10, 11, 14, 12, 13}));
  for (const int64_t last : {0, 1}) {
    TensorCase global("com.microsoft.QLinearGlobalAveragePool", {{"channels_last", last}});
    global.in<uint8_t>(last != 0 ? Shape{1, 3, 2} : Shape{1, 2, 3}, {1, 2, 3, 4, 5, 6}, DType::kU8);
    global.in<float>({}, {1}).absent().in<float>({}, {0.5f}).absent();
    ASSERT_OK(global.run());
    EXPECT(global.values<uint8_t>() == (last != 0 ? Codes({6, 8}) : Codes({4, 10})));
  }
  for (const int64_t counts : {0, 1}) {
    TensorCase pool("com.microsoft.QLinearAveragePool", {{"kernel_shape", Ints{2}},
                                                         {"pads", Ints{1, 1}},
                                                         {"strides", Ints{2}},
                                                         {"count_include_pad", counts}});
    pool.in<uint8_t>({1, 1, 4}, {14, 16, 20, 30}, DType::kU8).in<float>({}, {1});
    pool.in<uint8_t>({}, {10}, DType::kU8).in<float>({}, {1}).in<uint8_t>({}, {0}, DType::kU8);
    ASSERT_OK(pool.run());
    EXPECT(pool.values<uint8_t>() == (counts != 0 ? Codes({2, 8, 10}) : Codes({4, 8, 20})));
  }
}

TEST(quantized_operators_refuse_what_does_not_fit) {
  TensorCase block("QuantizeLinear", {{"block_size", INT64_MAX}});
  block.in<float>({2, 6}, std::vector<float>(12)).in<float>({2, 6}, std::vector<float>(12, 1));
  EXPECT(says(block, "need [2, 1]"));
  TensorCase negative("DequantizeLinear", {{"block_size", INT64_MIN}});
  negative.in<int8_t>({2, 2}, {1, 2, 3, 4}).in<float>({2}, {1, 1});
  EXPECT(says(negative, "0 or more"));
  TensorCase axis("DequantizeLinear", {{"axis", INT64_MAX}});
  axis.in<int8_t>({2, 2}, {1, 2, 3, 4}).in<float>({2}, {1, 1});
  EXPECT(says(axis, "axis 9223372036854775807"));
  TensorCase scale("DequantizeLinear", {{"axis", int64_t{1}}});
  scale.in<int8_t>({2, 2}, {1, 2, 3, 4}).in<float>({3}, {1, 1, 1});
  EXPECT(says(scale, "has 2 elements"));
  TensorCase types("QuantizeLinear", {{"output_dtype", int64_t{3}}});
  types.in<float>({1}, {1}).in<float>({}, {1}).in<uint8_t>({}, {1}, DType::kU8);
  EXPECT(says(types, "i8 and the zero point is u8"));
  TensorCase strings("QuantizeLinear", {{"output_dtype", int64_t{8}}});
  strings.in<float>({1}, {1}).in<float>({}, {1});
  EXPECT(says(strings, "no quantisation to string"));
  TensorCase inner("MatMulInteger");
  inner.in<int8_t>({1, 2}, {1, 2}).in<int8_t>({3, 1}, {1, 2, 3});
  EXPECT(says(inner, "inner sizes differ"));
  TensorCase zeros("MatMulInteger");
  zeros.in<int8_t>({1, 2}, {1, 2}).in<int8_t>({2, 1}, {1, 2}).absent().in<int8_t>({2}, {1, 2});
  EXPECT(says(zeros, "one number, or 1"));
  TensorCase groups("ConvInteger", {{"group", INT64_MIN}});
  groups.in<int8_t>({1, 1, 3}, {1, 2, 3}).in<int8_t>({1, 1, 1}, {1});
  EXPECT(says(groups, "group"));
  TensorCase concat("com.microsoft.QLinearConcat", {{"axis", int64_t{0}}});
  concat.in<float>({}, {1}).in<int8_t>({}, {0}).in<int8_t>({1}, {1}).in<float>({}, {1});
  EXPECT(says(concat, "3 for each tensor"));
}
