// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/char_class.h"

#include <algorithm>
#include <iterator>

namespace lmn::text {
namespace {
#include "text/unicode/char_class_table.inc"
}  // namespace

CharClass classify_beyond_ascii(char32_t code_point) {
  // The last change at or before the code point: its class bits are below those of code_point << 2
  // | 3.
  const uint32_t key = static_cast<uint32_t>(code_point) << 2 | 3u;
  const auto after = std::upper_bound(std::begin(kClassChanges), std::end(kClassChanges), key);
  return static_cast<CharClass>(*(after - 1) & 3u);
}

}  // namespace lmn::text
