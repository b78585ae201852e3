// SPDX-License-Identifier: Apache-2.0
//
// Products, convolutions, recurrent networks and attention against their definitions, written out
// as loops in double. TensorCase sees to splits and to inference with less than everything known.
#include <cmath>
#include <random>

#include "tensor_case.h"

namespace {

using namespace lmn;
using cpu::BFloat;
using cpu::Half;
using cpu::numbers;
using cpu::TensorCase;
using ops::Attributes;
using ops::Floats;
using ops::Ints;
using ops::Strings;

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance) continue;
    EXPECT_NEAR(got[i], want[i], tolerance);
    return;
  }
}

std::vector<double> product(const std::vector<float>& a, const std::vector<float>& b, size_t rows,
                            size_t inner, size_t columns) {
  std::vector<double> out(rows * columns);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      for (size_t k = 0; k < inner; ++k)
        out[i * columns + j] += double(a[i * inner + k]) * double(b[k * columns + j]);
    }
  }
  return out;
}

// Sizes around those of tiles, and few rows, which go another way.
TEST(matmul_is_the_sum_of_products_for_all_sizes_of_tiles) {
  for (const auto& [rows, inner, columns] : {std::array<int64_t, 3>{1, 1, 1},
                                             {1, 97, 131},
                                             {3, 40, 1100},
                                             {5, 7, 3},
                                             {64, 96, 64},
                                             {67, 193, 70},
                                             {2, 0, 3},
                                             {0, 4, 3}}) {
    const auto a = numbers(rows * inner, 1), b = numbers(inner * columns, 2);
    TensorCase c("MatMul");
    c.in(Shape{rows, inner}, a).in(Shape{inner, columns}, b);
    ASSERT_OK(c.run());
    expect_near(c.values<float>(), product(a, b, size_t(rows), size_t(inner), size_t(columns)),
                1e-4);
  }
}

TEST(a_row_of_a_product_does_not_depend_on_the_rows_beside_it) {
  const auto a = numbers(70 * 200, 3), b = numbers(200 * 90, 4);
  TensorCase all("MatMul");
  all.in(Shape{70, 200}, a).in(Shape{200, 90}, b);
  ASSERT_OK(all.run());
  const auto want = all.values<float>();
  for (int64_t row : {0, 33, 69}) {
    TensorCase one("MatMul");
    one.in(Shape{1, 200}, std::vector<float>(a.begin() + row * 200, a.begin() + row * 200 + 200))
        .in(Shape{200, 90}, b);
    ASSERT_OK(one.run());
    EXPECT(std::equal(want.begin() + row * 90, want.begin() + row * 90 + 90,
                      one.values<float>().begin()));
  }
}

TEST(matmul_broadcasts_batches_and_takes_vectors) {
  const auto a = numbers(2 * 1 * 3 * 4, 5), b = numbers(5 * 4 * 2, 6);
  TensorCase c("MatMul");
  c.in(Shape{2, 1, 3, 4}, a).in(Shape{5, 4, 2}, b);
  ASSERT_OK(c.run());
  EXPECT(c.shape() == (Shape{2, 5, 3, 2}));
  const std::vector<float> a1(a.begin() + 12, a.end()), b3(b.begin() + 24, b.begin() + 32);
  const auto want = product(a1, b3, 3, 4, 2);
  const auto got = c.values<float>();
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[(5 + 3) * 6 + i], want[i], 1e-5);
  TensorCase dot("MatMul");
  dot.in(Shape{3}, std::vector<float>{1, 2, 3}).in(Shape{3}, std::vector<float>{4, 5, 6});
  ASSERT_OK(dot.run());
  EXPECT_EQ(dot.shape().rank, 0);
  EXPECT_EQ(dot.values<float>()[0], 32.0f);
}

