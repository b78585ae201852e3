// SPDX-License-Identifier: Apache-2.0
//
// Values of the chat template interpreter and the operations on them that Python's rules define:
// truth, equality, str(). A message is a mapping of role and content. Copies of a list share it;
// nothing changes a value once made, except the attributes of a namespace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmn::text {

struct TemplateValue {
  enum Type : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInteger,
    kString,
    kList,
    kMessage,
    kLoop,
    kNamespace
  };
  using List = std::vector<TemplateValue>;
  using Attributes = std::vector<std::pair<std::string, TemplateValue>>;

  Type type = kUndefined;
  int64_t number = 0;  // kBool, kInteger; kMessage and kLoop: an index the evaluator knows
  std::string text;    // kString; kUndefined: what was not defined
  std::shared_ptr<const List> list;        // kList
  std::shared_ptr<Attributes> attributes;  // kNamespace

  static TemplateValue undefined(std::string what) {
    return with_text(kUndefined, std::move(what));
  }
  static TemplateValue none() { return with_number(kNone, 0); }
  static TemplateValue boolean(bool value) { return with_number(kBool, value ? 1 : 0); }
  static TemplateValue integer(int64_t value) { return with_number(kInteger, value); }
  static TemplateValue string(std::string value) { return with_text(kString, std::move(value)); }
  static TemplateValue of_list(List items) {
    TemplateValue out;
    out.type = kList;
    out.list = std::make_shared<const List>(std::move(items));
    return out;
  }
  static TemplateValue with_number(Type type, int64_t number) {
    TemplateValue out;
    out.type = type;
    out.number = number;
    return out;
  }

  bool is_number() const { return type == kInteger || type == kBool; }
  const char* type_name() const {
    static constexpr const char* kNames[] = {"an undefined value", "none",     "a boolean",
                                             "an integer",         "a string", "a list",
                                             "a message",          "a loop",   "a namespace"};
    return kNames[type];
  }

 private:
  static TemplateValue with_text(Type type, std::string text) {
    TemplateValue out;
    out.type = type;
    out.text = std::move(text);
    return out;
  }
};

}  // namespace lmn::text
