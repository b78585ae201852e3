// SPDX-License-Identifier: Apache-2.0
//
// Values of GGUF metadata over bytes that gguf_parse.cc has checked: conversions with range checks,
// array access.
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "formats/gguf.h"
#include "formats/gguf_directory.h"

namespace lmn::formats {
namespace {

std::string_view string_at(const std::byte* at) {
  return {reinterpret_cast<const char*>(at + 8), static_cast<size_t>(load<uint64_t>(at))};
}

// The first byte behind a checked value.
const std::byte* after(GgufType type, const std::byte* at) {
  if (const size_t size = scalar_size(type)) return at + size;
  if (type == GgufType::kString) return at + 8 + load<uint64_t>(at);
  const auto element = static_cast<GgufType>(load<uint32_t>(at));
  const uint64_t count = load<uint64_t>(at + 4);
  at += 12;
  if (const size_t size = scalar_size(element)) return at + count * size;
  for (uint64_t i = 0; i < count; ++i) at = after(element, at);
  return at;
}

template <typename T>
constexpr std::string_view wanted() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, std::string_view>) return "string";
  if constexpr (std::is_same_v<T, float>) return "f32 or another number";
  if constexpr (std::is_same_v<T, double>) return "f64 or another number";
  if constexpr (std::is_same_v<T, uint8_t>) return "u8 or another integer";
  if constexpr (std::is_same_v<T, int8_t>) return "i8 or another integer";
  if constexpr (std::is_same_v<T, uint16_t>) return "u16 or another integer";
  if constexpr (std::is_same_v<T, int16_t>) return "i16 or another integer";
  if constexpr (std::is_same_v<T, uint32_t>) return "u32 or another integer";
  if constexpr (std::is_same_v<T, int32_t>) return "i32 or another integer";
  if constexpr (std::is_same_v<T, uint64_t>) return "u64 or another integer";
  if constexpr (std::is_same_v<T, int64_t>) return "i64 or another integer";
}

Status wrong_type(GgufType actual, std::string_view expected) {
  return error(Code::kCorrupt, "has type %s, expected %s", to_string(actual).data(),
               expected.data());
}

template <typename T, typename From>
Result<T> narrow(From value) {
  if constexpr (std::is_floating_point_v<T> && std::is_floating_point_v<From>) {
    if (std::isfinite(value) && std::abs(value) > std::numeric_limits<T>::max()) {
      return error(Code::kCorrupt, "is %g, out of range for %s", static_cast<double>(value),
                   wanted<T>().data());
    }
    return static_cast<T>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    constexpr int64_t kExact = int64_t{1} << std::numeric_limits<T>::digits;
    if (std::cmp_greater(value, kExact) || std::cmp_less(value, -kExact)) {
      return error(Code::kCorrupt, "is %s, which no %s holds exactly",
                   std::to_string(value).c_str(), sizeof(T) == 4 ? "f32" : "f64");
    }
    return static_cast<T>(value);
  } else {
    if (!std::in_range<T>(value)) {
      return error(Code::kCorrupt, "is %s, out of range: expected %s between %s and %s",
                   std::to_string(value).c_str(), wanted<T>().data(),
                   std::to_string(std::numeric_limits<T>::min()).c_str(),
                   std::to_string(std::numeric_limits<T>::max()).c_str());
    }
    return static_cast<T>(value);
  }
}

template <typename T>
Result<T> number_at(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kU8:
      return narrow<T>(load<uint8_t>(at));
    case GgufType::kI8:
      return narrow<T>(load<int8_t>(at));
    case GgufType::kU16:
      return narrow<T>(load<uint16_t>(at));
    case GgufType::kI16:
      return narrow<T>(load<int16_t>(at));
    case GgufType::kU32:
      return narrow<T>(load<uint32_t>(at));
    case GgufType::kI32:
      return narrow<T>(load<int32_t>(at));
    case GgufType::kU64:
      return narrow<T>(load<uint64_t>(at));
    case GgufType::kI64:
      return narrow<T>(load<int64_t>(at));
    case GgufType::kF32:
      if constexpr (std::is_floating_point_v<T>) return narrow<T>(load<float>(at));
      break;
    case GgufType::kF64:
      if constexpr (std::is_floating_point_v<T>) return narrow<T>(load<double>(at));
      break;
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return wrong_type(type, wanted<T>());
}

// The file's type that is T itself, so that an array of it is one memcpy.
template <typename T>
constexpr GgufType same_type() {
  if constexpr (std::is_same_v<T, float>) return GgufType::kF32;
  if constexpr (std::is_same_v<T, double>) return GgufType::kF64;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::kI8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::kU16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::kI16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::kU32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::kI32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::kU64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::kI64;
}

}  // namespace

std::string_view to_string(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown";
}

std::string_view GgufStrings::iterator::operator*() const { return string_at(at_); }

GgufStrings::iterator& GgufStrings::iterator::operator++() {
  at_ = after(GgufType::kString, at_);
  return *this;
}

std::vector<std::string_view> GgufStrings::index() const {
  std::vector<std::string_view> views;
  views.reserve(size_);
  for (std::string_view s : *this) views.push_back(s);
  return views;
}

template <typename T>
Result<T> GgufValue::get() const {
  if constexpr (std::is_same_v<T, bool>) {
    if (type_ != GgufType::kBool) return wrong_type(type_, wanted<T>());
    return load<uint8_t>(begin_) != 0;
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    if (type_ != GgufType::kString) return wrong_type(type_, wanted<T>());
    return string_at(begin_);
  } else {
    return number_at<T>(type_, begin_);
  }
}

Result<GgufArray> GgufValue::array() const {
  if (type_ != GgufType::kArray) return wrong_type(type_, "array");
  return GgufArray(static_cast<GgufType>(load<uint32_t>(begin_)),
                   static_cast<size_t>(load<uint64_t>(begin_ + 4)), begin_ + 12, end_);
}

GgufValue GgufArray::at(size_t i) const {
  LMN_CHECK(i < size_);
  const std::byte* at = begin_;
  if (const size_t size = scalar_size(element_)) {
    at += i * size;
  } else {
    for (size_t k = 0; k < i; ++k) at = after(element_, at);
  }
  return GgufValue(element_, at, after(element_, at));
}

template <typename T>
Result<std::vector<T>> GgufArray::numbers() const {
  if (element_ == GgufType::kBool || scalar_size(element_) == 0) {
    return error(Code::kCorrupt, "is an array of %s, expected one of %s",
                 to_string(element_).data(), wanted<T>().data());
  }
  std::vector<T> values(size_);
  if (element_ == same_type<T>()) {
    if (size_ > 0) std::memcpy(values.data(), begin_, size_ * sizeof(T));
    return values;
  }
  for (size_t i = 0; i < size_; ++i) {
    Result<T> value = number_at<T>(element_, begin_ + i * scalar_size(element_));
    if (!value.ok()) return std::move(value).status().with_context("element " + std::to_string(i));
    values[i] = *value;
  }
  return values;
}

Result<GgufStrings> GgufArray::strings() const {
  if (element_ != GgufType::kString) {
    return error(Code::kCorrupt, "is an array of %s, expected one of string",
                 to_string(element_).data());
  }
  return GgufStrings(begin_, end_, size_);
}

template Result<bool> GgufValue::get<bool>() const;
template Result<std::string_view> GgufValue::get<std::string_view>() const;
#define X(T)                                    \
  template Result<T> GgufValue::get<T>() const; \
  template Result<std::vector<T>> GgufArray::numbers<T>() const;
LMN_GGUF_NUMBERS(X)
#undef X

}  // namespace lmn::formats