TEST(products_of_other_types) {
  TensorCase wraps("MatMul");
  wraps.in(Shape{1, 2}, std::vector<int32_t>{INT32_MAX, -3})
      .in(Shape{2, 1}, std::vector<int32_t>{2, 5});
  ASSERT_OK(wraps.run());
  EXPECT_EQ(wraps.values<int32_t>()[0], -17);  // modulo 2^32
  TensorCase halves("MatMul");                 // 2049 is no half: sums are kept in float
  halves.in(Shape{1, 3}, std::vector<Half>{2048.0f, 1.0f, 1.0f})
      .in(Shape{3, 1}, std::vector<Half>{1.0f, 1.0f, 1.0f});
  ASSERT_OK(halves.run());
  EXPECT_EQ(float(halves.values<Half>()[0]), 2050.0f);
}

TEST(gemm_scales_transposes_and_adds) {
  const auto a = numbers(4 * 3, 7), b = numbers(5 * 4, 8);
  TensorCase c("Gemm",
               {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 2.0f}, {"beta", 0.5f}});
  c.in(Shape{4, 3}, a).in(Shape{5, 4}, b).in(Shape{3, 1}, std::vector<float>{10, 20, 30});
  ASSERT_OK(c.run());
  std::vector<double> want;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 4; ++k) sum += double(a[k * 3 + i]) * double(b[j * 4 + k]);
      want.push_back(2 * sum + 5.0 * double(i + 1));
    }
  }
  expect_near(c.values<float>(), want, 1e-5);
}

TEST(products_refuse_what_does_not_fit) {
  TensorCase sizes("MatMul");
  sizes.in(Shape{2, 3}, numbers(6, 1)).in(Shape{4, 2}, numbers(8, 1));
  EXPECT(sizes.refusal().find("[2, 3] times [4, 2]") != std::string::npos);
  TensorCase types("MatMul");
  types.in(Shape{1, 1}, numbers(1, 1)).in(Shape{1, 1}, std::vector<double>{1});
  EXPECT(types.refusal().find("f32 and f64") != std::string::npos);
  TensorCase c("Gemm");
  c.in(Shape{2, 3}, numbers(6, 1)).in(Shape{3, 2}, numbers(6, 1)).in(Shape{3}, numbers(3, 1));
  EXPECT(c.refusal().find("[3]") != std::string::npos);
}

struct Conv2 {
  int64_t batch, channels, height, width, outputs, kh, kw, groups;
  int64_t stride, dilation, pad_top, pad_left, pad_bottom, pad_right;
};

std::vector<double> convolve(const Conv2& s, const std::vector<float>& x,
                             const std::vector<float>& w, const std::vector<float>& bias,
                             int64_t oh, int64_t ow) {
  std::vector<double> out;
  const int64_t per = s.channels / s.groups;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t m = 0; m < s.outputs; ++m)
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j) {
          double sum = double(bias[size_t(m)]);
          for (int64_t c = 0; c < per; ++c)
            for (int64_t p = 0; p < s.kh; ++p)
              for (int64_t q = 0; q < s.kw; ++q) {
                const int64_t y = i * s.stride + p * s.dilation - s.pad_top;
                const int64_t z = j * s.stride + q * s.dilation - s.pad_left;
                if (y < 0 || y >= s.height || z < 0 || z >= s.width) continue;
                const int64_t channel = m / (s.outputs / s.groups) * per + c;
                sum +=
                    double(x[size_t(((n * s.channels + channel) * s.height + y) * s.width + z)]) *
                    double(w[size_t(((m * per + c) * s.kh + p) * s.kw + q)]);
              }
          out.push_back(sum);
        }
  return out;
}

