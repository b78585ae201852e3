// SPDX-License-Identifier: Apache-2.0
//
// UTF-8: validation with the byte offset of the first fault, reading code points of text known to
// be well-formed, and the replacement of ill-formed bytes by U+FFFD (one per maximal subpart:
// Unicode 15, section 3.9, table 3-8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"

namespace lmn::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What one byte sequence at the front of `bytes` (not empty) is.
struct Utf8Step {
  enum Kind : uint8_t { kCharacter, kIllFormed, kIncomplete };
  Kind kind;
  uint8_t size;  // bytes of the character, of the maximal subpart, or of the incomplete tail
};
Utf8Step next_utf8(std::string_view bytes);

// Offset of the first byte that is not part of a well-formed character, or npos.
size_t find_invalid_utf8(std::string_view bytes);
// INVALID_ARGUMENT naming `what` and the offset, or OK.
Status check_utf8(std::string_view bytes, std::string_view what);

// Code point at `p` of well-formed text; `size` gets its length in bytes.
inline char32_t read_utf8(const char* p, int& size) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    size = 1;
    return lead;
  }
  if (lead < 0xE0) {
    size = 2;
    return (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  }
  if (lead < 0xF0) {
    size = 3;
    return (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  size = 4;
  return (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

void append_utf8(std::string& out, char32_t code_point);

}  // namespace lmn::text
