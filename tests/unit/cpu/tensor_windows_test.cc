// SPDX-License-Identifier: Apache-2.0
//
// Poolings and resampling against their definitions. TensorCase sees to splits and to inference
// with less than everything known.
#include <cmath>
#include <limits>
#include <random>

#include "tensor_case.h"

namespace {

using namespace lmn;
using cpu::BFloat;
using cpu::Half;
using cpu::kInfinity;
using cpu::numbers;
using cpu::TensorCase;
using ops::Attributes;
using ops::Ints;

template <typename T>
std::vector<T> counting(int64_t count) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(T(static_cast<float>(i)));
  return out;
}

TEST(poolings_are_their_definition) {
  constexpr int64_t kHeight = 9, kWidth = 11, kKernel = 3, kStride = 2, kPad = 1;
  for (const int64_t dilation : {1, 2}) {
    for (const int64_t ceil : {0, 1}) {
      const Attributes attributes{{"kernel_shape", Ints{kKernel, kKernel}},
                                  {"strides", Ints{kStride, kStride}},
                                  {"pads", Ints{kPad, kPad, kPad, 0}},
                                  {"dilations", Ints{dilation, dilation}},
                                  {"ceil_mode", ceil}};
      const auto x = numbers(2 * kHeight * kWidth, 1);
      TensorCase most("MaxPool", attributes, 2), mean("AveragePool", attributes);
      TensorCase norm("LpPool", attributes);
      for (TensorCase* c : {&most, &mean, &norm}) {
        c->in(Shape{1, 2, kHeight, kWidth}, x);
        ASSERT_OK(c->run());
        EXPECT(c->shape() == most.shape());
      }
      const int64_t rows = most.shape()[2], columns = most.shape()[3];
      size_t at = 0;
      for (int64_t c = 0; c < 2; ++c)
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j, ++at) {
            double sum = 0, squares = 0, best = -10;
            int64_t count = 0, where = -1;
            for (int64_t p = 0; p < kKernel; ++p)
              for (int64_t q = 0; q < kKernel; ++q) {
                const int64_t y = i * kStride - kPad + p * dilation;
                const int64_t z = j * kStride - kPad + q * dilation;
                if (y < 0 || y >= kHeight || z < 0 || z >= kWidth) continue;
                const int64_t index = (c * kHeight + y) * kWidth + z;
                const double value = static_cast<double>(x[static_cast<size_t>(index)]);
                sum += value;
                squares += value * value;
                ++count;
                if (value > best) {
                  best = value;
                  where = index;
                }
              }
            EXPECT_EQ(static_cast<double>(most.values<float>()[at]), best);
            EXPECT_EQ(most.values<int64_t>(1)[at], where);
            EXPECT_NEAR(mean.values<float>()[at], sum / static_cast<double>(count), 1e-6);
            EXPECT_NEAR(norm.values<float>()[at], std::sqrt(squares), 1e-6);
          }
    }
  }
}

TEST(poolings_of_other_types_and_of_nothing) {
  TensorCase bytes("MaxPool", {{"kernel_shape", Ints{2}}});
  bytes.in(Shape{1, 1, 3}, std::vector<int8_t>{-128, -128, 5});
  ASSERT_OK(bytes.run());
  EXPECT_EQ(int(bytes.values<int8_t>()[0]), -128);
  EXPECT_EQ(int(bytes.values<int8_t>()[1]), 5);
  TensorCase halves("AveragePool", {{"kernel_shape", Ints{4}}});
  halves.in(Shape{1, 1, 4}, std::vector<Half>{60000.0f, 60000.0f, 60000.0f, 60000.0f});
  ASSERT_OK(halves.run());
  EXPECT_EQ(float(halves.values<Half>()[0]), 60000.0f);  // the sum is no half
  TensorCase nan("MaxPool", {{"kernel_shape", Ints{3}}}, 2);
  nan.in(Shape{1, 1, 3}, std::vector<float>{1, NAN, 2});
  ASSERT_OK(nan.run());
  EXPECT(std::isnan(nan.values<float>()[0]));
  EXPECT_EQ(nan.values<int64_t>(1)[0], 1);
  TensorCase nothing("MaxPool", {{"kernel_shape", Ints{2, 2}}});
  nothing.in(Shape{0, 3, 4, 4}, std::vector<float>{});
  ASSERT_OK(nothing.run());
  EXPECT(nothing.shape() == (Shape{0, 3, 3, 3}));
}

