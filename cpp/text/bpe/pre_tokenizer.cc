// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/pre_tokenizer.h"

#include "text/tokenizer.h"
#include "text/unicode/char_class.h"
#include "text/unicode/utf8.h"

namespace lmn::text {
namespace {

struct Name {
  std::string_view name;
  PreTokenizer pre;
};

// The first name of each is the one GGUF converters write today; the others are the same expression
// under an older name, or another model family's tokenizer with that expression.
constexpr Name kNames[] = {
    {"smollm", PreTokenizer::kSmolLm},
    {"starcoder", PreTokenizer::kSmolLm},
    {"refact", PreTokenizer::kSmolLm},
    {"gpt-2", PreTokenizer::kGpt2},
    {"gpt2", PreTokenizer::kGpt2},
    {"phi-2", PreTokenizer::kGpt2},
    {"olmo", PreTokenizer::kGpt2},
    {"mpt", PreTokenizer::kGpt2},
    {"llama-bpe", PreTokenizer::kLlama3},
    {"llama3", PreTokenizer::kLlama3},
    {"llama-v3", PreTokenizer::kLlama3},
    {"qwen2", PreTokenizer::kQwen2},
    {"deepseek-r1-qwen", PreTokenizer::kQwen2},
};

// A position in well-formed text with the class of the character there. At the end: at == end,
// class kEnd.
constexpr CharClass kEnd = static_cast<CharClass>(4);

class Cursor {
 public:
  Cursor(const char* at, const char* end) : at_(at), end_(end) { read(); }

  const char* at() const { return at_; }
  CharClass char_class() const { return class_; }
  bool is(char c) const { return class_ != kEnd && *at_ == c; }
  bool is_newline() const { return is('\n') || is('\r'); }
  void advance() {
    at_ += size_;
    read();
  }
  void skip(CharClass run) {
    while (class_ == run) advance();
  }
  void skip_newlines() {
    while (is_newline()) advance();
  }

 private:
  void read() {
    if (at_ == end_) {
      class_ = kEnd;
      size_ = 0;
      return;
    }
    const auto lead = static_cast<unsigned char>(*at_);
    if (lead < 0x80) {
      size_ = 1;
      class_ = kAsciiClass[lead];
    } else {
      class_ = classify_beyond_ascii(read_utf8(at_, size_));
    }
  }

  const char* at_;
  const char* end_;
  int size_ = 0;
  CharClass class_ = kEnd;
};

// Bytes of 's 't 'm 'd 're 've 'll at the front of `text`, or 0. Regardless of case, U+017F (long
// s) is an s too: that is the Unicode simple case folding that the (?i:) of the original expression
// follows.
size_t contraction(std::string_view text, bool any_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto lower = [any_case](char c) {
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char first = lower(text[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (any_case && text.substr(1, 2) == "\xC5\xBF") return 3;
  if (text.size() < 3) return 0;
  const char second = lower(text[2]);
  const bool pair = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                    (first == 'l' && second == 'l');
  return pair ? 3 : 0;
}

// \s+(?!\S)|\s+ : a run of whitespace without its last character, which goes to the word that
// follows; the whole run at the end of the text (`number_ends`: also before a number, where smollm
// cuts the text).
const char* whitespace(Cursor cursor, bool number_ends) {
  const char* last = cursor.at();
  int count = 0;
  for (; cursor.char_class() == CharClass::kSpace; cursor.advance(), ++count) last = cursor.at();
  const bool at_end =
      cursor.char_class() == kEnd || (number_ends && cursor.char_class() == CharClass::kNumber);
  return at_end || count == 1 ? cursor.at() : last;
}

const char* gpt2_piece(std::string_view text, bool single_numbers) {
  const char* begin = text.data();
  if (const size_t size = contraction(text, false)) return begin + size;
  Cursor cursor(begin, begin + text.size());
  if (single_numbers && cursor.char_class() == CharClass::kNumber) {
    cursor.advance();
    return cursor.at();
  }
  if (cursor.is(' ')) cursor.advance();  // ` ?` before a run of letters, numbers or others
  const CharClass run = cursor.char_class();
  const bool no_run =
      run == CharClass::kSpace || run == kEnd || (single_numbers && run == CharClass::kNumber);
  if (no_run) return whitespace(Cursor(begin, begin + text.size()), single_numbers);
  cursor.skip(run);
  return cursor.at();
}

const char* llama3_piece(std::string_view text, int max_numbers) {
  const char* begin = text.data();
  if (const size_t size = contraction(text, true)) return begin + size;
  Cursor cursor(begin, begin + text.size());
  if (cursor.char_class() == CharClass::kNumber) {
    for (int i = 0; i < max_numbers && cursor.char_class() == CharClass::kNumber; ++i)
      cursor.advance();
    return cursor.at();
  }
  // [^\r\n\p{L}\p{N}]?\p{L}+
  const bool starts_space = cursor.is(' ');
  if (cursor.char_class() != CharClass::kLetter && !cursor.is_newline()) cursor.advance();
  if (cursor.char_class() == CharClass::kLetter) {
    cursor.skip(CharClass::kLetter);
    return cursor.at();
  }
  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  cursor = Cursor(begin, begin + text.size());
  if (starts_space) cursor.advance();
  if (cursor.char_class() == CharClass::kOther) {
    cursor.skip(CharClass::kOther);
    cursor.skip_newlines();
    return cursor.at();
  }
  // \s*[\r\n]+ : up to the last newline of the run of whitespace
  cursor = Cursor(begin, begin + text.size());
  const char* after_newline = nullptr;
  for (Cursor scan = cursor; scan.char_class() == CharClass::kSpace;) {
    const bool newline = scan.is_newline();
    scan.advance();
    if (newline) after_newline = scan.at();
  }
  return after_newline != nullptr ? after_newline : whitespace(cursor, false);
}

}  // namespace

std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  if (name.empty() || name == "default") return PreTokenizer::kGpt2;
  for (const Name& known : kNames) {
    if (known.name == name) return known.pre;
  }
  return std::nullopt;
}

std::string supported_pre_tokenizers() {
  std::string out;
  for (const Name& known : kNames) out.append(out.empty() ? "" : ", ").append(known.name);
  return out;
}

size_t next_piece(PreTokenizer pre, std::string_view text) {
  const char* end = nullptr;
  switch (pre) {
    case PreTokenizer::kGpt2:
      end = gpt2_piece(text, false);
      break;
    case PreTokenizer::kSmolLm:
      end = gpt2_piece(text, true);
      break;
    case PreTokenizer::kLlama3:
      end = llama3_piece(text, 3);
      break;
    case PreTokenizer::kQwen2:
      end = llama3_piece(text, 1);
      break;
  }
  return static_cast<size_t>(end - text.data());
}

}  // namespace lmn::text
