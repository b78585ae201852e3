// SPDX-License-Identifier: Apache-2.0
//
// A small JSON reader for tests: golden files and embedded expectations. Whole documents in memory,
// object members in file order, numbers as double. Throws std::runtime_error with the byte offset
// when the text is not JSON, which the harness reports as a failed test. Tests only: the library's
// own JSON lives elsewhere.
//
//   const json::Value golden = json::read_file(testing::golden_path());
//   for (const json::Value& item : golden["tokenizer"].items()) use(item["text"].str(),
//   item["ids"].ints());
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace json {

class Value {
 public:
  enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool boolean() const { return expect(Type::kBool), number_ != 0; }
  double number() const { return expect(Type::kNumber), number_; }
  int64_t integer() const { return static_cast<int64_t>(number()); }
  const std::string& str() const { return expect(Type::kString), string_; }
  const std::vector<Value>& items() const { return expect(Type::kArray), items_; }
  const std::vector<std::pair<std::string, Value>>& members() const {
    return expect(Type::kObject), members_;
  }
  size_t size() const { return type_ == Type::kObject ? members_.size() : items().size(); }
  template <typename Index>
  requires std::is_integral_v<Index>
  const Value& operator[](Index index) const { return items().at(static_cast<size_t>(index)); }

  const Value* find(std::string_view key) const {
    for (const auto& [name, value] : members()) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  const Value& operator[](std::string_view key) const {
    const Value* found = find(key);
    if (found == nullptr)
      throw std::runtime_error("JSON object has no member '" + std::string(key) + "'");
    return *found;
  }

  std::vector<int32_t> ints() const { return all<int32_t>(); }
  std::vector<float> floats() const { return all<float>(); }
  std::vector<double> doubles() const { return all<double>(); }

 private:
  friend class Reader;
  void expect(Type type) const {
    if (type_ != type) throw std::runtime_error("JSON value is not of the type the test expects");
  }
  template <typename T>
  std::vector<T> all() const {
    std::vector<T> out;
    out.reserve(items().size());
    for (const Value& item : items()) out.push_back(static_cast<T>(item.number()));
    return out;
  }

  Type type_ = Type::kNull;
  double number_ = 0;
  std::string string_;
  std::vector<Value> items_;
  std::vector<std::pair<std::string, Value>> members_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Value document() {
    Value out = value(0);
    space();
    if (at_ != text_.size()) fail("text after the end of the document");
    return out;
  }

 private:
  static constexpr int kMaxDepth = 200;

  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error("JSON: " + std::string(what) + " at byte " + std::to_string(at_));
  }
  void space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr &&
           text_[at_] != '\0')
      ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Value value(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    space();
    Value out;
    if (take('{')) {
      out.type_ = Value::Type::kObject;
      if (take('}')) return out;
      do {
        space();
        std::string key = string();
        if (!take(':')) fail("expected ':'");
        out.members_.emplace_back(std::move(key), value(depth + 1));
      } while (take(','));
      if (!take('}')) fail("expected ',' or '}'");
    } else if (take('[')) {
      out.type_ = Value::Type::kArray;
      if (take(']')) return out;
      do {
        out.items_.push_back(value(depth + 1));
      } while (take(','));
      if (!take(']')) fail("expected ',' or ']'");
    } else if (at_ < text_.size() && text_[at_] == '"') {
      out.type_ = Value::Type::kString;
      out.string_ = string();
    } else if (take_word("true")) {
      out.type_ = Value::Type::kBool;
      out.number_ = 1;
    } else if (take_word("false")) {
      out.type_ = Value::Type::kBool;
    } else if (!take_word("null")) {
      out.type_ = Value::Type::kNumber;
      out.number_ = number();
    }
    return out;
  }

  double number() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] != '\0' &&
           std::strchr("+-.0123456789eE", text_[at_]) != nullptr)
      ++at_;
    const std::string digits(text_.substr(start, at_ - start));
    char* end = nullptr;
    const double out = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0') fail("expected a value");
    return out;
  }

  uint32_t hex4() {
    if (text_.size() - at_ < 4) fail("truncated \\u escape");
    static constexpr char kHex[] = "0123456789abcdefABCDEF";
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = text_[at_++];
      const char* found = c == '\0' ? nullptr : std::strchr(kHex, c);
      if (found == nullptr) fail("bad \\u escape");
      const ptrdiff_t index = found - kHex;
      out = out * 16 + static_cast<uint32_t>(index < 16 ? index : index - 6);
    }
    return out;
  }

  static void append_utf8(std::string& out, uint32_t c) {
    if (c < 0x80) {
      out += static_cast<char>(c);
      return;
    }
    const int extra = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(kLead[extra] | (c >> (6 * extra)));
    for (int i = extra - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
  }

  std::string string() {
    if (at_ >= text_.size() || text_[at_] != '"') fail("expected a string");
    ++at_;
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("string without end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size()) fail("string without end");
      const char e = text_[at_++];
      if (e == 'u') {
        uint32_t code = hex4();
        if (code >= 0xD800 && code < 0xDC00 && take_word("\\u")) {
          const uint32_t low = hex4();
          if (low < 0xDC00 || low > 0xDFFF) fail("unpaired surrogate");
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        append_utf8(out, code);
        continue;
      }
      static constexpr char kNames[] = "\"\\/bfnrt";
      static constexpr char kChars[] = "\"\\/\b\f\n\r\t";
      const char* found = e == '\0' ? nullptr : std::strchr(kNames, e);
      if (found == nullptr) fail("bad escape");
      out += kChars[found - kNames];
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

inline Value parse(std::string_view text) { return Reader(text).document(); }

inline Value read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return parse(text);
}

}  // namespace json
