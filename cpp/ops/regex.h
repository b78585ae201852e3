// SPDX-License-Identifier: Apache-2.0
//
// Regular expressions of RE2's syntax (https://github.com/google/re2/wiki/Syntax) over UTF-8,
// matched by simulating an automaton: time is the product of the lengths of pattern and text,
// whatever both are, and nothing recurses over the text. Whole matches only: no captures. Not
// there: \p classes and \C. Immutable after parse(); any thread may match.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"

namespace lmn::ops {

// Code points. [begin, end] pairs, or all others; `fold` also takes those that differ by case.
struct CharSet {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  bool negated = false;
  bool fold = false;

  bool contains(uint32_t c) const;
};

class Regex {
 public:
  // UNSUPPORTED says what the pattern has that is wrong or not supported, and where.
  static Result<Regex> parse(std::string_view pattern);
  bool full_match(std::string_view text) const;

  enum class Op : uint8_t { kChar, kSet, kSplit, kJump, kAssert, kMatch };
  enum class Assert : uint8_t {
    kBeginText,
    kEndText,
    kBeginLine,
    kEndLine,
    kWordBoundary,
    kNoWordBoundary
  };
  // kChar: the code point; kSet: of sets; kSplit: two places to go on; kJump: one; kAssert: which.
  struct Instruction {
    Op op;
    uint32_t a = 0, b = 0;
  };

 private:
  std::vector<Instruction> program_;
  std::vector<CharSet> sets_;
};

}  // namespace lmn::ops
