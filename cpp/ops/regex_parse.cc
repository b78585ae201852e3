// SPDX-License-Identifier: Apache-2.0
//
// From a pattern to a program (Thompson's construction). A tree of nodes first, because a counted
// repetition writes its operand's instructions several times. All sizes are bounded: nesting, the
// program, and the steps that it takes to write it.
#include <algorithm>
#include <cstdio>
#include <string>

#include "ops/regex.h"
#include "ops/unicode.h"

namespace lmn::ops {
namespace {

constexpr int kMaxDepth = 200;          // of groups in groups
constexpr int kMaxCount = 1000;         // of {n,m}, as in RE2
constexpr size_t kMaxProgram = 100000;  // instructions
constexpr int kMaxSteps = 1000000;      // of writing the program
constexpr uint32_t kMaxCode = 0x10FFFF;
constexpr uint32_t kEnd = ~uint32_t{0};  // no more characters

enum class NodeKind : uint8_t { kEmpty, kChar, kSet, kAssert, kConcat, kAlternate, kRepeat };
struct Node {
  NodeKind kind = NodeKind::kEmpty;
  uint32_t value = 0;       // code point, set, assertion
  int least = 0, most = 0;  // of kRepeat; most -1: no limit
  std::vector<uint32_t> children;
};

struct Flags {
  bool fold = false, dot_all = false, multi_line = false;
};

class Parser {
 public:
  Parser(std::string_view pattern, std::vector<CharSet>& sets) : text_(pattern), sets_(sets) {}

  Status parse(uint32_t* root) {
    LMN_RETURN_IF_ERROR(alternation(0, root));
    return at_ == text_.size() ? Status() : wrong("a ) without (");
  }
  const Node& node(uint32_t i) const { return nodes_[i]; }

 private:
  Status wrong(const char* what) const {
    return error(Code::kUnsupported, "pattern, byte %zu: %s", at_, what);
  }
  uint32_t peek() const {
    size_t at = at_;
    return at < text_.size() ? decode_utf8(text_, &at) : kEnd;
  }
  uint32_t take() { return at_ < text_.size() ? decode_utf8(text_, &at_) : kEnd; }
  bool accept(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  uint32_t add(NodeKind kind, uint32_t value = 0) {
    nodes_.push_back({kind, value, 0, 0, {}});
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t add_set(CharSet set) {
    std::sort(set.ranges.begin(), set.ranges.end());
    // Merged, so that a binary search for the last range that begins before a code point suffices.
    std::vector<std::pair<uint32_t, uint32_t>> merged;
    for (const auto& range : set.ranges) {
      if (!merged.empty() && range.first <= merged.back().second + 1) {
        merged.back().second = std::max(merged.back().second, range.second);
      } else {
        merged.push_back(range);
      }
    }
    set.ranges = std::move(merged);
    sets_.push_back(std::move(set));
    return add(NodeKind::kSet, static_cast<uint32_t>(sets_.size() - 1));
  }
  uint32_t add_char(uint32_t code) {
    if (!flags_.fold || (to_lower(code) == code && to_upper(code) == code)) {
      return add(NodeKind::kChar, code);
    }
    const uint32_t lower = to_lower(code), upper = to_upper(code);
    return add_set({{{code, code}, {lower, lower}, {upper, upper}}, false, true});
  }

  // Flags set inside a group end with it.
  Status alternation(int depth, uint32_t* out) {
    if (depth > kMaxDepth) return wrong("groups are nested too deep");
    const Flags outside = flags_;
    std::vector<uint32_t> branches(1);
    LMN_RETURN_IF_ERROR(concatenation(depth, &branches[0]));
    while (accept("|")) {
      branches.push_back(0);
      LMN_RETURN_IF_ERROR(concatenation(depth, &branches.back()));
    }
    flags_ = outside;
    *out = branches[0];
    if (branches.size() > 1) {
      *out = add(NodeKind::kAlternate);
      nodes_[*out].children = std::move(branches);
    }
    return {};
  }

  Status concatenation(int depth, uint32_t* out) {
    std::vector<uint32_t> parts;
    bool repeated = false;  // the last part is a repetition, which is not repeated again
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      int least, most;
      if (repetition(&least, &most)) {
        if (parts.empty()) return wrong("nothing to repeat");
        if (repeated) return wrong("a repetition of a repetition; put the first in ( )");
        if (least > kMaxCount || most > kMaxCount) return wrong("a repetition above 1000");
        if (most >= 0 && most < least) return wrong("a repetition {n,m} with m below n");
        accept("?");  // of several ways to match, any will do
        const uint32_t repeat = add(NodeKind::kRepeat);
        nodes_[repeat].least = least;
        nodes_[repeat].most = most;
        nodes_[repeat].children = {parts.back()};
        parts.back() = repeat;
        repeated = true;
        continue;
      }
      repeated = false;
      LMN_RETURN_IF_ERROR(atom(depth, &parts));
    }
    if (parts.size() == 1) {
      *out = parts[0];
      return {};
    }
    *out = add(parts.empty() ? NodeKind::kEmpty : NodeKind::kConcat);
    nodes_[*out].children = std::move(parts);
    return {};
  }

  // *, +, ?, {n}, {n,}, {n,m}. Other braces are characters.
  bool repetition(int* least, int* most) {
    if (accept("*")) return *least = 0, *most = -1, true;
    if (accept("+")) return *least = 1, *most = -1, true;
    if (accept("?")) return *least = 0, *most = 1, true;
    const size_t begin = at_;
    const auto number = [this](int* value) {
      const size_t first = at_;
      *value = 0;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        *value = std::min(*value * 10 + (text_[at_] - '0'), kMaxCount + 1);
        ++at_;
      }
      return at_ > first;
    };
    if (accept("{") && number(least)) {
      *most = *least;
      if (accept(",") && !number(most)) *most = -1;
      if (accept("}")) return true;
    }
    at_ = begin;
    return false;
  }

