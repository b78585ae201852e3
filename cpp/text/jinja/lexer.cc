// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/unicode/char_class.h"
#include "text/unicode/utf8.h"

namespace lmn::text {
namespace {

bool is_python_space(char32_t c) {
  return classify(c) == CharClass::kSpace || (c >= 0x1C && c <= 0x1F);
}

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string with_unix_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<TemplateToken>> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      LMN_RETURN_IF_ERROR(text_until(tag));
      if (tag == source_.size()) break;
      LMN_RETURN_IF_ERROR(source_[tag + 1] == '#' ? comment() : code(source_[tag + 1] == '%'));
    }
    push(TemplateToken::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool looking_at(std::string_view word) const { return rest().substr(0, word.size()) == word; }
  void push(TemplateToken::Kind kind, std::string text, int64_t number = 0) {
    tokens_.push_back({kind, std::move(text), number, line_});
  }
  void move_to(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  size_t find_tag() const {  // of the next {% {{ {#, or the end
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#'))
        return i;
    }
    return source_.size();
  }

  // Emits the text before the tag at `tag` and moves past the opening of the tag.
  Status text_until(size_t tag) {
    std::string_view text = source_.substr(at_, tag - at_);
    size_t next = tag;
    if (tag < source_.size()) {
      const char kind = source_[tag + 1];
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      next = tag + (sign == '-' || sign == '+' ? 3 : 2);
      if (sign == '-') {
        text = strip_right(text);
      } else if (sign != '+' && kind != '{') {
        const size_t newline = text.rfind('\n');
        const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
        if ((line > 0 || at_line_start_) && strip_left(text.substr(line)).empty())
          text = text.substr(0, line);
      }
    }
    if (!text.empty()) push(TemplateToken::kText, std::string(text));
    move_to(next);
    return {};
  }

  // Moves past a closing at `close` of two characters, perhaps with a sign before it, and the
  // whitespace it takes.
  void pass_closing(size_t close, char sign, bool takes_newline) {
    size_t end = close + 2;
    if (sign == '-') {
      end = source_.size() - strip_left(source_.substr(end)).size();
    } else if (sign != '+' && takes_newline && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    at_line_start_ = source_[end - 1] == '\n';
    move_to(end);
  }

  Status comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos)
      return unsupported_template(line_, "a comment without an end");
    const char before = close > at_ ? source_[close - 1] : '\0';
    pass_closing(close, before == '-' || before == '+' ? before : '\0', true);
    return {};
  }

  Status code(bool block) {
    push(block ? TemplateToken::kBlockBegin : TemplateToken::kOutputBegin, "");
    const std::string_view close = block ? "%}" : "}}";
    int open_brackets = 0;
    for (;;) {
      while (at_ < source_.size()) {
        int size = 0;
        if (!is_python_space(read_utf8(source_.data() + at_, size))) break;
        move_to(at_ + static_cast<size_t>(size));
      }
      if (at_ == source_.size()) return unsupported_template(line_, "a tag without an end");
      const char sign = source_[at_] == '-' || (source_[at_] == '+' && block) ? source_[at_] : '\0';
      const size_t closing = at_ + (sign != '\0' ? 1 : 0);
      if (open_brackets == 0 && source_.substr(closing, 2) == close) {
        push(block ? TemplateToken::kBlockEnd : TemplateToken::kOutputEnd, "");
        pass_closing(closing, sign, block);
        return {};
      }
      LMN_RETURN_IF_ERROR(token(open_brackets));
    }
  }

  Status token(int& open_brackets) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (is_digit(c)) return integer();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      push(TemplateToken::kName, std::string(source_.substr(at_, end - at_)));
      move_to(end);
      return {};
    }
    static constexpr std::string_view kOperators[] = {
        "==", "!=", ">=", "<=", "//", "**", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view op : kOperators) {
      if (!looking_at(op)) continue;
      if (op == "[" || op == "(" || op == "{") ++open_brackets;
      if (op == "]" || op == ")" || op == "}") --open_brackets;
      if (open_brackets < 0)
        return unsupported_template(line_, "a closing bracket without an opening one");
      push(TemplateToken::kOperator, std::string(op));
      move_to(at_ + op.size());
      return {};
    }
    int size = 0;
    read_utf8(source_.data() + at_, size);
    return unsupported_template(
        line_,
        "the character '" + std::string(source_.substr(at_, static_cast<size_t>(size))) + "'");
  }

  Status integer() {
    size_t end = at_;
    int64_t value = 0;
    while (end < source_.size() && is_digit(source_[end]))
      value = value * 10 + (source_[end++] - '0');
    const bool odd =
        end < source_.size() &&
        (is_name_start(source_[end]) ||
         (source_[end] == '.' && end + 1 < source_.size() && is_digit(source_[end + 1])));
    if (odd || end - at_ > 9 || (source_[at_] == '0' && value != 0)) {
      return unsupported_template(line_, "a number that is not a plain integer below 10^9");
    }
    push(TemplateToken::kInteger, "", value);
    move_to(end);
    return {};
  }

  Status string(char quote) {
    std::string value;
    size_t i = at_ + 1;
    for (;; ++i) {
      if (i >= source_.size()) return unsupported_template(line_, "a string without an end");
      const char c = source_[i];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        continue;
      }
      const char escape = ++i < source_.size() ? source_[i] : '\0';
      constexpr std::string_view kNames = "\\'\"abfnrtv";
      constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
      const size_t known = kNames.find(escape);
      const size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
      if (known != std::string_view::npos) {
        value += kValues[known];
      } else if (digits == 0) {
        return unsupported_template(line_, std::string("the escape \\") + escape + " in a string");
      } else {
        LMN_RETURN_IF_ERROR(append_code_point(source_.substr(i + 1, digits), digits, value));
        i += digits;
      }
    }
    push(TemplateToken::kString, std::move(value));
    move_to(i + 1);
    return {};
  }

  Status append_code_point(std::string_view hex, size_t digits, std::string& out) const {
    uint64_t code = 0;
    bool good = hex.size() == digits;
    for (const char c : hex) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c | 0x20) : c);
      good = good && digit != std::string_view::npos;
      code = code * 16 + (digit & 15);
    }
    if (!good || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return unsupported_template(line_, "an escape in a string that is not a character");
    }
    append_utf8(out, static_cast<char32_t>(code));
    return {};
  }

  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // the text that follows begins a line
  std::vector<TemplateToken> tokens_;
};

}  // namespace

Status unsupported_template(int line, const std::string& what) {
  return error(Code::kUnsupported,
               "chat template line %d: the built-in renderer does not know %.200s; render the "
               "messages with Jinja2 "
               "(Python's LLM.chat does) or pass the rendered text",
               line, what.c_str());
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    int size = 0;
    if (!is_python_space(read_utf8(text.data(), size))) break;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    int size = 0;
    if (!is_python_space(read_utf8(text.data() + last, size))) break;
    text = text.substr(0, last);
  }
  return text;
}

Result<std::vector<TemplateToken>> lex_template(std::string_view source) {
  LMN_RETURN_IF_ERROR(check_utf8(source, "chat template"));
  const std::string normal = with_unix_newlines(source);
  return Lexer(normal).run();
}

}  // namespace lmn::text