TEST(convolutions_of_all_kinds_are_their_definition) {
  for (const Conv2& s : {Conv2{1, 3, 7, 9, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1},
                         {2, 4, 8, 8, 8, 1, 1, 1, 1, 1, 0, 0, 0, 0},
                         {1, 6, 9, 7, 6, 3, 2, 6, 2, 1, 1, 0, 1, 1},
                         {2, 6, 11, 10, 12, 3, 3, 2, 1, 2, 2, 1, 0, 3},
                         {1, 20, 13, 12, 70, 3, 3, 1, 2, 1, 1, 1, 1, 1},
                         {1, 2, 3, 5000, 1, 2, 5, 1, 1, 1, 0, 2, 0, 2}}) {
    const auto x = numbers(s.batch * s.channels * s.height * s.width, 1);
    const auto w = numbers(s.outputs * s.channels / s.groups * s.kh * s.kw, 2);
    const auto bias = numbers(s.outputs, 3);
    TensorCase c("Conv", {{"pads", Ints{s.pad_top, s.pad_left, s.pad_bottom, s.pad_right}},
                          {"strides", Ints{s.stride, s.stride}},
                          {"dilations", Ints{s.dilation, s.dilation}},
                          {"group", s.groups}});
    c.in(Shape{s.batch, s.channels, s.height, s.width}, x)
        .in(Shape{s.outputs, s.channels / s.groups, s.kh, s.kw}, w)
        .in(Shape{s.outputs}, bias);
    ASSERT_OK(c.run());
    expect_near(c.values<float>(), convolve(s, x, w, bias, c.shape()[2], c.shape()[3]), 2e-4);
  }
}

// A transposed convolution is the convolution's adjoint: <conv(x), y> = <x, transposed(y)>.
TEST(transposed_convolutions_are_adjoint_to_convolutions) {
  for (const Conv2& s : {Conv2{1, 3, 9, 11, 5, 3, 3, 1, 2, 1, 1, 1, 1, 1},
                         {2, 4, 8, 10, 6, 2, 3, 2, 3, 2, 0, 2, 2, 0},
                         {1, 66, 7, 7, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1}}) {
    const Attributes attributes{{"pads", Ints{s.pad_top, s.pad_left, s.pad_bottom, s.pad_right}},
                                {"strides", Ints{s.stride, s.stride}},
                                {"dilations", Ints{s.dilation, s.dilation}},
                                {"group", s.groups}};
    const auto x = numbers(s.batch * s.channels * s.height * s.width, 4);
    const auto w = numbers(s.outputs * s.channels / s.groups * s.kh * s.kw, 5);
    const Shape w_shape{s.outputs, s.channels / s.groups, s.kh, s.kw};
    TensorCase forward("Conv", attributes);
    forward.in(Shape{s.batch, s.channels, s.height, s.width}, x).in(w_shape, w);
    ASSERT_OK(forward.run());
    const auto image = forward.values<float>();
    const auto y = numbers(static_cast<int64_t>(image.size()), 6);
    Attributes back_attributes = attributes;
    back_attributes.set("output_shape", Ints{s.height, s.width});
    // Where output_shape is given, padding is computed: give output_padding instead.
    back_attributes.erase("output_shape");
    const auto padding = [&](int d, int64_t size, int64_t kernel, int64_t pads) {
      return size + pads - ((forward.shape()[d] - 1) * s.stride + (kernel - 1) * s.dilation + 1);
    };
    back_attributes.set("output_padding",
                        Ints{padding(2, s.height, s.kh, s.pad_top + s.pad_bottom),
                             padding(3, s.width, s.kw, s.pad_left + s.pad_right)});
    TensorCase back("ConvTranspose", back_attributes);
    back.in(forward.shape(), y).in(w_shape, w);
    ASSERT_OK(back.run());
    EXPECT(back.shape() == (Shape{s.batch, s.channels, s.height, s.width}));
    const auto spread = back.values<float>();
    double left = 0, right = 0;
    for (size_t i = 0; i < image.size(); ++i) left += double(image[i]) * double(y[i]);
    for (size_t i = 0; i < spread.size(); ++i) right += double(spread[i]) * double(x[i]);
    EXPECT_NEAR(left, right, 1e-3);
  }
}