  Status atom(int depth, std::vector<uint32_t>* parts) {
    const uint32_t c = take();
    switch (c) {
      case '(':
        return group(depth, parts);
      case '[': {
        CharSet set;
        LMN_RETURN_IF_ERROR(brackets(&set));
        parts->push_back(add_set(std::move(set)));
        return {};
      }
      case '.':
        parts->push_back(flags_.dot_all ? add_set({{{0, kMaxCode}}, false, false})
                                        : add_set({{{'\n', '\n'}}, true, false}));
        return {};
      case '^':
        return assertion(flags_.multi_line ? Regex::Assert::kBeginLine : Regex::Assert::kBeginText,
                         parts);
      case '$':
        return assertion(flags_.multi_line ? Regex::Assert::kEndLine : Regex::Assert::kEndText,
                         parts);
      case '\\':
        return escape(parts);
      default:
        parts->push_back(add_char(c));
        return {};
    }
  }

  Status assertion(Regex::Assert what, std::vector<uint32_t>* parts) {
    parts->push_back(add(NodeKind::kAssert, static_cast<uint32_t>(what)));
    return {};
  }

  // Behind a "(".
  Status group(int depth, std::vector<uint32_t>* parts) {
    const Flags outside = flags_;
    if (accept("?P<") || (text_.substr(at_, 2) == "?<" && text_.substr(at_, 3) != "?<=" &&
                          text_.substr(at_, 3) != "?<!" && accept("?<"))) {
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '>') ++at_;
      if (at_ == begin || !accept(">")) return wrong("a group's name without an end");
    } else if (accept("?")) {
      bool value = true;
      while (!accept(":")) {
        if (accept(")")) return {};  // flags of what follows in the group around
        if (accept("-")) {
          value = false;
        } else if (accept("i")) {
          flags_.fold = value;
        } else if (accept("s")) {
          flags_.dot_all = value;
        } else if (accept("m")) {
          flags_.multi_line = value;
        } else if (!accept("U")) {
          return wrong("a group (?…) of a kind that is not supported");
        }
      }
    }
    parts->push_back(0);
    LMN_RETURN_IF_ERROR(alternation(depth + 1, &parts->back()));
    flags_ = outside;
    return accept(")") ? Status() : wrong("a ( without )");
  }

