// SPDX-License-Identifier: Apache-2.0
//
// Tokens of a Jinja template, with the whitespace rules of Jinja2 3.1 under trim_blocks and
// lstrip_blocks: a newline after a block or a comment goes, blanks before one that starts a line
// go, "-" strips all whitespace on its side, "+" keeps it. Newlines become \n and one at the end of
// the template goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::text {

struct TemplateToken {
  enum Kind : uint8_t {
    kText,
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,
    kInteger,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;    // of kText and kString the value, of kName and kOperator the spelling
  int64_t number = 0;  // of kInteger
  int line = 0;        // from 1
};

// UNSUPPORTED: not a template, or a part of Jinja that is not known here. The last token is kEnd.
Result<std::vector<TemplateToken>> lex_template(std::string_view source);

// An error of the kind above, with the remedy that every caller needs to read.
Status unsupported_template(int line, const std::string& what);

// `text` without whitespace at its sides, as Python's str.strip: Unicode whitespace and U+001C to
// U+001F.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace lmn::text
