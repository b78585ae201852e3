// SPDX-License-Identifier: Apache-2.0
//
// Operators of signal.def and training.def, beyond what ONNX's own tests cover: transforms of every
// kind of length against the sums that define them, hostile lengths, and what random numbers must
// be like.
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

#include "tensor_case.h"

namespace lmn::cpu {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

std::vector<double> wave(int64_t count) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(std::sin(0.7 * static_cast<double>(i * i)));
  return out;
}

// Bin k of the transform of x, by definition.
std::complex<double> bin(const std::vector<std::complex<double>>& x, int64_t k, bool inverse) {
  std::complex<double> sum = 0;
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t i = 0; i < n; ++i) {
    const double angle = 2 * kPi * static_cast<double>(k * i % n) / static_cast<double>(n);
    sum += x[static_cast<size_t>(i)] * std::polar(1.0, inverse ? angle : -angle);
  }
  return inverse ? sum / static_cast<double>(n) : sum;
}

}  // namespace

TEST(DftOfEveryKindOfLengthIsTheSum) {
  // Factors 2 to 5, general ones, a prime that needs a convolution, and its product with others.
  for (const int64_t n : {1, 2, 3, 12, 49, 61, 67, 134, 225}) {
    const std::vector<double> x = wave(2 * n);
    std::vector<std::complex<double>> z;
    for (int64_t i = 0; i < n; ++i) {
      z.emplace_back(x[static_cast<size_t>(2 * i)], x[static_cast<size_t>(2 * i + 1)]);
    }
    for (const bool inverse : {false, true}) {
      TensorCase dft("DFT", {{"inverse", int64_t{inverse}}});
      dft.in<double>({1, n, 2}, x);
      ASSERT_OK(dft.run());
      const std::vector<double> y = dft.values<double>();
      for (int64_t k = 0; k < n; ++k) {
        const std::complex<double> want = bin(z, k, inverse);
        EXPECT_NEAR(y[static_cast<size_t>(2 * k)], want.real(), 1e-11);
        EXPECT_NEAR(y[static_cast<size_t>(2 * k + 1)], want.imag(), 1e-11);
      }
    }
  }
}

TEST(HalfSpectraOfRealRowsComeBack) {
  for (const int64_t n : {6, 7, 71}) {
    const std::vector<double> x = wave(5 * n * 3);
    TensorCase forward("DFT", {{"onesided", int64_t{1}}});
    forward.in<double>({5, n, 3, 1}, x).absent().in<int64_t>({}, {1});
    ASSERT_OK(forward.run());
    EXPECT(forward.shape() == (Shape{5, n / 2 + 1, 3, 2}));
    TensorCase back("DFT", {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}});
    back.in<double>(forward.shape(), forward.values<double>());
    back.in<int64_t>({}, {n}).in<int64_t>({}, {-3});
    ASSERT_OK(back.run());
    const std::vector<double> y = back.values<double>();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-12);
  }
}

TEST(DftPadsAndRefuses) {
  TensorCase padded("DFT");
  padded.in<float>({1, 2, 1}, {1, 2}).in<int64_t>({}, {4});
  ASSERT_OK(padded.run());
  EXPECT(padded.values<float>() == (std::vector<float>{3, 0, 1, -2, -1, 0, 1, 2}));
  for (const int64_t length : {int64_t{0}, int64_t{-1}, kHuge, int64_t{1} << 30}) {
    TensorCase bad("DFT");
    bad.in<float>({1, 2, 1}, {1, 2}).in<int64_t>({}, {length});
    EXPECT(!bad.refusal().empty());
  }
  TensorCase axis("DFT");
  axis.in<float>({1, 2, 1}, {1, 2}).absent().in<int64_t>({}, {2});
  EXPECT(says(axis.refusal(), "real and imaginary"));
  TensorCase half("DFT", {{"onesided", int64_t{1}}});
  half.in<float>({1, 1, 2}, {1, 2});
  EXPECT(says(half.refusal(), "onesided"));
  TensorCase single("DFT", {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}});
  single.in<float>({1, 1, 2}, {1, 2});
  EXPECT(says(single.refusal(), "no values"));
}

