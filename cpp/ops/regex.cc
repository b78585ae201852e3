// SPDX-License-Identifier: Apache-2.0
//
// Matching: the set of places in the program where the automaton may be, moved on by one character
// at a time. regex_parse.cc makes the program.
#include "ops/regex.h"

#include <algorithm>

#include "ops/unicode.h"

namespace lmn::ops {
namespace {

bool is_word(int64_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

// -1 stands for the ends of the text.
bool holds(Regex::Assert what, int64_t before, int64_t after) {
  switch (what) {
    case Regex::Assert::kBeginText:
      return before < 0;
    case Regex::Assert::kEndText:
      return after < 0;
    case Regex::Assert::kBeginLine:
      return before < 0 || before == '\n';
    case Regex::Assert::kEndLine:
      return after < 0 || after == '\n';
    case Regex::Assert::kWordBoundary:
      return is_word(before) != is_word(after);
    case Regex::Assert::kNoWordBoundary:
      break;
  }
  return is_word(before) == is_word(after);
}

}  // namespace

bool CharSet::contains(uint32_t c) const {
  const auto in_ranges = [this](uint32_t x) {
    const auto above = std::upper_bound(
        ranges.begin(), ranges.end(), x,
        [](uint32_t value, const std::pair<uint32_t, uint32_t>& r) { return value < r.first; });
    return above != ranges.begin() && x <= std::prev(above)->second;
  };
  bool found = in_ranges(c);
  if (!found && fold) found = in_ranges(to_lower(c)) || in_ranges(to_upper(c));
  return found != negated;
}

bool Regex::full_match(std::string_view text) const {
  const size_t size = program_.size();
  // Places that wait for a character, each once: mark[place] is the step that it was added in.
  std::vector<uint32_t> now, next, stack;
  std::vector<uint64_t> mark(size, 0);
  uint64_t step = 0;
  bool matched = false;
  const auto add = [&](std::vector<uint32_t>& list, uint32_t start, int64_t before, int64_t after) {
    stack.push_back(start);
    while (!stack.empty()) {
      const uint32_t place = stack.back();
      stack.pop_back();
      if (mark[place] == step) continue;
      mark[place] = step;
      const Instruction& i = program_[place];
      switch (i.op) {
        case Op::kJump:
          stack.push_back(i.a);
          break;
        case Op::kSplit:
          stack.push_back(i.b);
          stack.push_back(i.a);
          break;
        case Op::kAssert:
          if (holds(static_cast<Assert>(i.a), before, after)) stack.push_back(place + 1);
          break;
        case Op::kMatch:
          if (after < 0) matched = true;
          break;
        case Op::kChar:
        case Op::kSet:
          list.push_back(place);
          break;
      }
    }
  };
  size_t at = 0;
  int64_t c = at < text.size() ? static_cast<int64_t>(decode_utf8(text, &at)) : -1;
  ++step;
  add(now, 0, -1, c);
  while (c >= 0 && !now.empty()) {
    const int64_t after = at < text.size() ? static_cast<int64_t>(decode_utf8(text, &at)) : -1;
    ++step;
    next.clear();
    const auto code = static_cast<uint32_t>(c);
    for (const uint32_t place : now) {
      const Instruction& i = program_[place];
      const bool takes = i.op == Op::kChar ? i.a == code : sets_[i.a].contains(code);
      if (takes) add(next, place + 1, c, after);
    }
    now.swap(next);
    c = after;
  }
  return matched;
}

}  // namespace lmn::ops
