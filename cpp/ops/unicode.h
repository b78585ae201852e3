// SPDX-License-Identifier: Apache-2.0
//
// The little that operators on strings need of Unicode: UTF-8 and simple case mapping (one code
// point to one, no locale). The table, written by unicode_case_table.py, names its Unicode version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmn::ops {

// The code point at `*at` (< text.size()), and moves behind it. A byte that begins no valid
// sequence is taken alone, as U+FFFD.
uint32_t decode_utf8(std::string_view text, size_t* at);
void append_utf8(uint32_t code, std::string* out);

uint32_t to_lower(uint32_t code);
uint32_t to_upper(uint32_t code);
// Of all code points; bytes that are not UTF-8 stay as they are.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);

}  // namespace lmn::ops