TEST(StftIsTheTransformOfWindowedFrames) {
  const std::vector<double> x = wave(2 * 20), window = wave(6);
  TensorCase stft("STFT");
  stft.in<double>({2, 20, 1}, x).in<int64_t>({}, {5}).in<double>({6}, window);
  ASSERT_OK(stft.run());
  ASSERT((stft.shape() == Shape{2, 3, 4, 2}));
  const std::vector<double> y = stft.values<double>();
  for (int64_t row = 0; row < 6; ++row) {
    std::vector<std::complex<double>> frame;
    for (int64_t i = 0; i < 6; ++i) {
      frame.emplace_back(x[static_cast<size_t>(row / 3 * 20 + row % 3 * 5 + i)] *
                         window[static_cast<size_t>(i)]);
    }
    for (int64_t k = 0; k < 4; ++k) {
      const std::complex<double> want = bin(frame, k, false);
      EXPECT_NEAR(y[static_cast<size_t>((row * 4 + k) * 2)], want.real(), 1e-12);
      EXPECT_NEAR(y[static_cast<size_t>((row * 4 + k) * 2 + 1)], want.imag(), 1e-12);
    }
  }
  TensorCase step("STFT");
  step.in<float>({1, 4, 1}, {1, 2, 3, 4}).in<int64_t>({}, {0}).absent().in<int64_t>({}, {2});
  EXPECT(says(step.refusal(), "frame_step is 0"));
  TensorCase shorter("STFT");
  shorter.in<float>({1, 4, 1}, {1, 2, 3, 4}).in<int64_t>({}, {1}).absent().in<int64_t>({}, {5});
  EXPECT(says(shorter.refusal(), "frames of 5 values in a signal of 4"));
}

TEST(WindowsOfAnyLengthAndType) {
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) {
    TensorCase one(op, {{"periodic", int64_t{0}}, {"output_datatype", int64_t{11}}});
    one.in<int32_t>({}, {1});
    ASSERT_OK(one.run());
    EXPECT_NEAR(one.values<double>()[0], 1, 1e-15);
    TensorCase none(op);
    none.in<int64_t>({}, {0});
    ASSERT_OK(none.run());
    for (const int64_t size : {int64_t{-1}, kHuge}) {
      TensorCase bad(op);
      bad.in<int64_t>({}, {size});
      EXPECT(says(bad.refusal(), "size is"));
    }
  }
  TensorCase hann("HannWindow");
  hann.in<int64_t>({}, {4});
  ASSERT_OK(hann.run());
  const std::vector<float> want{0, 0.5f, 1, 0.5f};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(hann.values<float>()[i], want[i], 1e-7);
}

TEST(MelWeightsStayInsideTheSpectrum) {
  TensorCase mel("MelWeightMatrix");
  mel.in<int64_t>({}, {8}).in<int64_t>({}, {16}).in<int64_t>({}, {8192});
  mel.in<float>({}, {0}).in<float>({}, {20000});
  EXPECT(says(std::string(mel.run().message()), "half the sample rate"));
}

TEST(RandomNumbersWithASeedAreTheSameAndSpread) {
  const ops::Attributes attributes{{"seed", 3.0f}, {"shape", ops::Ints{20000}}};
  TensorCase uniform("RandomUniform", attributes), again("RandomUniform", attributes);
  ASSERT_OK(uniform.run());
  ASSERT_OK(again.run());
  const std::vector<float> x = uniform.values<float>();
  EXPECT(x == again.values<float>());
  double sum = 0;
  for (const float value : x) {
    EXPECT(value >= 0 && value < 1);
    sum += static_cast<double>(value);
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);  // five deviations
  TensorCase normal("RandomNormal", {{"seed", 4.0f},
                                     {"shape", ops::Ints{20000}},
                                     {"mean", 2.0f},
                                     {"scale", 3.0f},
                                     {"dtype", int64_t{11}}});
  ASSERT_OK(normal.run());
  double mean = 0, square = 0;
  for (const double value : normal.values<double>()) {
    mean += value / 20000;
    square += (value - 2) * (value - 2) / 20000;
  }
  EXPECT_NEAR(mean, 2, 0.11);
  EXPECT_NEAR(square, 9, 0.5);
}