  // The ranges of \d, \s, \w and of their capitals. False: `letter` is none of these.
  static bool perl_class(uint32_t letter, CharSet* set) {
    switch (letter) {
      case 'd':
        set->ranges.insert(set->ranges.end(), {{'0', '9'}});
        return true;
      case 's':
        set->ranges.insert(set->ranges.end(), {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}});
        return true;
      case 'w':
        set->ranges.insert(set->ranges.end(), {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
        return true;
      case 'D':
        set->ranges.insert(set->ranges.end(), {{0, '0' - 1}, {'9' + 1, kMaxCode}});
        return true;
      case 'S':
        set->ranges.insert(set->ranges.end(),
                           {{0, '\t' - 1}, {'\v', '\v'}, {'\r' + 1, ' ' - 1}, {' ' + 1, kMaxCode}});
        return true;
      case 'W':
        set->ranges.insert(set->ranges.end(), {{0, '0' - 1},
                                               {'9' + 1, 'A' - 1},
                                               {'Z' + 1, '_' - 1},
                                               {'_' + 1, 'a' - 1},
                                               {'z' + 1, kMaxCode}});
        return true;
      default:
        return false;
    }
  }

  Status escape(std::vector<uint32_t>* parts) {
    if (accept("Q")) {
      while (at_ < text_.size() && !accept("\\E")) parts->push_back(add_char(take()));
      return {};
    }
    if (accept("A")) return assertion(Regex::Assert::kBeginText, parts);
    if (accept("z")) return assertion(Regex::Assert::kEndText, parts);
    if (accept("b")) return assertion(Regex::Assert::kWordBoundary, parts);
    if (accept("B")) return assertion(Regex::Assert::kNoWordBoundary, parts);
    CharSet set;
    if (perl_class(peek(), &set)) {
      take();
      parts->push_back(add_set(std::move(set)));
      return {};
    }
    uint32_t code;
    LMN_RETURN_IF_ERROR(escaped_char(&code));
    parts->push_back(add_char(code));
    return {};
  }

  // Behind a backslash, what stands for one character.
  Status escaped_char(uint32_t* code) {
    const uint32_t c = take();
    const auto digit = [](uint32_t x) -> int {
      if (x >= '0' && x <= '9') return static_cast<int>(x - '0');
      if (x >= 'a' && x <= 'f') return static_cast<int>(x - 'a') + 10;
      if (x >= 'A' && x <= 'F') return static_cast<int>(x - 'A') + 10;
      return 16;
    };
    switch (c) {
      case 'a':
        return *code = '\a', Status();
      case 'f':
        return *code = '\f', Status();
      case 'n':
        return *code = '\n', Status();
      case 'r':
        return *code = '\r', Status();
      case 't':
        return *code = '\t', Status();
      case 'v':
        return *code = '\v', Status();
      case 'x': {
        const bool braces = accept("{");
        *code = 0;
        for (int i = 0; braces ? !accept("}") : i < 2; ++i) {
          const int value = digit(peek());
          if (value > 15 || i > 7) return wrong("\\x with something else than hexadecimal digits");
          *code = *code * 16 + static_cast<uint32_t>(value);
          take();
        }
        return *code <= kMaxCode ? Status() : wrong("\\x with a number that is no character");
      }
      default:
        break;
    }
    if (c == '0' || (c >= '1' && c <= '7' && digit(peek()) < 8)) {  // octal
      *code = c - '0';
      for (int i = 0; i < 2 && digit(peek()) < 8; ++i) *code = *code * 8 + (take() - '0');
      return {};
    }
    const bool is_word = (c < 0x80 && digit(c) < 10) || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == kEnd || c >= 0x80;
    if (is_word) return wrong("an escape that is not supported");
    return *code = c, Status();
  }

  // Behind a "[".
  Status brackets(CharSet* set) {
    set->fold = flags_.fold;
    set->negated = accept("^");
    for (bool first = true; first || peek() != ']'; first = false) {
      if (at_ == text_.size()) return wrong("a [ without ]");
      if (accept("[:")) {
        LMN_RETURN_IF_ERROR(posix_class(set));
        continue;
      }
      uint32_t low = take();
      if (low == '\\') {
        if (perl_class(peek(), set)) {
          take();
          continue;
        }
        LMN_RETURN_IF_ERROR(escaped_char(&low));
      }
      uint32_t high = low;
      if (text_.substr(at_, 1) == "-" && text_.substr(at_, 2) != "-]") {
        accept("-");
        high = take();
        if (high == '\\') LMN_RETURN_IF_ERROR(escaped_char(&high));
        if (high == kEnd) return wrong("a [ without ]");
      }
      if (high < low) return wrong("a range whose end is before its beginning");
      set->ranges.push_back({low, high});
    }
    accept("]");
    return {};
  }

  // Behind a "[:".
  Status posix_class(CharSet* set) {
    struct Class {
      std::string_view name;
      std::vector<std::pair<uint32_t, uint32_t>> ranges;
    };
    static const Class kClasses[] = {{"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
                                     {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
                                     {"ascii", {{0, 0x7F}}},
                                     {"blank", {{'\t', '\t'}, {' ', ' '}}},
                                     {"cntrl", {{0, 0x1F}, {0x7F, 0x7F}}},
                                     {"digit", {{'0', '9'}}},
                                     {"graph", {{'!', '~'}}},
                                     {"lower", {{'a', 'z'}}},
                                     {"print", {{' ', '~'}}},
                                     {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
                                     {"space", {{'\t', '\r'}, {' ', ' '}}},
                                     {"upper", {{'A', 'Z'}}},
                                     {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
                                     {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}}};
    const bool negated = accept("^");
    for (const Class& c : kClasses) {
      if (!accept(std::string(c.name) + ":]")) continue;
      if (!negated) {
        set->ranges.insert(set->ranges.end(), c.ranges.begin(), c.ranges.end());
        return {};
      }
      uint32_t from = 0;
      for (const auto& [low, high] : c.ranges) {
        if (low > from) set->ranges.push_back({from, low - 1});
        from = high + 1;
      }
      set->ranges.push_back({from, kMaxCode});
      return {};
    }
    return wrong("a class [:…:] that is not known");
  }

  std::string_view text_;
  size_t at_ = 0;
  Flags flags_;
  std::vector<Node> nodes_;
  std::vector<CharSet>& sets_;
};

class Writer {
 public:
  Writer(const Parser& parser, std::vector<Regex::Instruction>& program)
      : parser_(parser), program_(program) {}

  // Instructions of a node, which go on behind their last. False: there are too many.
  bool write(uint32_t index) {
    if (++steps_ > kMaxSteps || program_.size() > kMaxProgram) return false;
    const Node& node = parser_.node(index);
    switch (node.kind) {
      case NodeKind::kEmpty:
        return true;
      case NodeKind::kChar:
        return put(Regex::Op::kChar, node.value);
      case NodeKind::kSet:
        return put(Regex::Op::kSet, node.value);
      case NodeKind::kAssert:
        return put(Regex::Op::kAssert, node.value);
      case NodeKind::kConcat:
        for (const uint32_t child : node.children) {
          if (!write(child)) return false;
        }
        return true;
      case NodeKind::kAlternate: {
        std::vector<uint32_t> jumps;
        for (size_t i = 0; i < node.children.size(); ++i) {
          const bool last = i + 1 == node.children.size();
          const uint32_t split = here();
          if (!last) put(Regex::Op::kSplit, split + 1);
          if (!write(node.children[i])) return false;
          if (last) break;
          jumps.push_back(here());
          put(Regex::Op::kJump, 0);
          program_[split].b = here();
        }
        for (const uint32_t jump : jumps) program_[jump].a = here();
        return true;
      }
      case NodeKind::kRepeat:
        break;
    }
    const uint32_t child = node.children[0];
    for (int i = 0; i < node.least; ++i) {
      if (!write(child)) return false;
    }
    std::vector<uint32_t> splits;  // that leave the repetition
    for (int i = node.least; node.most < 0 ? i == node.least : i < node.most; ++i) {
      splits.push_back(here());
      put(Regex::Op::kSplit, here() + 1);
      if (!write(child)) return false;
      if (node.most < 0) put(Regex::Op::kJump, splits[0]);
    }
    for (const uint32_t split : splits) program_[split].b = here();
    return true;
  }

 private:
  uint32_t here() const { return static_cast<uint32_t>(program_.size()); }
  bool put(Regex::Op op, uint32_t a) {
    program_.push_back({op, a, 0});
    return true;
  }

  const Parser& parser_;
  std::vector<Regex::Instruction>& program_;
  int steps_ = 0;
};

}  // namespace

Result<Regex> Regex::parse(std::string_view pattern) {
  Regex regex;
  Parser parser(pattern, regex.sets_);
  uint32_t root = 0;
  LMN_RETURN_IF_ERROR(parser.parse(&root));
  if (!Writer(parser, regex.program_).write(root)) {
    return error(Code::kUnsupported, "the pattern's repetitions are too large");
  }
  regex.program_.push_back({Op::kMatch, 0, 0});
  return regex;
}

}  // namespace lmn::ops
