// SPDX-License-Identifier: Apache-2.0
//
// Conversion of rows of elements between any two types that are numbers, through one of three
// types that hold a source exactly: float for types that fit it, double for f64, int64_t for
// integers (u64 by its bits). Casts, quantisation and Pow share it.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "cpu/tensor/small_float.h"

namespace lmn::cpu {

// `count` elements at x, as I. decoder() of float: types whose values float holds; of double: all,
// 64-bit integers rounded; of int64_t: integers and bool. Null for the others.
template <typename I>
using Decode = void (*)(const std::byte* x, I* y, int64_t count);
template <typename I>
Decode<I> decoder(DType dtype);
template <>
Decode<float> decoder<float>(DType dtype);
template <>
Decode<double> decoder<double>(DType dtype);
template <>
Decode<int64_t> decoder<int64_t>(DType dtype);

// What a cast may be told about the small floats.
struct Narrowing {
  bool saturate = true;
  PowerRounding rounding = PowerRounding::kUp;
};

// `count` elements of type I to y: floats rounded to nearest even, integers cut to the low bits,
// floats to integers towards zero. Null: the type is no number.
template <typename I>
using Encode = void (*)(const I* x, std::byte* y, int64_t count, const Narrowing& narrowing);
template <typename I>
Encode<I> encoder(DType dtype);
template <>
Encode<float> encoder<float>(DType dtype);
template <>
Encode<double> encoder<double>(DType dtype);
template <>
Encode<int64_t> encoder<int64_t>(DType dtype);

// Towards zero, cut to the range; 0 of NaN.
inline int64_t integer_of(double x) {
  if (x >= 0x1p63) return INT64_MAX;
  if (!(x >= -0x1p63)) return x < 0 ? INT64_MIN : 0;
  return static_cast<int64_t>(x);
}

// To float, with the last bit set where it is not exact and even: rounding this to a narrower type
// gives what rounding the double would.
inline float narrow_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  if (back == x || x != x) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  // The float towards zero from x, then odd.
  if (std::abs(back) > std::abs(x)) bits -= 1;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace lmn::cpu
