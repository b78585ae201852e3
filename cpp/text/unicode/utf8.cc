// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/utf8.h"

#include <cstring>

namespace lmn::text {

Utf8Step next_utf8(std::string_view bytes) {
  const auto byte = [bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8Step::kCharacter, 1};
  // Table 3-7 of the standard: the range of the second byte depends on the lead byte, later ones
  // are 80..BF.
  unsigned low = 0x80, high = 0xBF;
  size_t size = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if ((lead & 0xF0) == 0xE0) {
    size = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;  // no surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // no more than U+10FFFF
  } else {
    return {Utf8Step::kIllFormed, 1};
  }
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Step::kIncomplete, static_cast<uint8_t>(i)};
    if (byte(i) < low || byte(i) > high) return {Utf8Step::kIllFormed, static_cast<uint8_t>(i)};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kCharacter, static_cast<uint8_t>(size)};
}

size_t find_invalid_utf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t word;
    if (bytes.size() - at >= sizeof(word)) {  // eight ASCII bytes at a time
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Step step = next_utf8(bytes.substr(at));
    if (step.kind != Utf8Step::kCharacter) return at;
    at += step.size;
  }
  return std::string_view::npos;
}

Status check_utf8(std::string_view bytes, std::string_view what) {
  const size_t at = find_invalid_utf8(bytes);
  if (at == std::string_view::npos) return {};
  return error(Code::kInvalidArgument,
               "%.*s is not well-formed UTF-8: byte 0x%02X at offset %zu of %zu; convert the text "
               "to UTF-8 first",
               static_cast<int>(what.size()), what.data(),
               static_cast<unsigned>(static_cast<unsigned char>(bytes[at])), at, bytes.size());
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace lmn::text
