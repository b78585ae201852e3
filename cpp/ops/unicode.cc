// SPDX-License-Identifier: Apache-2.0
#include "ops/unicode.h"

#include <algorithm>
#include <iterator>

namespace lmn::ops {
namespace {

// Code points first, first + stride, … last, and what each is to be added.
struct CaseRange {
  uint32_t first, last, stride;
  int32_t delta;
};
constexpr CaseRange kToLower[] = {
#define LMN_TO_LOWER(first, last, stride, delta) {first, last, stride, delta},
#include "ops/unicode_case_table.inc"
#undef LMN_TO_LOWER
};
constexpr CaseRange kToUpper[] = {
#define LMN_TO_UPPER(first, last, stride, delta) {first, last, stride, delta},
#include "ops/unicode_case_table.inc"
#undef LMN_TO_UPPER
};

template <size_t kSize>
uint32_t map(const CaseRange (&table)[kSize], uint32_t code) {
  const CaseRange* above =
      std::upper_bound(std::begin(table), std::end(table), code,
                       [](uint32_t c, const CaseRange& range) { return c < range.first; });
  if (above == std::begin(table)) return code;
  const CaseRange& range = above[-1];
  if (code > range.last || (code - range.first) % range.stride != 0) return code;
  return static_cast<uint32_t>(static_cast<int64_t>(code) + range.delta);
}

template <typename F>
std::string map_text(std::string_view text, F&& f) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t code = decode_utf8(text, &at);
    const uint32_t mapped = f(code);
    if (mapped == code) {
      out.append(text.substr(begin, at - begin));
    } else {
      append_utf8(mapped, &out);
    }
  }
  return out;
}

}  // namespace

uint32_t decode_utf8(std::string_view text, size_t* at) {
  constexpr uint32_t kInvalid = 0xFFFD;
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = byte((*at)++);
  if (first < 0x80) return first;
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || text.size() - *at < more) return kInvalid;
  uint32_t code = first & (0x3Fu >> more);
  for (size_t i = 0; i < more; ++i) {
    if ((byte(*at + i) & 0xC0) != 0x80) return kInvalid;
    code = code << 6 | (byte(*at + i) & 0x3F);
  }
  static constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (code < kLeast[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return kInvalid;
  *at += more;
  return code;
}

void append_utf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

uint32_t to_lower(uint32_t code) { return map(kToLower, code); }
uint32_t to_upper(uint32_t code) { return map(kToUpper, code); }
std::string to_lower(std::string_view text) {
  return map_text(text, [](uint32_t code) { return to_lower(code); });
}
std::string to_upper(std::string_view text) {
  return map_text(text, [](uint32_t code) { return to_upper(code); });
}

}  // namespace lmn::ops