TEST(convolutions_refuse_hostile_attributes) {
  const auto refusal = [](const Attributes& attributes, const char* op = "Conv") {
    TensorCase c(op, attributes);
    c.in(Shape{1, 2, 4, 4}, numbers(32, 1)).in(Shape{2, 2, 3, 3}, numbers(36, 1));
    return c.refusal();
  };
  EXPECT(refusal({}).empty());
  for (const char* key : {"strides", "dilations"}) {
    EXPECT(refusal({{key, Ints{0, 1}}}).find("[0] is 0") != std::string::npos);
    EXPECT(refusal({{key, Ints{INT64_MIN, 1}}}).find(key) != std::string::npos);
    EXPECT(refusal({{key, Ints{1}}}).find("1 numbers; 2") != std::string::npos);
  }
  EXPECT(refusal({{"pads", Ints{0, 0, 0, INT64_MAX}}}).find("pads[3]") != std::string::npos);
  EXPECT(refusal({{"pads", Ints{2147483647, 2147483647, 2147483647, 2147483647}}}).find("2^40") !=
         std::string::npos);
  EXPECT(refusal({{"dilations", Ints{2147483647, 2147483647}}}).find("larger") !=
         std::string::npos);
  EXPECT(refusal({{"group", int64_t{0}}}).find("group is 0") != std::string::npos);
  EXPECT(refusal({{"group", INT64_MAX}}).find("group") != std::string::npos);
  EXPECT(refusal({{"auto_pad", std::string("SOME")}}).find("'SOME'") != std::string::npos);
  EXPECT(refusal({{"kernel_shape", Ints{3, 2}}}).find("kernel_shape[1]") != std::string::npos);
  EXPECT(refusal({{"strides", Ints{2147483647, 2147483647}},
                  {"output_padding", Ints{2147483647, 2147483647}}},
                 "ConvTranspose")
             .find("2^40") != std::string::npos);
  EXPECT(refusal({{"nonsense", int64_t{1}}}).find("nonsense") != std::string::npos);
}

// One step of an LSTM by hand, then the same through the operator, forward and reverse.
TEST(lstm_is_its_equations_whatever_the_batch) {
  constexpr size_t kSteps = 3, kBatch = 18, kInputs = 5, kHidden = 4;
  const auto x = numbers(kSteps * kBatch * kInputs, 1), w = numbers(4 * kHidden * kInputs, 2);
  const auto u = numbers(4 * kHidden * kHidden, 3), bias = numbers(8 * kHidden, 4);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> want(kSteps * kBatch * kHidden);
  for (size_t n = 0; n < kBatch; ++n) {
    std::vector<double> h(kHidden), c(kHidden);
    for (size_t t = kSteps; t-- > 0;) {
      std::vector<double> gates(4 * kHidden);
      for (size_t g = 0; g < 4 * kHidden; ++g) {
        gates[g] = double(bias[g]) + double(bias[4 * kHidden + g]);
        for (size_t k = 0; k < kInputs; ++k)
          gates[g] += double(w[g * kInputs + k]) * double(x[(t * kBatch + n) * kInputs + k]);
        for (size_t k = 0; k < kHidden; ++k) gates[g] += double(u[g * kHidden + k]) * h[k];
      }
      for (size_t k = 0; k < kHidden; ++k) {
        const double forget = sigmoid(gates[2 * kHidden + k]), in = sigmoid(gates[k]);
        c[k] = forget * c[k] + in * std::tanh(gates[3 * kHidden + k]);
        h[k] = sigmoid(gates[kHidden + k]) * std::tanh(c[k]);
        want[(t * kBatch + n) * kHidden + k] = h[k];
      }
    }
  }
  TensorCase lstm("LSTM",
                  {{"direction", std::string("reverse")}, {"hidden_size", int64_t{kHidden}}}, 3);
  lstm.in(Shape{kSteps, kBatch, kInputs}, x)
      .in(Shape{1, 4 * kHidden, kInputs}, w)
      .in(Shape{1, 4 * kHidden, kHidden}, u)
      .in(Shape{1, 8 * kHidden}, bias);
  ASSERT_OK(lstm.run());
  expect_near(lstm.values<float>(), want, 1e-5);
  // The last state of a reversed sequence is that of its first step.
  const auto all = lstm.values<float>(0), last = lstm.values<float>(1);
  EXPECT(std::equal(last.begin(), last.end(), all.begin()));
  // A sequence alone gives the same bits.
  std::vector<float> alone;
  for (size_t t = 0; t < kSteps; ++t)
    alone.insert(alone.end(), x.begin() + long((t * kBatch + 7) * kInputs),
                 x.begin() + long((t * kBatch + 8) * kInputs));
  TensorCase one("LSTM", {{"direction", std::string("reverse")}}, 1);
  one.in(Shape{kSteps, 1, kInputs}, alone)
      .in(Shape{1, 4 * kHidden, kInputs}, w)
      .in(Shape{1, 4 * kHidden, kHidden}, u)
      .in(Shape{1, 8 * kHidden}, bias);
  ASSERT_OK(one.run());
  const auto got = one.values<float>();
  for (size_t t = 0; t < kSteps; ++t)
    for (size_t k = 0; k < kHidden; ++k)
      EXPECT_EQ(got[t * kHidden + k], all[(t * kBatch + 7) * kHidden + k]);
}

