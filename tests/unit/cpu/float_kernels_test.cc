// SPDX-License-Identifier: Apache-2.0
//
// FloatKernels of every instruction set that this machine has, against the C library in double: the
// errors that activation-inl.h promises, and that a row's result does not depend on its place.
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/cpu_features.h"
#include "cpu/kernels/isa.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::cpu;

std::vector<const IsaKernels*> sets() {
  std::vector<const IsaKernels*> all{&scalar::kKernels};
#if defined(__x86_64__)
  if (cpu_features().avx2) all.push_back(&avx2::kKernels);
  if (cpu_features().avx512) all.push_back(&avx512::kKernels);
#elif defined(__aarch64__)
  all.push_back(&neon::kKernels);
#endif
  return all;
}

double phi(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Wanted {
  FloatActivation activation;
  double (*reference)(double);
  double low, error;  // relative, from `low` on
};
const Wanted kWanted[] = {
    {FloatActivation::kNone, [](double x) { return x; }, -30, 0},
    {FloatActivation::kRelu, [](double x) { return std::max(x, 0.0); }, -30, 0},
    {FloatActivation::kGelu, [](double x) { return x * phi(x); }, -12.5, 1e-6},
    {FloatActivation::kGeluTanh,
     [](double x) { return x * logistic(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); },
     -4, 2e-6},
    {FloatActivation::kSilu, [](double x) { return x * logistic(x); }, -30, 4e-7},
    {FloatActivation::kTanh, [](double x) { return std::tanh(x); }, -30, 4e-7},
    {FloatActivation::kSigmoid, logistic, -30, 4e-7},
};

TEST(activations_are_as_exact_as_promised) {
  std::vector<float> x;
  for (int i = -60000; i <= 60000; ++i) x.push_back(static_cast<float>(i) * 5e-4f);
  for (float tiny : {1e-3f, 1e-6f, 1e-20f}) {
    x.push_back(tiny);
    x.push_back(-tiny);
  }
  std::vector<float> y(x.size());
  for (const IsaKernels* isa : sets()) {
    for (const Wanted& w : kWanted) {
      isa->floats.activate(w.activation, x.data(), y.data(), static_cast<int64_t>(x.size()));
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<double>(x[i]);
        if (at < w.low) continue;
        const double want = w.reference(at);
        worst = std::max(worst, std::abs(y[i] - want) / std::max(std::abs(want), 1e-35));
      }
      const bool rounds_twice = isa == &scalar::kKernels;  // its fma does
      if (worst > (rounds_twice ? 4 * w.error : w.error))
        testing::report_failure(__FILE__, __LINE__,
                                "activation " + std::to_string(static_cast<int>(w.activation)) +
                                    " is off by " + testing::show(worst));
    }
  }
}

TEST(activations_of_what_is_no_number) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[3] = {infinity, -infinity, std::nanf("")};
  for (const IsaKernels* isa : sets()) {
    for (const Wanted& w : kWanted) {
      float y[3];
      isa->floats.activate(w.activation, x, y, 3);
      EXPECT_EQ(y[0], w.reference(1e3) > 2 ? infinity : 1.0f);
      EXPECT(std::isnan(y[2]));
    }
  }
}

TEST(layer_norm_is_that_of_double) {
  for (const IsaKernels* isa : sets()) {
    for (const int64_t columns : {1, 5, 64, 384, 391}) {
      const int64_t rows = 3;
      std::vector<float> x, scale, bias, y(static_cast<size_t>(rows * columns));
      for (int64_t i = 0; i < rows * columns; ++i)
        x.push_back(3.0f + static_cast<float>(i * 7919 % 1009) / 500.0f);
      for (int64_t i = 0; i < columns; ++i) {
        scale.push_back(1.0f + static_cast<float>(i % 3));
        bias.push_back(static_cast<float>(i % 5) - 2.0f);
      }
      isa->floats.layer_norm({x.data(), scale.data(), bias.data(), 1e-5f, y.data(), rows, columns});
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = x.data() + r * columns;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < columns; ++i) mean += row[i];
        mean /= static_cast<double>(columns);
        for (int64_t i = 0; i < columns; ++i) variance += (row[i] - mean) * (row[i] - mean);
        variance /= static_cast<double>(columns);
        for (int64_t i = 0; i < columns; ++i) {
          const auto at = static_cast<size_t>(i);
          const double want = (row[i] - mean) / std::sqrt(variance + 1e-5) * scale[at] + bias[at];
          EXPECT_NEAR(y[static_cast<size_t>(r * columns + i)], want, 2e-5);
        }
        std::vector<float> alone(static_cast<size_t>(columns));
        isa->floats.layer_norm({row, scale.data(), bias.data(), 1e-5f, alone.data(), 1, columns});
        EXPECT(std::memcmp(alone.data(), y.data() + r * columns,
                           static_cast<size_t>(columns) * sizeof(float)) == 0);
      }
    }
  }
}

}  // namespace
