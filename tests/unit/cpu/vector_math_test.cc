// SPDX-License-Identifier: Apache-2.0
//
// vector_math.h against the C library in double: the errors that the header promises, over bit
// patterns from end to end of the range, and what infinities, zeros and NaN give.
#include "cpu/tensor/vector_math.h"

#include <bit>
#include <limits>

#include "testing.h"

namespace {

namespace vm = lmn::cpu::vector_math;

// The largest error in ulp of the true result, among every 8191st float between low and high.
template <typename F, typename Reference>
double worst_ulp(F f, Reference reference, float low, float high) {
  double worst = 0;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 8191) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double want = reference(static_cast<double>(x));
    if (std::isinf(static_cast<float>(want))) {
      if (f(x) != static_cast<float>(want)) return HUGE_VAL;
      continue;
    }
    int exponent = 0;
    std::frexp(want, &exponent);
    const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
    worst = std::max(worst, std::abs(f(x) - want) / ulp);
  }
  return worst;
}

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST(vector_math_errors_are_as_promised) {
  const auto exp = [](double x) { return std::exp(x); };
  const auto log = [](double x) { return std::log(x); };
  const auto tanh = [](double x) { return std::tanh(x); };
  const auto erf = [](double x) { return std::erf(x); };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto gelu = [](double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); };
  EXPECT(worst_ulp(vm::exp, exp, -200, 200) <= 1.2);
  EXPECT(worst_ulp(vm::log, log, 0, kInf) <= 1.2);
  EXPECT(worst_ulp(vm::tanh, tanh, -kInf, kInf) <= 1.6);
  EXPECT(worst_ulp(vm::erf, erf, -kInf, kInf) <= 1.5);
  EXPECT(worst_ulp(vm::sigmoid, sigmoid, -87, kInf) <= 2);
  EXPECT(worst_ulp(vm::silu, silu, -87, 1e38f) <= 3);
  // 4e-7 relative is between 3.4 and 6.7 ulp.
  EXPECT(worst_ulp(vm::gelu, gelu, -12.5f, 1e38f) <= 6.7);
}

TEST(vector_math_at_the_ends_of_the_range) {
  EXPECT_EQ(vm::exp(-kInf), 0.0f);
  EXPECT_EQ(vm::exp(kInf), kInf);
  EXPECT_EQ(vm::log(0.0f), -kInf);
  EXPECT_EQ(vm::log(-0.0f), -kInf);
  EXPECT_EQ(vm::log(kInf), kInf);
  EXPECT(std::isnan(vm::log(-1.0f)) && std::isnan(vm::log(-kInf)));
  EXPECT_EQ(vm::sigmoid(-kInf), 0.0f);
  EXPECT_EQ(vm::sigmoid(kInf), 1.0f);
  EXPECT_EQ(vm::silu(-kInf), 0.0f);
  EXPECT_EQ(vm::gelu(-kInf), 0.0f);
  EXPECT_EQ(vm::gelu(-30.0f), 0.0f);
  EXPECT_EQ(vm::gelu(kInf), kInf);
  EXPECT(std::signbit(vm::tanh(-0.0f)) && std::signbit(vm::erf(-0.0f)));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto f : {vm::exp, vm::log, vm::tanh, vm::erf, vm::sigmoid, vm::silu, vm::gelu})
    EXPECT(std::isnan(f(nan)));
}