TEST(sequences_end_where_their_lengths_say) {
  const auto x = numbers(4 * 2 * 3, 1);
  TensorCase rnn("RNN", {{"direction", std::string("bidirectional")}}, 2);
  rnn.in(Shape{4, 2, 3}, x)
      .in(Shape{2, 2, 3}, numbers(12, 2))
      .in(Shape{2, 2, 2}, numbers(8, 3))
      .absent()
      .in(Shape{2}, std::vector<int32_t>{4, 2});
  ASSERT_OK(rnn.run());
  const auto y = rnn.values<float>(0), last = rnn.values<float>(1);
  const auto at = [&](size_t t, size_t d, size_t n, size_t k) {
    return y[((t * 2 + d) * 2 + n) * 2 + k];
  };
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(at(2, 0, 1, k), 0.0f);
    EXPECT_EQ(at(3, 1, 1, k), 0.0f);
    EXPECT_EQ(last[(0 * 2 + 1) * 2 + k], at(1, 0, 1, k));
    EXPECT_EQ(last[(1 * 2 + 1) * 2 + k], at(0, 1, 1, k));
  }
  TensorCase wrong("RNN");
  wrong.in(Shape{4, 1, 3}, numbers(12, 1))
      .in(Shape{1, 2, 3}, numbers(6, 2))
      .in(Shape{1, 2, 2}, numbers(4, 3))
      .absent()
      .in(Shape{1}, std::vector<int32_t>{5});
  EXPECT(std::string(wrong.run().message()).find("out of range") != std::string::npos);
  TensorCase named("GRU", {{"activations", Strings{"Sigmoid", "Nonsense"}}});
  named.in(Shape{1, 1, 1}, numbers(1, 1))
      .in(Shape{1, 3, 1}, numbers(3, 1))
      .in(Shape{1, 3, 1}, numbers(3, 1));
  EXPECT(named.refusal().find("nonsense") != std::string::npos);
}

// Queries of two heads on keys of one, causal behind a past, in double.
TEST(attention_is_its_definition) {
  constexpr size_t kRows = 19, kPast = 6, kDim = 5, kKeys = kPast + kRows;
  const auto q = numbers(2 * kRows * kDim, 1), k = numbers(kRows * kDim, 2),
             v = numbers(kRows * kDim, 3);
  const auto past_k = numbers(kPast * kDim, 4), past_v = numbers(kPast * kDim, 5);
  std::vector<double> want;
  for (size_t h = 0; h < 2; ++h)
    for (size_t i = 0; i < kRows; ++i) {
      std::vector<double> p;
      double sum = 0;
      for (size_t j = 0; j <= kPast + i; ++j) {
        double score = 0;
        for (size_t d = 0; d < kDim; ++d)
          score += double(q[(h * kRows + i) * kDim + d]) *
                   double(j < kPast ? past_k[j * kDim + d] : k[(j - kPast) * kDim + d]);
        p.push_back(std::exp(0.3 * score));
        sum += p.back();
      }
      for (size_t d = 0; d < kDim; ++d) {
        double out = 0;
        for (size_t j = 0; j < p.size(); ++j)
          out += p[j] / sum * double(j < kPast ? past_v[j * kDim + d] : v[(j - kPast) * kDim + d]);
        want.push_back(out);
      }
    }
  TensorCase c("Attention", {{"is_causal", int64_t{1}}, {"scale", 0.3f}}, 3);
  c.in(Shape{1, 2, kRows, kDim}, q)
      .in(Shape{1, 1, kRows, kDim}, k)
      .in(Shape{1, 1, kRows, kDim}, v)
      .absent()
      .in(Shape{1, 1, kPast, kDim}, past_k)
      .in(Shape{1, 1, kPast, kDim}, past_v);
  ASSERT_OK(c.run());
  expect_near(c.values<float>(0), want, 1e-5);
  EXPECT(c.shape(1) == (Shape{1, 1, kKeys, kDim}));
  const auto present = c.values<float>(1);
  EXPECT(std::equal(past_k.begin(), past_k.end(), present.begin()));
  EXPECT(std::equal(k.begin(), k.end(), present.begin() + kPast * kDim));
}

