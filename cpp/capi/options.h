// SPDX-License-Identifier: Apache-2.0
//
// Structs that cross the ABI by pointer and start with `uint32_t struct_size`: the one place that
// reads the callers' and writes the library's, so that an old client works with a new library and
// the other way round. Every ABI struct has a size that is a multiple of 8 and no holes
// (tests/abi/layout_test.c): a size that cuts a field in two belongs to no version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "capi/guard.h"

namespace lmn::capi {

// No struct of this ABI will ever be larger; a larger number is an uninitialised field.
inline constexpr uint32_t kMaxStructBytes = 4096;

namespace detail {
Status check_struct_size(uint32_t size, size_t known, const char* type);
Status check_unknown_tail(const void* given, uint32_t size, size_t known, const char* type);
}  // namespace detail

// Copies the caller's options into `out`, which has the defaults (zeros) where the caller's struct
// ends. NULL: all defaults.
template <typename T>
Status read_options(const T* given, const char* type, T* out) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0 &&
                sizeof(T) % 8 == 0);
  std::memset(out, 0, sizeof(T));
  out->struct_size = sizeof(T);
  if (given == nullptr) return {};
  uint32_t size;
  std::memcpy(&size, given, sizeof size);
  LMN_RETURN_IF_ERROR(detail::check_struct_size(size, sizeof(T), type));
  LMN_RETURN_IF_ERROR(detail::check_unknown_tail(given, size, sizeof(T), type));
  std::memcpy(out, given, size < sizeof(T) ? size : sizeof(T));
  return {};
}

// Before work is done for an output struct: is it there, and is its size one?
template <typename T>
Status check_output(const T* out, const char* argument, const char* type) {
  LMN_RETURN_IF_ERROR(require(out, argument));
  uint32_t size;
  std::memcpy(&size, out, sizeof size);
  return detail::check_struct_size(size, sizeof(T), type);
}

// Fills a struct that check_output has passed: no further than its size, and zeros where this
// version knows no field.
template <typename T>
void write_output(const T& value, T* out) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0 &&
                sizeof(T) % 8 == 0);
  uint32_t size;
  std::memcpy(&size, out, sizeof size);
  constexpr size_t kHead = sizeof(uint32_t);  // struct_size stays the caller's
  const size_t known = size < sizeof(T) ? size : sizeof(T);
  char* bytes = reinterpret_cast<char*>(out);
  std::memcpy(bytes + kHead, reinterpret_cast<const char*>(&value) + kHead, known - kHead);
  std::memset(bytes + known, 0, size - known);
}

// UNSUPPORTED when `flags` has bits outside `known`: a newer caller's, or noise.
Status check_flags(uint32_t flags, uint32_t known, const char* field);
// UNSUPPORTED when a reserved field is not 0.
Status check_reserved(uint32_t value, const char* field);
// INVALID_ARGUMENT when a 0-or-1 field is neither.
Status check_bool(uint32_t value, const char* field);

// The rule for (buffer, capacity, count) outputs of tokenizer.h. `copy` writes the items, of which
// there are `needed`.
template <typename T, typename Copy>
Outcome write_items(T* buffer, size_t capacity, size_t needed, size_t* count, Copy&& copy) {
  *count = needed;
  if (capacity < needed) {
    if (capacity == 0 && buffer == nullptr) return Outcome::answer(Code::kBufferTooSmall, nullptr);
    return error(Code::kBufferTooSmall, "the buffer holds %zu items and %zu are needed", capacity,
                 needed);
  }
  if (needed > 0) copy(buffer);
  return {};
}
Status check_buffer(const void* buffer, size_t capacity, const char* buffer_argument,
                    const void* count, const char* count_argument);

}  // namespace lmn::capi
