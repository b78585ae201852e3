// SPDX-License-Identifier: Apache-2.0
#include "cpu/tensor/convert.h"

#include <array>

#include "cpu/tensor/half_math.h"

namespace lmn::cpu {
namespace {

template <typename T, typename I>
void decode_plain(const std::byte* x, I* y, int64_t count) {
  const T* from = reinterpret_cast<const T*>(x);
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<I>(from[i]);
}
template <typename T, typename I>
void decode_half(const std::byte* x, I* y, int64_t count) {
  const T* from = reinterpret_cast<const T*>(x);
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<I>(to_float(from[i]));
}

template <DType kType>
const std::array<float, 256>& small_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = decode_small(small_format(kType), static_cast<uint8_t>(i));
    return values;
  }();
  return kValues;
}
template <DType kType, typename I>
void decode_codes(const std::byte* x, I* y, int64_t count) {
  const std::array<float, 256>& values = small_values<kType>();
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<I>(values[static_cast<uint8_t>(x[i])]);
}

// Those that float and double share; integers of at most 16 bits among them.
template <typename I>
Decode<I> decoder_of_small(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return decode_plain<float, I>;
    case DType::kF16:
      return decode_half<Half, I>;
    case DType::kBF16:
      return decode_half<BFloat, I>;
    case DType::kF8E4M3FN:
      return decode_codes<DType::kF8E4M3FN, I>;
    case DType::kF8E4M3FNUZ:
      return decode_codes<DType::kF8E4M3FNUZ, I>;
    case DType::kF8E5M2:
      return decode_codes<DType::kF8E5M2, I>;
    case DType::kF8E5M2FNUZ:
      return decode_codes<DType::kF8E5M2FNUZ, I>;
    case DType::kF8E8M0:
      return decode_codes<DType::kF8E8M0, I>;
    case DType::kF4E2M1:
      return decode_codes<DType::kF4E2M1, I>;
    case DType::kI16:
      return decode_plain<int16_t, I>;
    case DType::kU16:
      return decode_plain<uint16_t, I>;
    case DType::kI8:
    case DType::kI4:
    case DType::kI2:
      return decode_plain<int8_t, I>;
    case DType::kU8:
    case DType::kU4:
    case DType::kU2:
    case DType::kBool:
      return decode_plain<uint8_t, I>;
    default:
      return nullptr;
  }
}

template <typename T, typename I>
void encode_plain(const I* x, std::byte* y, int64_t count, const Narrowing&) {
  T* to = reinterpret_cast<T*>(y);
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(x[i]);
}

template <typename I>
float as_float(I x) {
  if constexpr (std::is_same_v<I, float>) {
    return x;
  } else {
    return narrow_to_odd(static_cast<double>(x));
  }
}
template <typename T, typename I>
void encode_half(const I* x, std::byte* y, int64_t count, const Narrowing&) {
  T* to = reinterpret_cast<T*>(y);
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) from_float(as_float(x[i]), to + i);
}
template <DType kType, typename I>
void encode_codes(const I* x, std::byte* y, int64_t count, const Narrowing& narrowing) {
  const SmallFormat format = small_format(kType);
  for (int64_t i = 0; i < count; ++i)
    y[i] = static_cast<std::byte>(encode_small(format, as_float(x[i]), narrowing.saturate));
}
template <typename I>
void encode_powers(const I* x, std::byte* y, int64_t count, const Narrowing& narrowing) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<std::byte>(
        encode_power(as_float(x[i]), narrowing.rounding, narrowing.saturate));
  }
}

// The low bits of an integer, in a type of kBits, of a byte in memory where there are fewer.
template <typename T, int kBits, typename I>
void encode_integer(const I* x, std::byte* y, int64_t count, const Narrowing&) {
  T* to = reinterpret_cast<T*>(y);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits;
    if constexpr (std::is_same_v<I, int64_t>) {
      bits = static_cast<uint64_t>(x[i]);
    } else {
      bits = static_cast<uint64_t>(integer_of(x[i]));
    }
    if constexpr (kBits < 8 && std::is_signed_v<T>) {
      to[i] = static_cast<T>(static_cast<int64_t>(bits << (64 - kBits)) >> (64 - kBits));
    } else if constexpr (kBits < 8) {
      to[i] = static_cast<T>(bits & ((1u << kBits) - 1));
    } else {
      to[i] = static_cast<T>(bits);
    }
  }
}
template <typename I>
void encode_u64(const I* x, std::byte* y, int64_t count, const Narrowing&) {
  uint64_t* to = reinterpret_cast<uint64_t*>(y);
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(x[i]);
    to[i] = value >= 0x1p64   ? UINT64_MAX
            : value >= 0x1p63 ? static_cast<uint64_t>(value)
                              : static_cast<uint64_t>(integer_of(value));
  }
}
template <typename I>
void encode_bool(const I* x, std::byte* y, int64_t count, const Narrowing&) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<std::byte>(x[i] != I(0));
}

