// SPDX-License-Identifier: Apache-2.0
#include "server/utf8.h"

#include <algorithm>

namespace lmn::server {
namespace {

// Bytes of the well-formed character that `text` begins with, or minus the bytes of the ill-formed
// part (table 3-7 of the standard).
int first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return -static_cast<int>(i);
    low = 0x80;
    high = 0xBF;
  }
  return static_cast<int>(length);
}

}  // namespace

void append_lossy(std::string* out, std::string_view bytes) {
  while (!bytes.empty()) {
    const int length = first_character(bytes);
    if (length > 0) {
      *out += bytes.substr(0, static_cast<size_t>(length));
      bytes.remove_prefix(static_cast<size_t>(length));
    } else {
      *out += "\xEF\xBF\xBD";
      bytes.remove_prefix(static_cast<size_t>(-length));
    }
  }
}

std::string_view cut(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy(&out, bytes);
  return out;
}

}  // namespace lmn::server
