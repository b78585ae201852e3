// SPDX-License-Identifier: Apache-2.0
#include "formats/bytes.h"

#include <cstdint>
#include <cstdio>

namespace lmn::formats {
namespace {

// Bytes of the character that `s`, which is not empty, begins with; 0: it is none.
size_t character_bytes(std::string_view s) {
  const auto c = static_cast<unsigned char>(s[0]);
  if (c < 0x80) return 1;
  const int extra = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
  if (c < 0xC2 || c > 0xF4 || s.size() <= static_cast<size_t>(extra)) return 0;
  uint32_t point = c & (0x3Fu >> extra);
  for (int k = 1; k <= extra; ++k) {
    const auto next = static_cast<unsigned char>(s[static_cast<size_t>(k)]);
    if ((next & 0xC0) != 0x80) return 0;
    point = (point << 6) | (next & 0x3Fu);
  }
  if (extra == 2 && (point < 0x800 || (point >= 0xD800 && point < 0xE000))) return 0;
  if (extra == 3 && (point < 0x10000 || point > 0x10FFFF)) return 0;
  return static_cast<size_t>(extra) + 1;
}

// `allowed` is asked about each ASCII character.
template <typename Allowed>
bool is_utf8(std::string_view s, Allowed allowed) {
  while (!s.empty()) {
    const auto c = static_cast<unsigned char>(s[0]);
    const size_t bytes = character_bytes(s);
    if (bytes == 0 || (c < 0x80 && !allowed(c))) return false;
    s.remove_prefix(bytes);
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

void make_utf8_without_nul(std::span<char> text) noexcept {
  std::string_view rest(text.data(), text.size());
  while (!rest.empty()) {
    const size_t bytes = character_bytes(rest);
    if (bytes == 0 || rest[0] == '\0') text[text.size() - rest.size()] = '?';
    rest.remove_prefix(bytes == 0 ? 1 : bytes);
  }
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