template <typename I>
Encode<I> encoder_from(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return encode_plain<float, I>;
    case DType::kF64:
      return encode_plain<double, I>;
    case DType::kF16:
      return encode_half<Half, I>;
    case DType::kBF16:
      return encode_half<BFloat, I>;
    case DType::kF8E4M3FN:
      return encode_codes<DType::kF8E4M3FN, I>;
    case DType::kF8E4M3FNUZ:
      return encode_codes<DType::kF8E4M3FNUZ, I>;
    case DType::kF8E5M2:
      return encode_codes<DType::kF8E5M2, I>;
    case DType::kF8E5M2FNUZ:
      return encode_codes<DType::kF8E5M2FNUZ, I>;
    case DType::kF8E8M0:
      return encode_powers<I>;
    case DType::kF4E2M1:
      return encode_codes<DType::kF4E2M1, I>;
    case DType::kI64:
      return encode_integer<int64_t, 64, I>;
    case DType::kI32:
      return encode_integer<int32_t, 32, I>;
    case DType::kI16:
      return encode_integer<int16_t, 16, I>;
    case DType::kI8:
      return encode_integer<int8_t, 8, I>;
    case DType::kI4:
      return encode_integer<int8_t, 4, I>;
    case DType::kI2:
      return encode_integer<int8_t, 2, I>;
    case DType::kU64:
      if constexpr (!std::is_same_v<I, int64_t>) return encode_u64<I>;
      return encode_integer<uint64_t, 64, I>;
    case DType::kU32:
      return encode_integer<uint32_t, 32, I>;
    case DType::kU16:
      return encode_integer<uint16_t, 16, I>;
    case DType::kU8:
      return encode_integer<uint8_t, 8, I>;
    case DType::kU4:
      return encode_integer<uint8_t, 4, I>;
    case DType::kU2:
      return encode_integer<uint8_t, 2, I>;
    case DType::kBool:
      return encode_bool<I>;
    default:
      return nullptr;
  }
}

}  // namespace

template <>
Decode<float> decoder<float>(DType dtype) {
  return decoder_of_small<float>(dtype);
}
template <>
Decode<double> decoder<double>(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return decode_plain<double, double>;
    case DType::kI32:
      return decode_plain<int32_t, double>;
    case DType::kU32:
      return decode_plain<uint32_t, double>;
    case DType::kI64:
      return decode_plain<int64_t, double>;
    case DType::kU64:
      return decode_plain<uint64_t, double>;
    default:
      return decoder_of_small<double>(dtype);
  }
}
template <>
Decode<int64_t> decoder<int64_t>(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kI4:
    case DType::kI2:
      return decode_plain<int8_t, int64_t>;
    case DType::kU8:
    case DType::kU4:
    case DType::kU2:
    case DType::kBool:
      return decode_plain<uint8_t, int64_t>;
    case DType::kI16:
      return decode_plain<int16_t, int64_t>;
    case DType::kU16:
      return decode_plain<uint16_t, int64_t>;
    case DType::kI32:
      return decode_plain<int32_t, int64_t>;
    case DType::kU32:
      return decode_plain<uint32_t, int64_t>;
    case DType::kI64:
    case DType::kU64:
      return decode_plain<int64_t, int64_t>;
    default:
      return nullptr;
  }
}

template <>
Encode<float> encoder<float>(DType dtype) {
  return encoder_from<float>(dtype);
}
template <>
Encode<double> encoder<double>(DType dtype) {
  return encoder_from<double>(dtype);
}
template <>
Encode<int64_t> encoder<int64_t>(DType dtype) {
  return encoder_from<int64_t>(dtype);
}

}  // namespace lmn::cpu
