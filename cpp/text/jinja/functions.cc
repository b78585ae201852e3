// SPDX-License-Identifier: Apache-2.0
//
// Calls, filters and tests of the chat template interpreter.
#include <algorithm>

#include "text/jinja/evaluator.h"
#include "text/jinja/lexer.h"
#include "text/unicode/utf8.h"

namespace lmn::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// upper, lower and capitalize of ASCII text; false: not one of these.
bool change_case(std::string_view name, std::string& text) {
  if (name == "upper") {
    std::transform(text.begin(), text.end(), text.begin(), ascii_upper);
  } else if (name == "lower" || name == "capitalize") {
    std::transform(text.begin(), text.end(), text.begin(), ascii_lower);
    if (name == "capitalize" && !text.empty()) text[0] = ascii_upper(text[0]);
  } else {
    return false;
  }
  return true;
}

size_t last_code_point(
    std::string_view text) {  // offset of the last character of text that is not empty
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Python's text.strip(characters), or one side of it. UTF-8 is self-synchronising: a whole
// character is found in `characters` only where it stands there.
std::string strip_characters(std::string_view text, std::string_view characters, bool left,
                             bool right) {
  for (int size = 0; left && !text.empty(); text.remove_prefix(static_cast<size_t>(size))) {
    read_utf8(text.data(), size);
    if (characters.find(text.substr(0, static_cast<size_t>(size))) == std::string_view::npos) break;
  }
  while (right && !text.empty()) {
    const size_t last = last_code_point(text);
    if (characters.find(text.substr(last)) == std::string_view::npos) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

Result<TemplateValue> TemplateEvaluator::call(const Node& node) {
  const Node& callee = at(node.a);
  if (callee.op == Node::kAttribute) return call_method(node, callee);
  if (callee.op == Node::kName && lookup(callee.text) == nullptr) {
    if (callee.text == "namespace") return make_namespace(node);
    if (callee.text == "raise_exception" && node.children.size() == 1 && node.names.empty()) {
      LMN_ASSIGN_OR_RETURN(const Value message, evaluate(node.children[0]));
      LMN_ASSIGN_OR_RETURN(const std::string text, to_text(node, message));
      return fails(node, "the template refuses these messages: " + text);
    }
  }
  return unsupported(node, "a call of " + (callee.op == Node::kName ? "'" + callee.text + "'"
                                                                    : std::string("this kind")));
}

Result<TemplateValue> TemplateEvaluator::make_namespace(const Node& node) {
  if (node.names.size() != node.children.size())
    return unsupported(node, "a namespace of positional arguments");
  auto attributes = std::make_shared<Value::Attributes>();
  for (size_t i = 0; i < node.names.size(); ++i) {
    LMN_ASSIGN_OR_RETURN(Value value, evaluate(node.children[i]));
    if (value.type == Value::kLoop || value.type == Value::kNamespace) {
      return unsupported(node, std::string(value.type_name()) + " as an attribute");
    }
    attributes->emplace_back(node.names[i], std::move(value));
  }
  Value out;
  out.type = Value::kNamespace;
  out.attributes = std::move(attributes);
  return out;
}

Result<TemplateValue> TemplateEvaluator::call_method(const Node& node, const Node& callee) {
  LMN_ASSIGN_OR_RETURN(const Value of, evaluate(callee.a));
  LMN_ASSIGN_OR_RETURN(const std::vector<Value> arguments, evaluate_all(node.children));
  const std::string& name = callee.text;
  if (of.type == Value::kUndefined)
    return fails(node, of.text + " is undefined, so it has no '" + name + "'");
  const std::string what =
      "the method '" + name + "' of " + of.type_name() + " with these arguments";
  if (of.type != Value::kString || !node.names.empty()) return unsupported(node, what);
  if (arguments.empty()) {
    if (name == "strip") return make_string(node, std::string(strip_left(strip_right(of.text))));
    if (name == "lstrip") return make_string(node, std::string(strip_left(of.text)));
    if (name == "rstrip") return make_string(node, std::string(strip_right(of.text)));
    std::string text = of.text;
    if (is_ascii(text) && change_case(name, text)) return make_string(node, std::move(text));
  }
  if (arguments.size() == 1 && arguments[0].type == Value::kString) {
    const std::string& other = arguments[0].text;
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
      return make_string(node,
                         strip_characters(of.text, other, name != "rstrip", name != "lstrip"));
    }
    if (name == "startswith") return Value::boolean(of.text.starts_with(other));
    if (name == "endswith") return Value::boolean(of.text.ends_with(other));
    if (name == "split" && !other.empty()) {
      LMN_RETURN_IF_ERROR(charge(node, of.text.size()));
      Value::List parts;
      for (size_t from = 0;;) {
        const size_t to = of.text.find(other, from);
        parts.push_back(
            Value::string(of.text.substr(from, to == std::string::npos ? to : to - from)));
        if (to == std::string::npos) return Value::of_list(std::move(parts));
        LMN_RETURN_IF_ERROR(charge(node, 0));
        from = to + other.size();
      }
    }
  }
  return unsupported(node, what);
}

Result<TemplateValue> TemplateEvaluator::filter(const Node& node) {
  LMN_ASSIGN_OR_RETURN(Value of, evaluate(node.a));
  LMN_ASSIGN_OR_RETURN(const std::vector<Value> arguments, evaluate_all(node.children));
  const std::string& name = node.text;
  if (!node.names.empty())
    return unsupported(node, "the filter '" + name + "' with keyword arguments");
  if ((name == "default" || name == "d") && arguments.size() <= 2) {
    const bool falsy_too = arguments.size() == 2 && is_true(arguments[1]);
    if (of.type != Value::kUndefined && (!falsy_too || is_true(of))) return of;
    return arguments.empty() ? Value::string("") : arguments[0];
  }
  if (!arguments.empty())
    return unsupported(node, "the filter '" + name + "' with these arguments");
  if (name == "trim") {
    LMN_ASSIGN_OR_RETURN(const std::string text, to_text(node, of));
    return make_string(node, std::string(strip_left(strip_right(text))));
  }
  if (name == "string") {
    LMN_ASSIGN_OR_RETURN(std::string text, to_text(node, of));
    return Value::string(std::move(text));
  }
  if (name == "upper" || name == "lower" || name == "capitalize") {
    LMN_ASSIGN_OR_RETURN(std::string text, to_text(node, of));
    if (!is_ascii(text))
      return unsupported(node, "the filter '" + name + "' on text that is not ASCII");
    change_case(name, text);
    return make_string(node, std::move(text));
  }
  if (name == "length" || name == "count") {
    if (of.type == Value::kString) return Value::integer(count_code_points(of.text));
    if (of.type == Value::kList) return Value::integer(static_cast<int64_t>(of.list->size()));
    if (of.type == Value::kUndefined) return Value::integer(0);
    if (of.type == Value::kMessage) return Value::integer(2);
  }
  if ((name == "first" || name == "last") && of.type == Value::kList) {
    if (of.list->empty()) return Value::undefined("the " + name + " item of an empty list");
    const Value& found = name == "first" ? of.list->front() : of.list->back();
    LMN_RETURN_IF_ERROR(charge(node, found.text.size()));
    return found;
  }
  return unsupported(node, "the filter '" + name + "' on " + of.type_name());
}

Result<TemplateValue> TemplateEvaluator::test(const Node& node) {
  const std::string& name = node.text;
  LMN_ASSIGN_OR_RETURN(const Value of, evaluate(node.a));
  if (name == "defined") return Value::boolean(of.type != Value::kUndefined);
  if (name == "undefined") return Value::boolean(of.type == Value::kUndefined);
  if (name == "none") return Value::boolean(of.type == Value::kNone);
  if (name == "string") return Value::boolean(of.type == Value::kString);
  if (name == "boolean") return Value::boolean(of.type == Value::kBool);
  if (name == "integer") return Value::boolean(of.type == Value::kInteger);
  if (name == "number") return Value::boolean(of.is_number());
  if (name == "true") return Value::boolean(of.type == Value::kBool && of.number != 0);
  if (name == "false") return Value::boolean(of.type == Value::kBool && of.number == 0);
  if (of.type != Value::kLoop && of.type != Value::kNamespace) {
    const bool sized = of.type == Value::kString || of.type == Value::kList ||
                       of.type == Value::kMessage || of.type == Value::kUndefined;
    if (name == "mapping") return Value::boolean(of.type == Value::kMessage);
    if (name == "iterable") return Value::boolean(sized);
  }
  if ((name == "odd" || name == "even") && of.is_number())
    return Value::boolean((of.number % 2 != 0) == (name == "odd"));
  return unsupported(node, "the test '" + name + "' on " + of.type_name());
}

}  // namespace lmn::text
