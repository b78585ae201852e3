// SPDX-License-Identifier: Apache-2.0
//
// What every reader of hostile bytes needs, whatever its format: unaligned loads, checks of text,
// and names fit for a message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace lmn::formats {

static_assert(std::endian::native == std::endian::little,
              "values are loaded as they lie in the file");

// Unaligned little-endian load.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Valid UTF-8 (RFC 3629: no surrogates, no overlong forms) without control characters.
bool is_printable_utf8(std::string_view s);
// Valid UTF-8 without NUL: what a C string and a Python str can both hold.
bool is_utf8_without_nul(std::string_view s);
// Makes it so: bytes that are neither become question marks.
void make_utf8_without_nul(std::span<char> text) noexcept;

// 'name' for a message: quoted, control characters and bytes beyond ASCII escaped, long names
// shortened.
std::string quoted(std::string_view name);

}  // namespace lmn::formats
