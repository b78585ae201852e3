// SPDX-License-Identifier: Apache-2.0
//
// binary16 and bfloat16 against arithmetic done here: values from their definition (sign, fraction
// times a power of two) with ldexp, roundings as nearbyint (to nearest, ties to even) of a double
// that holds every float exactly.
#include "core/float16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "testing.h"

namespace {

using lmn::bf16_to_f32;
using lmn::f16_to_f32;
using lmn::f32_to_bf16;
using lmn::f32_to_f16;

struct Format {
  int fraction_bits;
  int exponent_bits;
};
constexpr Format kBinary16{10, 5};
constexpr Format kBrain{7, 8};

// IEEE 754 section 3.4, for any such format of 16 bits. NaN for NaN.
double value_of(Format format, uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = (bits >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  double value;
  if (exponent == (1 << format.exponent_bits) - 1) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - format.fraction_bits);
  } else {
    value =
        std::ldexp(fraction + (1 << format.fraction_bits), exponent - bias - format.fraction_bits);
  }
  return std::copysign(value, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}

// The value of `x`, finite, rounded to the format.
double rounded(Format format, double x) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  const int quantum = std::max(exponent - 1, 1 - bias) - format.fraction_bits;
  const double result = std::ldexp(std::nearbyint(std::ldexp(x, -quantum)), quantum);
  const double limit = std::ldexp(1.0, bias + 1);
  return std::abs(result) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                   : result;
}

uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }
uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

template <typename Decode>
int wrong_values(Format format, Decode decode) {
  int wrong = 0;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const double want = value_of(format, static_cast<uint16_t>(h));
    const float got = decode(static_cast<uint16_t>(h));
    const bool same = std::isnan(want) ? std::isnan(got) && std::signbit(got) == ((h & 0x8000) != 0)
                                       : bits_of(double{got}) == bits_of(want);
    wrong += !same;
  }
  return wrong;
}

template <typename Encode>
bool rounds_right(Format format, Encode encode, float x) {
  return bits_of(value_of(format, encode(x))) == bits_of(rounded(format, double{x}));
}

// All places where rounding changes its mind: every value, every midpoint of two neighbours, and
// the floats beside each. Then every 257th of all floats.
template <typename Encode>
int wrong_roundings(Format format, Encode encode) {
  int wrong = 0;
  const auto check = [&](float x) {
    if (std::isfinite(x)) {
      wrong += !rounds_right(format, encode, x) + !rounds_right(format, encode, -x);
    }
  };
  const auto around = [&](float x) {
    check(x);
    check(std::nextafter(x, 0.0f));
    check(std::nextafter(x, std::numeric_limits<float>::infinity()));
  };
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
  for (uint32_t h = 0; h < infinity; ++h) {
    const double value = value_of(format, static_cast<uint16_t>(h));
    const double next = h + 1 == infinity ? std::ldexp(1.0, 1 << (format.exponent_bits - 1))
                                          : value_of(format, static_cast<uint16_t>(h + 1));
    around(static_cast<float>(value));
    around(static_cast<float>(value + (next - value) / 2));
  }
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 257) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) wrong += !rounds_right(format, encode, x);
  }
  return wrong;
}

template <typename Encode>
int lost_nans(Format format, Encode encode) {
  int wrong = 0;
  for (uint64_t fraction = 1; fraction < (1u << 23); fraction += fraction < 70000 ? 1 : 61) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const uint16_t h =
          encode(std::bit_cast<float>(sign | 0x7F800000u | static_cast<uint32_t>(fraction)));
      wrong += !(std::isnan(value_of(format, h)) && (h >> 15) == (sign >> 31));
    }
  }
  return wrong;
}

TEST(every_binary16_has_its_value) { EXPECT_EQ(wrong_values(kBinary16, f16_to_f32), 0); }
TEST(every_bfloat16_has_its_value) { EXPECT_EQ(wrong_values(kBrain, bf16_to_f32), 0); }
TEST(binary16_rounds_to_nearest_even) { EXPECT_EQ(wrong_roundings(kBinary16, f32_to_f16), 0); }
TEST(bfloat16_rounds_to_nearest_even) { EXPECT_EQ(wrong_roundings(kBrain, f32_to_bf16), 0); }

TEST(infinities_and_nans_survive) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(infinity), 0x7C00);
  EXPECT_EQ(f32_to_f16(-infinity), 0xFC00);
  EXPECT_EQ(f32_to_bf16(infinity), 0x7F80);
  EXPECT_EQ(f32_to_bf16(-infinity), 0xFF80);
  EXPECT_EQ(lost_nans(kBinary16, f32_to_f16), 0);
  EXPECT_EQ(lost_nans(kBrain, f32_to_bf16), 0);
}

TEST(every_16_bit_pattern_survives_the_round_trip) {
  int wrong = 0;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const bool half_nan = (h & 0x7FFF) > 0x7C00, brain_nan = (h & 0x7FFF) > 0x7F80;
    // Signalling NaNs become quiet ones: the top fraction bit is set.
    wrong += f32_to_f16(f16_to_f32(bits)) != (half_nan ? bits | 0x200 : bits);
    wrong += f32_to_bf16(bf16_to_f32(bits)) != (brain_nan ? bits | 0x40 : bits);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(well_known_values) {  // from the tables of IEEE 754 binary16
  EXPECT_EQ(f16_to_f32(0x3C00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xC000), -2.0f);
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0400), std::ldexp(1.0f, -14));
  EXPECT_EQ(f16_to_f32(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(f16_to_f32(0x3555), 0.333251953125f);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(bits_of(f16_to_f32(0x8000)), 0x80000000u);
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(f32_to_bf16(3.14159265f), 0x4049);
}

}  // namespace
