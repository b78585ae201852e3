// SPDX-License-Identifier: Apache-2.0
//
// 8-bit codes of numbers: i8 and u8 by the same loops, and rounding back to them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "cpu/tensor/vector_math.h"
#include "ops/tensor_kernel.h"

namespace lmn::cpu {

// A byte's value is (byte ^ flip) - flip: flip is 0x80 for i8, 0 for u8.
inline int32_t flip_of(DType dtype) { return dtype == DType::kI8 ? 0x80 : 0; }
inline int32_t code_value(uint8_t byte, int32_t flip) { return (byte ^ flip) - flip; }

// The value of the one zero point in operand i; 0 where it is absent (has is false).
inline int32_t zero_point(const ops::Operands& io, int i, bool has, int32_t flip) {
  return has ? code_value(*io.input<uint8_t>(i), flip) : 0;
}

// x rounded to nearest even, the zero point added, cut to the range of the type: a byte of it. A
// NaN becomes the zero point.
struct CodeRounding {
  float low, high, zero;  // low and high are relative to the zero point

  CodeRounding(int32_t flip, int32_t zero_value)
      : low(static_cast<float>(-flip - zero_value)),
        high(static_cast<float>(255 - flip - zero_value)),
        zero(static_cast<float>(zero_value)) {}
  uint8_t operator()(float x) const {
    float limited = vector_math::select(x != x, 0.0f, x);
    limited = limited < low ? low : limited;
    limited = limited > high ? high : limited;
    return static_cast<uint8_t>(static_cast<int32_t>(vector_math::round_even(limited) + zero));
  }
};

// The number that each byte stands for.
inline std::array<float, 256> code_numbers(int32_t flip, float scale, int32_t zero) {
  std::array<float, 256> numbers;
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(code_value(static_cast<uint8_t>(i), flip) - zero) * scale;
  }
  return numbers;
}

// Scale and zero point of u8 codes for numbers of which these are the least and the largest, 0
// among them (DynamicQuantizeLinear).
struct DynamicScale {
  float scale = 1.0f / 255.0f;
  int32_t zero = 0;

  DynamicScale(const float* x, int64_t count) {
    float low = 0.0f, high = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
    }
    *this = DynamicScale(low, high);
  }
  DynamicScale(float low, float high) {
    if (high != low) scale = (high - low) / 255.0f;
    const float at = -low / scale;
    zero = static_cast<int32_t>(vector_math::round_even(at > 255.0f ? 255.0f : at > 0 ? at : 0.0f));
  }
};

}  // namespace lmn::cpu
