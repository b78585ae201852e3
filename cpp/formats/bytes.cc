// SPDX-License-Identifier: Apache-2.0
#include "formats/bytes.h"

#include <cstdint>
#include <cstdio>

namespace lmn::formats {
namespace {

// `allowed` is asked about each ASCII character.
template <typename Allowed>
bool is_utf8(std::string_view s, Allowed allowed) {
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x80) {
      if (!allowed(c)) return false;
      ++i;
      continue;
    }
    const int extra = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    if (c < 0xC2 || c > 0xF4 || s.size() - i <= static_cast<size_t>(extra)) return false;
    uint32_t point = c & (0x3Fu >> extra);
    for (int k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(s[i + static_cast<size_t>(k)]);
      if ((next & 0xC0) != 0x80) return false;
      point = (point << 6) | (next & 0x3Fu);
    }
    if (extra == 2 && (point < 0x800 || (point >= 0xD800 && point < 0xE000))) return false;
    if (extra == 3 && (point < 0x10000 || point > 0x10FFFF)) return false;
    i += static_cast<size_t>(extra) + 1;
  }
  return true;
}

}  // namespace

bool is_printable_utf8(std::string_view s) {
  return is_utf8(s, [](unsigned char c) { return c >= 0x20 && c != 0x7F; });
}

bool is_utf8_without_nul(std::string_view s) {
  return is_utf8(s, [](unsigned char c) { return c != 0; });
}

std::string quoted(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", unsigned{static_cast<unsigned char>(c)});
      out += escape;
    }
  }
  return out + (name.size() > kShown ? "…'" : "'");
}

}  // namespace lmn::formats