TEST(a_row_that_attends_to_nothing_is_zero) {
  TensorCase c("Attention");
  c.in(Shape{1, 1, 2, 2}, numbers(4, 1))
      .in(Shape{1, 1, 3, 2}, numbers(6, 2))
      .in(Shape{1, 1, 3, 2}, numbers(6, 3))
      .in(Shape{2, 3}, std::vector<uint8_t>{0, 0, 0, 0, 1, 0}, DType::kBool);
  ASSERT_OK(c.run());
  const auto y = c.values<float>(), v = numbers(6, 3);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], v[2]);
  EXPECT_EQ(y[3], v[3]);
}

TEST(einsum_contracts_traces_and_refuses) {
  TensorCase trace("Einsum", {{"equation", std::string("ii->")}});
  trace.in(Shape{3, 3}, std::vector<float>{1, 9, 9, 9, 2, 9, 9, 9, 3});
  ASSERT_OK(trace.run());
  EXPECT_EQ(trace.values<float>()[0], 6.0f);
  TensorCase wide("Einsum", {{"equation", std::string("...ij, ...jk -> ...ik")}});
  wide.in(Shape{2, 1, 3}, numbers(6, 1)).in(Shape{3, 2}, numbers(6, 2));
  ASSERT_OK(wide.run());
  EXPECT(wide.shape() == (Shape{2, 1, 2}));
  expect_near(wide.values<float>(), product(numbers(6, 1), numbers(6, 2), 2, 3, 2), 1e-6);
  for (const char* equation :
       {"ij,jk->iz", "ij,jk->ii", "i.j,jk", "i1,jk", "ij,jk,k", "ij", "ijk,jk"}) {
    TensorCase c("Einsum", {{"equation", std::string(equation)}});
    c.in(Shape{2, 3}, numbers(6, 1)).in(Shape{3, 2}, numbers(6, 2));
    EXPECT(!c.refusal().empty());
  }
}

TEST(matmul_nbits_expands_its_weights) {
  // Two columns of 16 weights of 4 bits, one block each: numbers 0..15 and all 15.
  std::vector<uint8_t> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(uint8_t((2 * i) | ((2 * i + 1) << 4)));
  for (int i = 0; i < 8; ++i) weights.push_back(0xFF);
  const auto a = numbers(3 * 16, 1);
  TensorCase c(
      "com.microsoft.MatMulNBits",
      {{"K", int64_t{16}}, {"N", int64_t{2}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}});
  c.in(Shape{3, 16}, a)
      .in(Shape{2, 1, 8}, weights, DType::kU8)
      .in(Shape{2}, std::vector<float>{0.5f, 2.0f})
      .in(Shape{2}, std::vector<uint8_t>{3, 8}, DType::kU8);
  ASSERT_OK(c.run());
  std::vector<double> want;
  for (size_t row = 0; row < 3; ++row) {
    double first = 0, second = 0;
    for (size_t k = 0; k < 16; ++k) {
      first += double(a[row * 16 + k]) * 0.5 * (double(k) - 3);
      second += double(a[row * 16 + k]) * 2.0 * 7;
    }
    want.push_back(first);
    want.push_back(second);
  }
  expect_near(c.values<float>(), want, 1e-4);
}

}  // namespace
