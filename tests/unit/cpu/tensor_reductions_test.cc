// SPDX-License-Identifier: Apache-2.0
//
// Operators of reductions.def, where ONNX's own node tests do not look: every arrangement of
// reduced axes against a plain loop in double, element types, empty tensors, extremes, and hostile
// input.
#include <cmath>
#include <limits>

#include "tensor_case.h"

namespace lmn::cpu {
namespace {

using I64 = std::vector<int64_t>;
using F32 = std::vector<float>;

// Numbers between -1 and 1 without a pattern.
F32 numbers(int64_t count) {
  F32 values(static_cast<size_t>(count));
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

// f(index of the group, element) for every element of a tensor and the group that it is reduced
// into.
template <typename F>
void for_groups(const Shape& x, uint32_t bits, F&& f) {
  for (int64_t at = 0; at < x.elements(); ++at) {
    int64_t left = at, group = 0, stride = 1;
    for (int i = x.rank - 1; i >= 0; --i) {
      if ((bits >> i & 1u) == 0) {
        group += left % x[i] * stride;
        stride *= x[i];
      }
      left /= x[i];
    }
    f(static_cast<size_t>(group), static_cast<size_t>(at));
  }
}
I64 axes_of(uint32_t bits, int rank) {
  I64 axes;
  for (int i = 0; i < rank; ++i) {
    if ((bits >> i & 1u) != 0) axes.push_back(i - (i % 2 == 0 ? 0 : rank));  // some from the end
  }
  return axes;
}
int64_t count_groups(const Shape& x, uint32_t bits) {
  int64_t count = 1;
  for (int i = 0; i < x.rank; ++i) count *= (bits >> i & 1u) == 0 ? x[i] : 1;
  return count;
}

TensorCase reduction(const char* op, const Shape& x, const F32& values, const I64& axes) {
  TensorCase test(op, {{"keepdims", int64_t{0}}});
  test.in(x, values).in({static_cast<int64_t>(axes.size())}, axes);
  return test;
}

}  // namespace

TEST(tensor_reduce_every_arrangement_of_axes) {
  for (const Shape& x : {Shape{3, 5, 2, 7}, Shape{2, 1, 3, 600}, Shape{700, 1, 2, 1}}) {
    const F32 values = numbers(x.elements());
    for (uint32_t bits = 1; bits < 16; ++bits) {
      std::vector<double> sum(static_cast<size_t>(count_groups(x, bits))), squares(sum),
          most(sum.size(), -2), powers(sum.size());
      double terms = 0;
      for_groups(x, bits, [&](size_t group, size_t at) {
        const double v = values[at];
        sum[group] += v;
        squares[group] += v * v;
        powers[group] += std::exp(v);
        most[group] = std::max(most[group], v);
        terms += group == 0;
      });
      const I64 axes = axes_of(bits, x.rank);
      TensorCase mean = reduction("ReduceMean", x, values, axes);
      TensorCase length = reduction("ReduceL2", x, values, axes);
      TensorCase largest = reduction("ReduceMax", x, values, axes);
      TensorCase log = reduction("ReduceLogSumExp", x, values, axes);
      ASSERT_OK(mean.run());
      ASSERT_OK(length.run());
      ASSERT_OK(largest.run());
      ASSERT_OK(log.run());
      const F32 means = mean.values<float>(), lengths = length.values<float>(),
                mosts = largest.values<float>(), logs = log.values<float>();
      ASSERT(means.size() == sum.size());
      for (size_t g = 0; g < sum.size(); ++g) {
        EXPECT_NEAR(means[g], sum[g] / terms, 1e-6);
        EXPECT_NEAR(lengths[g], std::sqrt(squares[g]), 1e-6 * (1 + std::sqrt(squares[g])));
        EXPECT_EQ(static_cast<double>(mosts[g]), most[g]);
        EXPECT_NEAR(logs[g], std::log(powers[g]), 3e-6);
      }
    }
  }
}

TEST(tensor_reduce_types_and_extremes) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  using I32 = std::vector<int32_t>;
  const auto of_i32 = [](const char* op, const I32& values) {
    TensorCase test(op);
    ASSERT_OK(test.in({static_cast<int64_t>(values.size())}, values).run());
    return test.values<int32_t>()[0];
  };
  EXPECT_EQ(of_i32("ReduceMean", {least, least, least}), least);
  EXPECT_EQ(of_i32("ReduceMean", {-3, -4}), -3);          // cut, as a conversion from float is
  EXPECT_EQ(of_i32("ReduceL1", {least, -1}), least + 1);  // modulo 2^32
  EXPECT_EQ(of_i32("ReduceProd", {65536, 65536, 3}), 0);
  EXPECT_EQ(of_i32("ReduceMin", {}), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(of_i32("ReduceMean", {}), 0);
  using Bools = std::vector<uint8_t>;
  TensorCase all("ReduceMin"), any("ReduceMax"), none("ReduceMin");
  ASSERT_OK(all.in({3}, Bools{1, 0, 1}).run());
  ASSERT_OK(any.in({3}, Bools{0, 0, 1}).run());
  ASSERT_OK(none.in({0}, Bools{}).run());
  EXPECT(all.values<uint8_t>() == Bools{0} && any.values<uint8_t>() == Bools{1});
  EXPECT(none.values<uint8_t>() == Bools{1});
  const auto of_f32 = [](const char* op, const F32& values) {
    TensorCase test(op);
    ASSERT_OK(test.in({static_cast<int64_t>(values.size())}, values).run());
    return test.values<float>()[0];
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(of_f32("ReduceMax", {}), -kInfinity);
  EXPECT_EQ(of_f32("ReduceSum", {}), 0.0f);
  EXPECT(std::isnan(of_f32("ReduceMean", {})));
  EXPECT_EQ(of_f32("ReduceLogSumExp", {}), -kInfinity);
  EXPECT_EQ(of_f32("ReduceLogSumExp", {-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(of_f32("ReduceLogSumExp", {kInfinity, 1}), kInfinity);
  EXPECT_EQ(of_f32("ReduceLogSumExp", {1000, -1000}), 1000.0f);
  for (size_t where : {0u, 7u, 19u, 39u}) {  // wherever a NaN is, in a vector or behind it
    F32 values = numbers(40);
    values[where] = nan;
    EXPECT(std::isnan(of_f32("ReduceMax", values)) && std::isnan(of_f32("ReduceMin", values)));
  }
  // Sums of 16-bit floats are made in float: 0.1 added 4096 times.
  TensorCase half("ReduceSum");
  ASSERT_OK(half.in({4096}, std::vector<Half>(4096, Half(0.1f))).run());
  EXPECT_NEAR(static_cast<float>(half.values<Half>()[0]), 4096 * static_cast<float>(Half(0.1f)),
              0.2);
  TensorCase noop("ReduceSumSquare", {{"noop_with_empty_axes", int64_t{1}}});
  ASSERT_OK(noop.in({2}, F32{3, -4}).in({0}, I64{}).run());
  EXPECT(noop.values<float>() == (F32{9, 16}));
  EXPECT(says(TensorCase("ReduceSum").in({2}, F32(2)).in({1}, I64{7}).refusal(), "axis 7"));
  EXPECT(says(TensorCase("ReduceSum").in({2}, F32(2)).in({2}, I64{0, -1}).refusal(), "twice"));
  TensorCase scalar("ReduceSum");
  ASSERT_OK(scalar.in({}, F32{5}).run());
  EXPECT(scalar.values<float>() == F32{5});
}

TEST(tensor_softmax_along_every_axis) {
  const Shape x{3, 530, 4};
  const F32 values = numbers(x.elements());
  for (int axis = 0; axis < 3; ++axis) {
    TensorCase soft("Softmax", {{"axis", int64_t{axis}}}),
        log("LogSoftmax", {{"axis", int64_t{axis}}});
    ASSERT_OK(soft.in(x, values).run());
    ASSERT_OK(log.in(x, values).run());
    const uint32_t bits = 1u << axis;
    std::vector<double> sums(static_cast<size_t>(count_groups(x, bits)));
    for_groups(x, bits,
               [&](size_t group, size_t at) { sums[group] += std::exp(double(values[at])); });
    const F32 soft_values = soft.values<float>(), log_values = log.values<float>();
    for_groups(x, bits, [&](size_t group, size_t at) {
      EXPECT_NEAR(soft_values[at], std::exp(double(values[at])) / sums[group], 2e-7);
      EXPECT_NEAR(log_values[at], double(values[at]) - std::log(sums[group]), 2e-6);
    });
    // The same of 16 bits, through chunks.
    std::vector<Half> halves(values.begin(), values.end());
    TensorCase half("Softmax", {{"axis", int64_t{axis}}});
    ASSERT_OK(half.in(x, halves).run());
    const std::vector<Half> half_values = half.values<Half>();
    for (size_t i = 0; i < half_values.size(); ++i)
      EXPECT_NEAR(static_cast<float>(half_values[i]), soft_values[i], 1e-3 * soft_values[i] + 1e-7);
  }
  TensorCase large("Softmax");  // no overflow; a masked element has no share
  ASSERT_OK(large.in({1, 3}, F32{1000, 1000, -kInfinity}).run());
  EXPECT(large.values<float>() == (F32{0.5f, 0.5f, 0}));
  TensorCase empty("Softmax");
  ASSERT_OK(empty.in({2, 0}, F32{}).run());
  EXPECT(says(TensorCase("Softmax").in({}, F32(1)).refusal(), "axis -1"));
  TensorCase unit("LpNormalization", {{"axis", int64_t{0}}, {"p", int64_t{1}}});
  ASSERT_OK(unit.in({2, 2}, F32{1, 0, -3, 0}).run());
  EXPECT(unit.values<float>() == (F32{0.25f, 0, -0.75f, 0}));
}

TEST(tensor_row_norms_against_double) {
  const int64_t rows = 5, columns = 1030;
  const F32 x = numbers(rows * columns), scale = numbers(columns), bias = numbers(columns + 1);
  const F32 shift(bias.begin() + 1, bias.end());
  TensorCase layer("LayerNormalization", {{"epsilon", 1e-3f}}, 3);
  ASSERT_OK(layer.in({rows, columns}, x).in({columns}, scale).in({1, columns}, shift).run());
  TensorCase rms("RMSNormalization", {{"epsilon", 1e-3f}});
  ASSERT_OK(rms.in({rows, columns}, x).in({columns}, scale).run());
  TensorCase plain("LayerNormalization", {{"epsilon", 1e-3f}}, 1);  // one scale, no bias
  ASSERT_OK(plain.in({rows, columns}, x).in({1}, F32{2}).run());
  const F32 y = layer.values<float>(), z = rms.values<float>(), w = plain.values<float>();
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, squares = 0, variance = 0;
    const float* row = x.data() + r * columns;
    for (int64_t i = 0; i < columns; ++i) {
      mean += row[i] / double(columns);
      squares += double(row[i]) * row[i] / double(columns);
    }
    for (int64_t i = 0; i < columns; ++i)
      variance += (row[i] - mean) * (row[i] - mean) / double(columns);
    EXPECT_NEAR(layer.values<float>(1)[static_cast<size_t>(r)], mean, 1e-7);
    EXPECT_NEAR(layer.values<float>(2)[static_cast<size_t>(r)], 1 / std::sqrt(variance + 1e-3),
                1e-6);
    for (int64_t i = 0; i < columns; ++i) {
      const auto at = static_cast<size_t>(r * columns + i), c = static_cast<size_t>(i);
      const double normal = (row[i] - mean) / std::sqrt(variance + 1e-3);
      EXPECT_NEAR(y[at], normal * scale[c] + shift[c], 1e-6);
      EXPECT_NEAR(w[at], normal * 2, 2e-6);
      EXPECT_NEAR(z[at], row[i] / std::sqrt(squares + 1e-3) * scale[c], 1e-6);
    }
  }
  // A scale of another type: the output has it. A scale of each row.
  TensorCase mixed("RMSNormalization");
  ASSERT_OK(mixed.in({2, 2}, std::vector<Half>{3, 3, 5, -5}).in({2, 1}, F32{1, 2}).run());
  EXPECT(mixed.dtype() == DType::kF32);
  EXPECT_NEAR(mixed.values<float>()[3], -2, 1e-5);
  EXPECT(says(TensorCase("LayerNormalization").in({2, 3}, F32(6)).in({2}, F32(2)).refusal(),
              "does not broadcast"));
  EXPECT(says(TensorCase("LayerNormalization", {{"stash_type", int64_t{7}}})
                  .in({1}, F32(1))
                  .in({1}, F32(1))
                  .refusal(),
              "stash_type"));
}

TEST(tensor_channel_norms) {
  // Two samples of four channels in two groups.
  const F32 x = numbers(2 * 4 * 6), scale = numbers(4), bias = numbers(4);
  TensorCase group("GroupNormalization", {{"num_groups", int64_t{2}}});
  ASSERT_OK(group.in({2, 4, 3, 2}, x).in({4}, scale).in({4}, bias).run());
  TensorCase batch("BatchNormalization", {{"training_mode", int64_t{1}}, {"momentum", 0.5f}}, 3);
  batch.in({2, 4, 3, 2}, x).in({4}, scale).in({4}, bias).in({4}, F32{1, 2, 3, 4}).in({4}, F32(4));
  ASSERT_OK(batch.run());
  const F32 y = group.values<float>(), z = batch.values<float>();
  for (size_t g = 0; g < 4; ++g) {  // [sample][group] of 12 elements
    double mean = 0, variance = 0;
    for (size_t i = 0; i < 12; ++i) mean += x[g * 12 + i] / 12.0;
    for (size_t i = 0; i < 12; ++i) variance += std::pow(x[g * 12 + i] - mean, 2) / 12.0;
    for (size_t i = 0; i < 12; ++i) {
      const size_t c = g % 2 * 2 + i / 6;
      EXPECT_NEAR(y[g * 12 + i],
                  (x[g * 12 + i] - mean) / std::sqrt(variance + 1e-5) * scale[c] + bias[c], 2e-6);
    }
  }
  for (size_t c = 0; c < 4; ++c) {
    double mean = 0, variance = 0;
    for (size_t n = 0; n < 2; ++n) {
      for (size_t i = 0; i < 6; ++i) mean += x[n * 24 + c * 6 + i] / 12.0;
    }
    for (size_t n = 0; n < 2; ++n) {
      for (size_t i = 0; i < 6; ++i) variance += std::pow(x[n * 24 + c * 6 + i] - mean, 2) / 12.0;
    }
    EXPECT_NEAR(batch.values<float>(1)[c], 0.5 * double(c + 1) + 0.5 * mean, 1e-6);
    EXPECT_NEAR(batch.values<float>(2)[c], 0.5 * variance, 1e-6);
    EXPECT_NEAR(z[c * 6], (x[c * 6] - mean) / std::sqrt(variance + 1e-5) * scale[c] + bias[c],
                2e-6);
  }
  // Inference on places, on none, and on a vector, which is one channel.
  for (const Shape& shape : {Shape{2, 2, 3}, Shape{6, 2}, Shape{12}}) {
    const int64_t channels = shape.rank == 1 ? 1 : 2;
    const F32 one(static_cast<size_t>(channels), 1.0f);
    F32 means(one);
    means.back() = 3;
    TensorCase test("BatchNormalization", {{"epsilon", 0.0f}});
    test.in(shape, numbers(12)).in({channels}, one).in({channels}, F32(one.size()));
    ASSERT_OK(test.in({channels}, means).in({channels}, F32(one.size(), 4.0f)).run());
    for (size_t i = 0; i < 12; ++i) {
      const size_t c = shape.rank == 3 ? i / 3 % 2 : shape.rank == 2 ? i % 2 : 0;
      EXPECT_NEAR(test.values<float>()[i], (numbers(12)[i] - means[c]) / 2, 1e-6);
    }
  }
  EXPECT(says(TensorCase("GroupNormalization", {{"num_groups", int64_t{3}}})
                  .in({1, 4}, F32(4))
                  .in({4}, F32(4))
                  .in({4}, F32(4))
                  .refusal(),
              "4 channels in 3 groups"));
  EXPECT(says(TensorCase("InstanceNormalization")
                  .in({1, 4}, F32(4))
                  .in({3}, F32(3))
                  .in({4}, F32(4))
                  .refusal(),
              "each of 4 channels"));
}

TEST(tensor_losses_refuse_classes_out_of_range) {
  for (const char* op : {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}) {
    for (const int64_t target : {int64_t{2}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
      TensorCase test(op);
      const Status status = test.in({1, 2}, F32(2)).in({1}, I64{target}).run();
      EXPECT(says(std::string(status.message()), "out of range"));
      TensorCase ignored(op, {{"ignore_index", target}, {"reduction", std::string("sum")}});
      ASSERT_OK(ignored.in({2, 2}, F32{-1, -1, -1, -1}).in({2}, I64{target, 1}).run());
      EXPECT_NEAR(ignored.values<float>()[0], op[0] == 'N' ? 1.0 : std::log(2.0), 1e-6);
    }
    EXPECT(says(TensorCase(op).in({2, 2}, F32(4)).in({3}, I64(3)).refusal(), "[N, C"));
  }
}

}  // namespace lmn::cpu
