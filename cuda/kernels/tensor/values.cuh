// SPDX-License-Identifier: Apache-2.0
//
// Elements of tensors whose type is known when a kernel runs: the switch goes the same way in every
// thread, and what a kernel waits for is memory. Floats are computed in float and rounded once;
// integers and bools in int64_t, cut to their low bits.
#pragma once

#include <cmath>

#include "core/dtype.h"
#include "cuda/core/simt.cuh"

namespace lmn::cuda::tensor {

// Towards zero, cut to the range; 0 of NaN.
LMN_DEVICE int64_t integer_of(float x) {
  if (x >= 9223372036854775808.0f) return INT64_MAX;
  if (!(x >= -9223372036854775808.0f)) return x < 0 ? INT64_MIN : 0;
  return static_cast<int64_t>(x);
}

template <typename C, typename T>
LMN_DEVICE C element(const void* x, uint32_t i) {
  return static_cast<C>(static_cast<const T*>(x)[i]);
}

template <typename C>
LMN_DEVICE C load(const void* x, DType type, uint32_t i) {
  if constexpr (sizeof(C) == sizeof(float)) {
    switch (type) {
      case DType::kF32:
        return element<C, float>(x, i);
      case DType::kF16:
        return simt::half_to_float(static_cast<const uint16_t*>(x)[i]);
      case DType::kBF16:
        return simt::bfloat_to_float(static_cast<const uint16_t*>(x)[i]);
      default:
        return 0;
    }
  } else {
    switch (type) {
      case DType::kI8:
        return element<C, int8_t>(x, i);
      case DType::kU8:
      case DType::kBool:
        return element<C, uint8_t>(x, i);
      case DType::kI16:
        return element<C, int16_t>(x, i);
      case DType::kU16:
        return element<C, uint16_t>(x, i);
      case DType::kI32:
        return element<C, int32_t>(x, i);
      case DType::kU32:
        return element<C, uint32_t>(x, i);
      default:
        return element<C, int64_t>(x, i);
    }
  }
}

template <typename C>
LMN_DEVICE void store(void* y, DType type, uint32_t i, C v) {
  switch (type) {
    case DType::kF32:
      static_cast<float*>(y)[i] = static_cast<float>(v);
      return;
    case DType::kF16:
      static_cast<uint16_t*>(y)[i] = simt::float_to_half(static_cast<float>(v));
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(y)[i] = simt::float_to_bfloat(static_cast<float>(v));
      return;
    case DType::kBool:
      static_cast<uint8_t*>(y)[i] = v != 0 ? 1 : 0;
      return;
    default:
      break;
  }
  int64_t whole;
  if constexpr (sizeof(C) == sizeof(float)) {
    whole = integer_of(v);
  } else {
    whole = v;
  }
  switch (type) {
    case DType::kI8:
    case DType::kU8:
      static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(whole);
      return;
    case DType::kI16:
    case DType::kU16:
      static_cast<uint16_t*>(y)[i] = static_cast<uint16_t>(whole);
      return;
    case DType::kI32:
    case DType::kU32:
      static_cast<uint32_t*>(y)[i] = static_cast<uint32_t>(whole);
      return;
    default:
      static_cast<int64_t*>(y)[i] = whole;
      return;
  }
}

// Of 4 or 8 bytes.
template <typename T>
LMN_DEVICE T shuffle_xor_any(T v, int mask) {
  if constexpr (sizeof(T) == 4) {
    return simt::shuffle_xor(v, mask);
  } else {
    const auto bits = static_cast<uint64_t>(v);
    const uint32_t low = simt::shuffle_xor(static_cast<uint32_t>(bits), mask);
    const uint32_t high = simt::shuffle_xor(static_cast<uint32_t>(bits >> 32), mask);
    return static_cast<T>(static_cast<uint64_t>(high) << 32 | low);
  }
}

// The first failure of a run stays. `failure` is a word of the device's, `what` an address of the
// host's.
LMN_DEVICE void note_failure(uint64_t* failure, uint64_t what) {
  if (*failure == 0) *failure = what;
}

namespace functions {

LMN_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
LMN_DEVICE float gelu(float x) {
  return x == -HUGE_VALF ? -0.0f : 0.5f * x * erfcf(-0.70710678118654752f * x);
}
LMN_DEVICE float swish(float x, float alpha) { return x / (1.0f + expf(-alpha * x)); }
LMN_DEVICE float gelu_tanh(float x) {
  return x * sigmoid(1.5957691216057308f * (x + 0.044715f * (x * x * x)));
}
LMN_DEVICE float softplus(float x) { return (x < 0 ? 0.0f : x) + log1pf(expf(-fabsf(x))); }
LMN_DEVICE float clamped_line(float x, float alpha, float beta) {
  const float y = alpha * x + beta;
  const float low = 0.0f > y ? 0.0f : y;
  return 1.0f < low ? 1.0f : low;
}

}  // namespace functions

}  // namespace lmn::cuda::tensor