TEST(poolings_refuse_hostile_attributes) {
  const auto refusal = [](const Attributes& attributes) {
    TensorCase c("MaxPool", attributes);
    c.in(Shape{1, 1, 4, 4}, numbers(16, 1));
    return c.refusal();
  };
  EXPECT(refusal({}).find("kernel_shape is missing") != std::string::npos);
  EXPECT(refusal({{"kernel_shape", Ints{2}}}).find("1 sizes") != std::string::npos);
  EXPECT(refusal({{"kernel_shape", Ints{2, 0}}}).find("size of 0") != std::string::npos);
  EXPECT(refusal({{"kernel_shape", Ints{INT64_MIN, 2}}}).find("kernel_shape") != std::string::npos);
  EXPECT(refusal({{"kernel_shape", Ints{5, 2}}}).find("window of 5") != std::string::npos);
  EXPECT(refusal({{"kernel_shape", Ints{2, 2}}, {"strides", Ints{-1, 1}}}).find("strides[0]") !=
         std::string::npos);
}

TEST(unpooling_puts_back_and_refuses_wild_indices) {
  const auto unpool = [](const std::vector<int64_t>& indices) {
    TensorCase c("MaxUnpool", {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    c.in(Shape{1, 1, 1, 2}, std::vector<float>{5, 7}).in(Shape{1, 1, 1, 2}, indices);
    const Status status = c.run();
    return status.ok() ? c.values<float>() : std::vector<float>{};
  };
  EXPECT(unpool({5, 2}) == (std::vector<float>{0, 0, 7, 0, 0, 5, 0, 0}));
  EXPECT(unpool({8, 0}).empty());
  EXPECT(unpool({-1, 0}).empty());
}

TEST(space_and_depth_are_inverse) {
  for (const char* mode : {"DCR", "CRD"}) {
    const Attributes attributes{{"blocksize", int64_t{2}}, {"mode", std::string(mode)}};
    TensorCase wide("DepthToSpace", attributes);
    wide.in(Shape{1, 8, 2, 3}, counting<float>(48));
    ASSERT_OK(wide.run());
    EXPECT(wide.shape() == (Shape{1, 2, 4, 6}));
    // Channel 1 of the output, row 1, column 0: the block's third element.
    EXPECT_EQ(wide.values<float>()[24 + 6], mode[0] == 'D' ? 5.0f * 6 : 6.0f * 6);
    TensorCase back("SpaceToDepth", attributes);
    back.in(wide.shape(), wide.values<float>());
    ASSERT_OK(back.run());
    EXPECT(back.values<float>() == counting<float>(48));
  }
  TensorCase odd("SpaceToDepth", {{"blocksize", int64_t{2}}});
  odd.in(Shape{1, 1, 3, 2}, numbers(6, 1));
  EXPECT(odd.refusal().find("not a multiple of 2") != std::string::npos);
}

TEST(resize_interpolates_linearly_between_pixels) {
  // 4 to 8 at half pixels: quarters between neighbours, ends repeated.
  TensorCase c("Resize", {{"mode", std::string("linear")}});
  c.in(Shape{1, 4}, std::vector<float>{0, 4, 8, 12})
      .absent()
      .absent()
      .in(Shape{2}, std::vector<int64_t>{1, 8});
  ASSERT_OK(c.run());
  EXPECT(c.values<float>() == (std::vector<float>{0, 1, 3, 5, 7, 9, 11, 12}));
  // Halving with antialias takes triangles of width 2: 1/8, 3/8, 3/8, 1/8.
  TensorCase half("Resize", {{"mode", std::string("linear")}, {"antialias", int64_t{1}}});
  half.in(Shape{8}, std::vector<float>{0, 0, 0, 8, 0, 0, 0, 0})
      .absent()
      .in(Shape{1}, std::vector<float>{0.5f});
  ASSERT_OK(half.run());
  const auto y = half.values<float>();
  EXPECT_EQ(y[0], 0.0f);  // its taps end at the third pixel
  EXPECT_NEAR(y[1], 3.0, 1e-6);
  EXPECT_NEAR(y[2], 1.0, 1e-6);
  EXPECT_EQ(y[3], 0.0f);
}

TEST(resize_rounds_and_saturates_integers_and_moves_strings) {
  TensorCase c("Resize", {{"mode", std::string("cubic")}});
  c.in(Shape{4}, std::vector<uint8_t>{0, 255, 255, 0}, DType::kU8)
      .absent()
      .in(Shape{1}, std::vector<float>{2.0f});
  ASSERT_OK(c.run());
  EXPECT_EQ(int(c.values<uint8_t>()[3]), 255);  // above 255 before
  EXPECT_EQ(int(c.values<uint8_t>()[0]), 0);    // below 0
  TensorCase words("Resize");
  words.in(Shape{2}, std::vector<std::string>{"a", "b"})
      .absent()
      .in(Shape{1}, std::vector<float>{2.0f});
  ASSERT_OK(words.run());
  EXPECT(words.values<std::string>() == (std::vector<std::string>{"a", "a", "b", "b"}));
}

TEST(resize_refuses_hostile_scales) {
  const auto refusal = [](std::vector<float> scales) {
    TensorCase c("Resize");
    const Shape shape{static_cast<int64_t>(scales.size())};
    c.in(Shape{1, 4}, numbers(4, 1)).absent().in(shape, scales);
    return c.refusal();
  };
  EXPECT(refusal({1, 2}).empty());
  EXPECT(refusal({1}).find("1 scales for 2 axes") != std::string::npos);
  EXPECT(!refusal({1, 0}).empty());
  EXPECT(!refusal({1, NAN}).empty());
  EXPECT(!refusal({1, -2}).empty());
  EXPECT(!refusal({1, INFINITY}).empty());
  EXPECT(!refusal({1e9f, 1e9f}).empty());
  TensorCase neither("Resize");
  neither.in(Shape{1, 4}, numbers(4, 1));
  EXPECT(neither.refusal().find("either scales or sizes") != std::string::npos);
}

TEST(grid_sample_of_the_identity_is_the_image) {
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    TensorCase grid("AffineGrid", {{"align_corners", int64_t{1}}});
    grid.in(Shape{1, 2, 3}, std::vector<float>{1, 0, 0, 0, 1, 0})
        .in(Shape{4}, std::vector<int64_t>{1, 2, 5, 3});
    ASSERT_OK(grid.run());
    EXPECT(grid.shape() == (Shape{1, 5, 3, 2}));
    const auto x = numbers(30, 1);
    TensorCase c("GridSample", {{"align_corners", int64_t{1}}, {"mode", std::string(mode)}});
    c.in(Shape{1, 2, 5, 3}, x).in(grid.shape(), grid.values<float>());
    ASSERT_OK(c.run());
    for (size_t i = 0; i < 30; ++i) EXPECT_NEAR(c.values<float>()[i], x[i], 1e-6);
  }
}

TEST(wild_grids_and_regions_do_not_leave_the_image) {
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const char* mode : {"linear", "nearest", "cubic"}) {
      TensorCase c("GridSample",
                   {{"padding_mode", std::string(padding)}, {"mode", std::string(mode)}});
      c.in(Shape{1, 1, 2, 2}, numbers(4, 1))
          .in(Shape{1, 1, 5, 2},
              std::vector<float>{NAN, 0, kInfinity, -kInfinity, 1e30f, -1e30f, -1e9f, 3, 0, 0});
      ASSERT_OK(c.run());
      for (float y : c.values<float>()) EXPECT(std::isfinite(y));
    }
  }
  const std::vector<float> rois{NAN, -kInfinity, kInfinity, 1e30f, -1e9f, -1e9f, 1e9f, 1e9f};
  TensorCase align("RoiAlign", {{"sampling_ratio", int64_t{2}}});
  align.in(Shape{1, 1, 2, 2}, numbers(4, 1))
      .in(Shape{2, 4}, rois)
      .in(Shape{2}, std::vector<int64_t>{0, 0});
  ASSERT_OK(align.run());
  TensorCase image("RoiAlign");
  image.in(Shape{1, 1, 2, 2}, numbers(4, 1))
      .in(Shape{1, 4}, std::vector<float>{0, 0, 1, 1})
      .in(Shape{1}, std::vector<int64_t>{1});
  EXPECT(std::string(image.run().message()).find("out of range") != std::string::npos);
  TensorCase pool("MaxRoiPool", {{"pooled_shape", Ints{2, 2}}});
  pool.in(Shape{1, 1, 2, 2}, numbers(4, 1))
      .in(Shape{1, 5}, std::vector<float>{0, NAN, -kInfinity, kInfinity, 1e30f});
  ASSERT_OK(pool.run());
}

}  // namespace
