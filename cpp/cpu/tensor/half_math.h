// SPDX-License-Identifier: Apache-2.0
//
// Rows of 16-bit floats to float32 and back, without branches, so that the loops become vectors.
// The values are those of core/float16.h: exact one way, rounded to nearest even the other.
#pragma once

#include <bit>
#include <cstdint>

#include "cpu/tensor/dispatch.h"
#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {

inline float to_float(Half x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7FFFu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;  // subnormals come out right
  const uint32_t special = scaled >= 65536.0f ? 0x7F800000u : 0u;   // infinities and NaNs
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}
inline float to_float(BFloat x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline void from_float(float x, Half* y) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7FFFFFFFu);
  const int32_t normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  // Adding 1/2 rounds to multiples of 2^-24, the smallest subnormal.
  const int32_t subnormal =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  int32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x477FF000 ? 0x7C00 : result;
  result = magnitude > 0x7F800000 ? (0x7E00 | ((magnitude >> 13) & 0x3FF)) : result;
  y->bits = static_cast<uint16_t>(static_cast<uint32_t>(result) | ((bits >> 16) & 0x8000u));
}
inline void from_float(float x, BFloat* y) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7FFFFFFFu);
  y->bits = static_cast<uint16_t>(magnitude > 0x7F800000 ? ((bits >> 16) | 0x40u) : rounded);
}

template <typename T>
void to_floats(const T* x, float* y, int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = to_float(x[i]);
}
template <typename T>
void from_floats(const float* x, T* y, int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) from_float(x[i], y + i);
}

}  // namespace lmn::cpu
