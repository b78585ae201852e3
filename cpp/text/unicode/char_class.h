// SPDX-License-Identifier: Apache-2.0
//
// Character classes, as the regular expressions of tokenizers distinguish them. Unicode 16.0.
#pragma once

#include <array>
#include <cstdint>

namespace lmn::text {

enum class CharClass : uint8_t {
  kOther = 0,
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 3,   // \s: the White_Space property
};

CharClass classify_beyond_ascii(char32_t code_point);

inline constexpr std::array<CharClass, 128> kAsciiClass = [] {
  std::array<CharClass, 128> table{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    const bool space = c == ' ' || (c >= 0x09 && c <= 0x0D);
    table[c] = letter                 ? CharClass::kLetter
               : c >= '0' && c <= '9' ? CharClass::kNumber
               : space                ? CharClass::kSpace
                                      : CharClass::kOther;
  }
  return table;
}();

inline CharClass classify(char32_t code_point) {
  return code_point < 128 ? kAsciiClass[code_point] : classify_beyond_ascii(code_point);
}

}  // namespace lmn::text
