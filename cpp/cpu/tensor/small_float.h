// SPDX-License-Identifier: Apache-2.0
//
// Floats of 8 and 4 bits: E4M3FN and E5M2 (OCP 8-bit Floating Point Specification), the FNUZ
// variants (Noune et al., arXiv:2206.02915), E8M0 and E2M1 (OCP Microscaling Formats), with ONNX's
// rules for what is out of range.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace lmn::cpu {

struct SmallFormat {
  int mantissa_bits, bias;
  uint8_t sign;      // mask; 0: E8M0, which is a power of two
  uint8_t largest;   // code of the largest finite number
  uint8_t nan;       // code
  uint8_t overflow;  // what is beyond the range becomes, when it does not saturate
  bool has_nan, has_minus_zero;
};

inline bool is_small_float(DType dtype) {
  return dtype == DType::kF8E4M3FN || dtype == DType::kF8E4M3FNUZ || dtype == DType::kF8E5M2 ||
         dtype == DType::kF8E5M2FNUZ || dtype == DType::kF8E8M0 || dtype == DType::kF4E2M1;
}

inline SmallFormat small_format(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN:
      return {3, 7, 0x80, 0x7E, 0x7F, 0x7F, true, true};
    case DType::kF8E4M3FNUZ:
      return {3, 8, 0x80, 0x7F, 0x80, 0x80, true, false};
    case DType::kF8E5M2:
      return {2, 15, 0x80, 0x7B, 0x7E, 0x7C, true, true};
    case DType::kF8E5M2FNUZ:
      return {2, 16, 0x80, 0x7F, 0x80, 0x80, true, false};
    case DType::kF8E8M0:
      return {0, 127, 0, 0xFE, 0xFF, 0xFF, true, false};
    default:  // kF4E2M1
      return {1, 1, 0x08, 0x07, 0x00, 0x07, false, true};
  }
}

inline float decode_small(const SmallFormat& format, uint8_t code) {
  if (format.sign == 0) {
    return code == format.nan ? std::bit_cast<float>(0x7FC00000u)
                              : std::ldexp(1.0f, static_cast<int>(code) - format.bias);
  }
  if (format.has_nan && code == format.nan) return std::bit_cast<float>(0x7FC00000u);
  const int magnitude = code & (format.sign - 1);
  float value;
  if (format.has_nan && magnitude > format.largest) {
    // Above the largest number: infinity where there is one, NaNs after it.
    value = magnitude == format.overflow && format.overflow != format.nan
                ? HUGE_VALF
                : std::bit_cast<float>(0x7FC00000u);
  } else {
    const int exponent = magnitude >> format.mantissa_bits, one = 1 << format.mantissa_bits;
    const int mantissa = magnitude & (one - 1);
    value = exponent == 0
                ? std::ldexp(static_cast<float>(mantissa), 1 - format.bias - format.mantissa_bits)
                : std::ldexp(static_cast<float>(mantissa + one),
                             exponent - format.bias - format.mantissa_bits);
  }
  return (code & format.sign) != 0 ? -value : value;
}

// Rounded to nearest even. What is out of range becomes the largest number, or, when it does not
// saturate, infinity or NaN.
inline uint8_t encode_small(const SmallFormat& format, float x, bool saturate) {
  const uint8_t sign = std::signbit(x) ? format.sign : 0;
  if (x != x) return format.nan == format.sign ? format.nan : format.nan | sign;
  const float magnitude = std::abs(x);
  const auto beyond = [&]() -> uint8_t {
    if (saturate || !format.has_nan) return format.largest | sign;
    return format.overflow == format.sign ? format.overflow : format.overflow | sign;
  };
  if (magnitude > 1e30f) return beyond();
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [1/2, 1) * 2^exponent
  exponent = std::max(exponent - 1, 1 - format.bias);
  const int steps =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  // A step more than the mantissa holds carries into the exponent, as it should.
  const int code = ((exponent + format.bias - 1) << format.mantissa_bits) + steps;
  if (magnitude == 0 || code == 0) return format.has_minus_zero ? sign : 0;
  return code > format.largest ? beyond() : static_cast<uint8_t>(code) | sign;
}

enum class PowerRounding : uint8_t { kUp, kDown, kNearest };

// E8M0, of the magnitude. Numbers too small become the smallest power, or NaN when they do not
// saturate; numbers too large likewise.
inline uint8_t encode_power(float x, PowerRounding rounding, bool saturate) {
  const uint32_t bits = std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu;
  if (bits > 0x7F800000u) return 0xFF;
  if (bits == 0x7F800000u) return saturate ? 0xFE : 0xFF;
  if (bits < 0x00400000u) return saturate ? 0 : 0xFF;  // below 2^-127
  if (bits == 0x00400000u) return 0;                   // 2^-127 is a subnormal float32
  const uint32_t exponent = bits >> 23, mantissa = bits & 0x7FFFFFu;
  bool up = rounding == PowerRounding::kUp && mantissa != 0;
  if (rounding == PowerRounding::kNearest)
    up = exponent == 0 ? mantissa > 0x600000u : mantissa >= 0x400000u;
  const uint32_t code = exponent + (up ? 1u : 0u);
  return static_cast<uint8_t>(code == 0xFF && saturate ? 0xFE : code);
}

}  // namespace lmn::cpu