TEST(RandomNumbersKeepToProbabilities) {
  TensorCase coin("Bernoulli", {{"seed", 1.0f}, {"dtype", int64_t{9}}});
  std::vector<float> p(10000, 0.25f);
  p[0] = 0;
  p[1] = 1;
  coin.in<float>({10000}, p);
  ASSERT_OK(coin.run());
  const std::vector<uint8_t> flips = coin.values<uint8_t>();
  EXPECT(flips[0] == 0 && flips[1] == 1);
  EXPECT_NEAR(std::accumulate(flips.begin(), flips.end(), 0), 2500, 220);
  TensorCase wrong("Bernoulli", {{"seed", 1.0f}});
  wrong.in<float>({2}, {0.5f, 1.5f});
  EXPECT(says(std::string(wrong.run().message()), "not between 0 and 1"));
  TensorCase choice("Multinomial", {{"seed", 1.0f}, {"sample_size", int64_t{8000}}});
  const float none = -std::numeric_limits<float>::infinity();
  choice.in<float>({2, 3}, {std::log(1.0f), none, std::log(3.0f), none, 5, none});
  ASSERT_OK(choice.run());
  const std::vector<int32_t> chosen = choice.values<int32_t>();
  EXPECT_NEAR(std::count(chosen.begin(), chosen.begin() + 8000, 0), 2000, 200);
  EXPECT_EQ(std::count(chosen.begin(), chosen.begin() + 8000, 1), 0);
  EXPECT_EQ(std::count(chosen.begin() + 8000, chosen.end(), 1), 8000);
  TensorCase large("RandomNormal", {{"shape", ops::Ints{kHuge, kHuge}}});
  EXPECT(says(large.refusal(), "2^40"));
  TensorCase range("RandomUniform", {{"shape", ops::Ints{1}}, {"low", 2.0f}});
  EXPECT(says(range.refusal(), "between 2 and 1"));
}

TEST(OptimisersTakeStepsOfAllTypesAndRefuseOddLists) {
  TensorCase adagrad("ai.onnx.preview.training.Adagrad", {}, 4);
  adagrad.in<double>({}, {0.5}).in<int64_t>({}, {3});
  adagrad.in<double>({1}, {1}).in<float>({2}, {2, 3}).in<double>({1}, {4}).in<float>({2}, {0, -1});
  adagrad.in<double>({1}, {9}).in<float>({2}, {1, 3});
  ASSERT_OK(adagrad.run());
  EXPECT_NEAR(adagrad.values<double>(0)[0], 1 - 0.5 * 4 / 5, 1e-6);
  EXPECT_NEAR(adagrad.values<float>(1)[1], 3 + 0.5 / 2, 1e-6);
  EXPECT_EQ(adagrad.values<double>(2)[0], 25.0);
  EXPECT_EQ(adagrad.values<float>(3)[1], 4.0f);
  TensorCase odd("ai.onnx.preview.training.Adam", {}, 3);
  odd.in<float>({}, {1}).in<int64_t>({}, {0}).in<float>({1}, {1}).in<float>({1}, {1});
  odd.in<float>({1}, {1});
  EXPECT(!odd.refusal().empty());
  TensorCase shapes("ai.onnx.preview.training.Momentum", {{"mode", std::string("standard")}}, 2);
  shapes.in<float>({}, {1}).in<int64_t>({}, {0}).in<float>({1}, {1}).in<float>({2}, {1, 2});
  shapes.in<float>({1}, {1});
  EXPECT(says(shapes.refusal(), "two shapes"));
}

}  // namespace lmn::cpu
