// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and poolings over channels last, against sums in double over channels first that are
// written out here. TensorCase asserts that every split of the work gives the same bits.
#include <cmath>
#include <limits>

#include "tensor_case.h"

namespace {

using namespace lmn;
using namespace lmn::cpu;

// Numbers of no pattern, in [-1, 1], with few enough bits to be told apart by 1e-5.
std::vector<float> draw(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(static_cast<int32_t>(seed >> 8) - (1 << 23)) /
                     static_cast<float>(1 << 23));
  }
  return values;
}

struct Geometry {
  int64_t batch = 1, height = 1, width = 1, channels = 1, outputs = 1, groups = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool flat = false;  // of one dimension: no height

  int64_t out_h() const {
    return (height + top + bottom - (kernel_h - 1) * dilation_h - 1) / stride_h + 1;
  }
  int64_t out_w() const {
    return (width + left + right - (kernel_w - 1) * dilation_w - 1) / stride_w + 1;
  }
  Shape shape(int64_t h, int64_t w, int64_t c) const {
    return flat ? Shape{batch, w, c} : Shape{batch, h, w, c};
  }
  Shape weights() const {
    const int64_t c = channels / groups;
    return flat ? Shape{outputs, c, kernel_w} : Shape{outputs, c, kernel_h, kernel_w};
  }
  ops::Attributes attributes() const {
    ops::Attributes a;
    const auto set = [&](const char* key, int64_t h, int64_t w) {
      a.set(key, flat ? ops::Ints{w} : ops::Ints{h, w});
    };
    set("kernel_shape", kernel_h, kernel_w);
    set("strides", stride_h, stride_w);
    set("dilations", dilation_h, dilation_w);
    a.set("pads", flat ? ops::Ints{left, right} : ops::Ints{top, left, bottom, right});
    return a;
  }
  // f(image, y, x, tap row, tap column, input row, input column) for every tap inside the image.
  template <typename F>
  void taps(int64_t y, int64_t x, F&& f) const {
    for (int64_t i = 0; i < kernel_h; ++i) {
      for (int64_t j = 0; j < kernel_w; ++j) {
        const int64_t row = y * stride_h - top + i * dilation_h;
        const int64_t column = x * stride_w - left + j * dilation_w;
        if (row >= 0 && row < height && column >= 0 && column < width) f(i, j, row, column);
      }
    }
  }
};

std::vector<double> convolve(const Geometry& g, const std::vector<float>& x,
                             const std::vector<float>& w, const std::vector<float>& bias,
                             const std::vector<float>& residual) {
  std::vector<double> y;
  const int64_t c = g.channels / g.groups, o = g.outputs / g.groups;
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t row = 0; row < g.out_h(); ++row) {
      for (int64_t column = 0; column < g.out_w(); ++column) {
        for (int64_t m = 0; m < g.outputs; ++m) {
          double sum = bias.empty() ? 0 : bias[static_cast<size_t>(m)];
          g.taps(row, column, [&](int64_t i, int64_t j, int64_t in_row, int64_t in_column) {
            for (int64_t k = 0; k < c; ++k) {
              const int64_t at =
                  ((n * g.height + in_row) * g.width + in_column) * g.channels + m / o * c + k;
              const int64_t tap = ((m * c + k) * g.kernel_h + i) * g.kernel_w + j;
              sum += static_cast<double>(x[static_cast<size_t>(at)]) *
                     static_cast<double>(w[static_cast<size_t>(tap)]);
            }
          });
          if (!residual.empty()) sum += static_cast<double>(residual[y.size()]);
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

void check(const Geometry& g, const char* activation = "", bool bias = true, bool added = true,
           void (*change)(std::vector<float>* x, std::vector<float>* w) = nullptr) {
  const Shape in = g.shape(g.height, g.width, g.channels);
  const Shape out = g.shape(g.out_h(), g.out_w(), g.outputs);
  std::vector<float> x = draw(in.elements(), 1), w = draw(g.weights().elements(), 2);
  if (change != nullptr) change(&x, &w);
  const std::vector<float> b = bias ? draw(g.outputs, 3) : std::vector<float>();
  const std::vector<float> r = added ? draw(out.elements(), 4) : std::vector<float>();
  ops::Attributes attributes = g.attributes();
  attributes.set("group", g.groups);
  if (*activation != '\0') attributes.set("activation", std::string(activation));
  if (std::string(activation) == "Clip") {
    attributes.set("low", -0.5f);
    attributes.set("high", 0.25f);
  }
  TensorCase test("lmnative.Conv", attributes);
  test.in(in, x).in(g.weights(), w);
  if (bias) test.in(Shape{g.outputs}, b);
  if (!bias) test.absent();
  if (added) test.in(out, r);
  std::vector<double> want = convolve(g, x, w, b, r);
  for (double& v : want) {
    if (std::string(activation) == "Relu") v = std::max(v, 0.0);
    if (std::string(activation) == "Clip") v = std::clamp(v, -0.5, 0.25);
    if (std::string(activation) == "Sigmoid") v = 1 / (1 + std::exp(-v));
  }
  for (std::string_view target : available_targets()) {
    ASSERT_OK(test.run_constant(target));
    ASSERT(test.shape() == out);
    const std::vector<float> have = test.values<float>();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT(std::abs(want[i] - static_cast<double>(have[i])) < 1e-4 * std::max(1.0, want[i]));
  }
}

TEST(a_convolution_of_three_by_three) {
  Geometry g{.batch = 2, .height = 9, .width = 7, .channels = 20, .outputs = 37};
  g.kernel_h = g.kernel_w = 3;
  g.top = g.left = g.bottom = g.right = 1;
  check(g);
  check(g, "Relu", true, false);
  check(g, "Clip", false, true);
  check(g, "Sigmoid", false, false);
  g.stride_h = 2;
  g.stride_w = 3;
  g.dilation_h = 2;
  g.bottom = 0;
  check(g, "Relu");
}

// Large images with strides of 1 take fewer products (winograd.h).
TEST(a_large_image) {
  Geometry g{.batch = 2, .height = 13, .width = 14, .channels = 20, .outputs = 70};
  g.kernel_h = g.kernel_w = 3;
  g.top = g.left = g.bottom = g.right = 1;
  check(g, "Relu");
  check(g, "Sigmoid", false, false);
  g.width = 29;
  g.left = g.bottom = 0;
  g.right = 2;
  check(g, "Clip", true, false);
}

// A tile's four outputs are taken apart exactly enough only where the weights are of one size.
TEST(a_large_image_and_one_large_weight) {
  Geometry g{.height = 13, .width = 14, .channels = 20, .outputs = 70};
  g.kernel_h = g.kernel_w = 3;
  g.top = g.left = g.bottom = g.right = 1;
  check(g, "", true, true, [](std::vector<float>* x, std::vector<float>* w) {
    for (size_t i = 20; i < x->size(); i += 20) (*x)[i] = 0;  // channel 0, but for one pixel
    (*x)[0] = 1;
    (*w)[4] = 1e20f;  // the middle
  });
}

// Fewer than 16 channels: the image is copied with its padding, or, without any, taps are joined.
TEST(a_convolution_of_few_channels) {
  Geometry g{.batch = 2, .height = 23, .width = 31, .channels = 3, .outputs = 8};
  g.kernel_h = g.kernel_w = 7;
  g.stride_h = g.stride_w = 2;
  g.top = g.left = g.bottom = g.right = 3;
  check(g, "Relu");
  g.dilation_h = 2;
  check(g);
  g.dilation_w = 2;
  check(g);
  g.top = g.left = g.bottom = g.right = 0;
  g.dilation_h = g.dilation_w = 1;
  check(g);
}

TEST(wide_rows_are_done_in_pieces) {
  Geometry g{.width = 1301, .channels = 2, .outputs = 5, .kernel_w = 9, .stride_w = 2};
  g.left = 4;
  g.right = 4;
  check(g);
  g.flat = true;
  check(g, "Relu");
  g.channels = 17;
  check(g);
}

TEST(padding_may_be_all_that_a_window_sees) {
  Geometry g{.height = 2, .width = 2, .channels = 3, .outputs = 4, .kernel_h = 2, .kernel_w = 2};
  g.top = g.left = g.bottom = g.right = 3;
  check(g);
  g.channels = 19;
  check(g);
}

TEST(groups_and_channels_on_their_own) {
  Geometry g{.batch = 2, .height = 6, .width = 5, .channels = 24, .outputs = 36, .groups = 3};
  g.kernel_h = g.kernel_w = 3;
  g.top = g.left = g.bottom = g.right = 1;
  check(g, "Relu");
  g.channels = g.outputs = g.groups = 75;
  check(g, "Clip");
  g.stride_w = 2;
  check(g, "Sigmoid");
}

TEST(a_few_positions_and_single_taps) {
  for (int64_t width = 1; width < 5; ++width) {
    Geometry g{.width = width, .channels = 40, .outputs = 200};
    check(g);
    g.flat = true;
    check(g, "Relu", false, false);
  }
}

TEST(errors_of_convolutions_name_what_is_wrong) {
  TensorCase residual("lmnative.Conv");
  residual.in(Shape{1, 2, 2, 1}, draw(4, 1)).in(Shape{4, 1, 1, 1}, draw(4, 2)).absent();
  residual.in(Shape{1, 2, 1, 4}, draw(8, 3));
  EXPECT(residual.refusal().find("residual is [1, 2, 1, 4], expected [1, 2, 2, 4]") !=
         std::string::npos);
  ops::Attributes attributes;
  attributes.set("activation", std::string("Elephant"));
  TensorCase unknown("lmnative.Conv", attributes);
  unknown.in(Shape{1, 2, 2, 1}, draw(4, 1)).in(Shape{4, 1, 1, 1}, draw(4, 2));
  EXPECT(std::string(unknown.run_constant("").message()).find("Elephant") != std::string::npos);
}

Geometry window() {
  Geometry g{.batch = 2, .height = 7, .width = 6, .channels = 21};
  g.kernel_h = g.kernel_w = 3;
  g.stride_h = g.stride_w = 2;
  g.top = g.left = 1;
  g.bottom = g.right = 1;
  return g;
}

TEST(pools_take_windows_of_all_channels) {
  const Geometry g = window();
  const Shape in = g.shape(g.height, g.width, g.channels);
  const std::vector<float> x = draw(in.elements(), 5);
  for (const char* op : {"lmnative.MaxPool", "lmnative.AveragePool"}) {
    TensorCase test(op, g.attributes());
    test.in(in, x);
    ASSERT_OK(test.run());
    ASSERT(test.shape() == g.shape(g.out_h(), g.out_w(), g.channels));
    const std::vector<float> have = test.values<float>();
    size_t at = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      for (int64_t row = 0; row < g.out_h(); ++row) {
        for (int64_t column = 0; column < g.out_w(); ++column) {
          for (int64_t c = 0; c < g.channels; ++c, ++at) {
            double sum = 0, most = -std::numeric_limits<double>::infinity();
            int count = 0;
            g.taps(row, column, [&](int64_t, int64_t, int64_t in_row, int64_t in_column) {
              const auto v = static_cast<double>(x[static_cast<size_t>(
                  ((n * g.height + in_row) * g.width + in_column) * g.channels + c)]);
              sum += v;
              most = std::max(most, v);
              ++count;
            });
            const double want = std::string(op) == "lmnative.MaxPool" ? most : sum / count;
            EXPECT(std::abs(want - static_cast<double>(have[at])) < 1e-6);
          }
        }
      }
    }
  }
}

TEST(the_largest_of_numbers_and_a_nan_is_the_nan) {
  ops::Attributes attributes;
  attributes.set("kernel_shape", ops::Ints{2});
  TensorCase test("lmnative.MaxPool", attributes);
  test.in(Shape{1, 3, 1}, std::vector<float>{2, std::nanf(""), 1});
  ASSERT_OK(test.run());
  EXPECT(std::isnan(test.values<float>()[0]) && std::isnan(test.values<float>()[1]));
}

TEST(the_mean_of_every_channel) {
  TensorCase test("lmnative.GlobalAveragePool");
  test.in(Shape{2, 2, 2, 3}, draw(24, 6));
  ASSERT_OK(test.run());
  ASSERT((test.shape() == Shape{2, 1, 1, 3}));
  const std::vector<float> x = draw(24, 6);
  for (size_t i = 0; i < 6; ++i) {
    double sum = 0;
    for (size_t p = 0; p < 4; ++p) sum += static_cast<double>(x[(i / 3 * 4 + p) * 3 + i % 3]);
    EXPECT(std::abs(sum / 4 - static_cast<double>(test.values<float>()[i])) < 1e-6);
  }
}

}  // namespace
