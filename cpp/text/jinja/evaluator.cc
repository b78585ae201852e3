// SPDX-License-Identifier: Apache-2.0
//
// Statements, names, attributes and operators. Calls, filters and tests are in functions.cc.
#include "text/jinja/evaluator.h"

#include <algorithm>
#include <array>

#include "text/jinja/lexer.h"

namespace lmn::text {

TemplateEvaluator::TemplateEvaluator(const TemplateTree& tree,
                                     std::span<const ChatMessage> messages)
    : tree_(tree), messages_(messages) {
  Value::List list;
  list.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    list.push_back(Value::with_number(Value::kMessage, static_cast<int64_t>(i)));
  }
  assign("messages", Value::of_list(std::move(list)));
}

Result<std::string> TemplateEvaluator::run() {
  LMN_RETURN_IF_ERROR(execute(tree_.root));
  return std::move(out_);
}

Status TemplateEvaluator::fails(const Node& node, const std::string& what) const {
  return error(Code::kInvalidArgument, "chat template line %d: %.400s", node.line, what.c_str());
}
Status TemplateEvaluator::unsupported(const Node& node, const std::string& what) const {
  return unsupported_template(node.line, what);
}

Status TemplateEvaluator::charge(const Node& node, size_t bytes) {
  if (budget_ < bytes + kNodeCost)
    return fails(node, "rendering takes too much work; use fewer or shorter messages");
  budget_ -= bytes + kNodeCost;
  return {};
}

const TemplateValue* TemplateEvaluator::lookup(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    for (const auto& [key, value] : *scope) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void TemplateEvaluator::assign(std::string name, Value value) {
  for (auto& [key, old] : scopes_.back()) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scopes_.back().emplace_back(std::move(name), std::move(value));
}

Status TemplateEvaluator::execute(int index) {
  const Node& node = at(index);
  LMN_RETURN_IF_ERROR(charge(node, 0));
  switch (node.op) {
    case Node::kBody:
      for (const int child : node.children) LMN_RETURN_IF_ERROR(execute(child));
      return {};
    case Node::kText:
      LMN_RETURN_IF_ERROR(charge(node, node.text.size()));
      out_ += node.text;
      return {};
    case Node::kOutput: {
      LMN_ASSIGN_OR_RETURN(const Value value, evaluate(node.a));
      LMN_ASSIGN_OR_RETURN(const std::string text, to_text(node, value));
      out_ += text;
      return {};
    }
    case Node::kIf:
      for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
        LMN_ASSIGN_OR_RETURN(const bool holds, truth(node.children[i]));
        if (holds) return execute(node.children[i + 1]);
      }
      return node.children.size() % 2 == 1 ? execute(node.children.back()) : Status();
    case Node::kFor:
      return execute_for(node);
    case Node::kSet: {
      LMN_ASSIGN_OR_RETURN(Value value, evaluate(node.a));
      assign(node.text, std::move(value));
      return {};
    }
    case Node::kSetAttribute:
      return set_attribute(node);
    default:
      return unsupported(node, node.text);
  }
}

Status TemplateEvaluator::execute_for(const Node& node) {
  LMN_ASSIGN_OR_RETURN(Value items, evaluate(node.a));
  if (items.type == Value::kUndefined) items = Value::of_list({});
  if (items.type != Value::kList)
    return unsupported(node, std::string("a loop over ") + items.type_name());
  if (node.b >= 0) {
    Value::List kept;
    for (const Value& item : *items.list) {
      LMN_RETURN_IF_ERROR(charge(node, item.text.size()));
      scopes_.emplace_back();
      assign(node.text, item);
      in_loop_filter_ = true;
      LMN_ASSIGN_OR_RETURN(const bool holds, truth(node.b));
      in_loop_filter_ = false;
      scopes_.pop_back();
      if (holds) kept.push_back(item);
    }
    items = Value::of_list(std::move(kept));
  }
  if (items.list->empty()) {
    if (node.d < 0) return {};
    scopes_.emplace_back();
    LMN_RETURN_IF_ERROR(execute(node.d));
    scopes_.pop_back();
    return {};
  }
  const size_t depth = loops_.size();
  loops_.push_back({items, 0});
  for (size_t i = 0; i < items.list->size(); ++i) {
    LMN_RETURN_IF_ERROR(charge(node, 0));
    loops_[depth].index = i;
    scopes_.emplace_back();  // what an iteration sets is gone in the next
    assign("loop", Value::with_number(Value::kLoop, static_cast<int64_t>(depth)));
    assign(node.text, (*items.list)[i]);
    LMN_RETURN_IF_ERROR(execute(node.c));
    scopes_.pop_back();
  }
  loops_.pop_back();
  return {};
}

Status TemplateEvaluator::set_attribute(const Node& node) {
  const Value* target = lookup(node.text);
  if (target == nullptr || target->type != Value::kNamespace) {
    return fails(node,
                 "cannot assign an attribute of '" + node.text + "', which is not a namespace");
  }
  const std::shared_ptr<Value::Attributes> attributes = target->attributes;
  LMN_ASSIGN_OR_RETURN(Value value, evaluate(node.a));
  if (value.type == Value::kLoop || value.type == Value::kNamespace) {
    return unsupported(node, std::string(value.type_name()) +
                                 " as an attribute");  // would outlive its loop, or be a cycle
  }
  for (auto& [key, old] : *attributes) {
    if (key == node.name) {
      old = std::move(value);
      return {};
    }
  }
  attributes->emplace_back(node.name, std::move(value));
  return {};
}

Result<TemplateValue> TemplateEvaluator::evaluate(int index) {
  const Node& node = at(index);
  LMN_RETURN_IF_ERROR(charge(node, 0));
  switch (node.op) {
    case Node::kString:
      return make_string(node, node.text);
    case Node::kInteger:
      return Value::integer(node.number);
    case Node::kBool:
      return Value::boolean(node.number != 0);
    case Node::kNone:
      return Value::none();
    case Node::kName:
      return name(node);
    case Node::kList: {
      LMN_ASSIGN_OR_RETURN(Value::List items, evaluate_all(node.children));
      return Value::of_list(std::move(items));
    }
    case Node::kAttribute: {
      LMN_ASSIGN_OR_RETURN(const Value of, evaluate(node.a));
      return attribute(node, of, node.text);
    }
    case Node::kItem:
      return item(node);
    case Node::kSlice:
      return slice(node);
    case Node::kCall:
      return call(node);
    case Node::kFilter:
      return filter(node);
    case Node::kTest:
      return test(node);
    case Node::kNot: {
      LMN_ASSIGN_OR_RETURN(const bool holds, truth(node.a));
      return Value::boolean(!holds);
    }
    case Node::kAnd:
    case Node::kOr: {
      LMN_ASSIGN_OR_RETURN(Value left, evaluate(node.a));
      return is_true(left) == (node.op == Node::kOr) ? Result<Value>(std::move(left))
                                                     : evaluate(node.b);
    }
    case Node::kConditional: {
      LMN_ASSIGN_OR_RETURN(const bool holds, truth(node.a));
      if (holds) return evaluate(node.b);
      return node.c >= 0 ? evaluate(node.c) : Value::undefined("the value of an if without else");
    }
    case Node::kNegate:
    case Node::kAdd:
    case Node::kSubtract:
    case Node::kMultiply:
    case Node::kFloorDivide:
    case Node::kModulo:
    case Node::kConcat:
      return arithmetic(node);
    case Node::kEqual:
    case Node::kNotEqual:
    case Node::kLess:
    case Node::kLessEqual:
    case Node::kGreater:
    case Node::kGreaterEqual:
    case Node::kIn:
    case Node::kNotIn:
      return compare(node);
    default:
      return unsupported(node, node.text);
  }
}

Result<std::vector<TemplateValue>> TemplateEvaluator::evaluate_all(const std::vector<int>& nodes) {
  std::vector<Value> out;
  out.reserve(nodes.size());
  for (const int node : nodes) {
    LMN_ASSIGN_OR_RETURN(Value value, evaluate(node));
    out.push_back(std::move(value));
  }
  return out;
}

Result<TemplateValue> TemplateEvaluator::make_string(const Node& node, std::string value) {
  LMN_RETURN_IF_ERROR(charge(node, value.size()));
  return Value::string(std::move(value));
}

Result<std::string> TemplateEvaluator::to_text(const Node& node, const Value& value) {
  LMN_RETURN_IF_ERROR(charge(node, value.text.size()));
  switch (value.type) {
    case Value::kUndefined:
      return std::string();
    case Value::kNone:
      return std::string("None");
    case Value::kBool:
      return std::string(value.number != 0 ? "True" : "False");
    case Value::kInteger:
      return std::to_string(value.number);
    case Value::kString:
      return value.text;
    default:
      return unsupported(node, std::string("the text of ") + value.type_name());
  }
}

Result<bool> TemplateEvaluator::truth(int index) {
  LMN_ASSIGN_OR_RETURN(const Value value, evaluate(index));
  return is_true(value);
}

bool TemplateEvaluator::is_true(const Value& value) const {
  switch (value.type) {
    case Value::kUndefined:
    case Value::kNone:
      return false;
    case Value::kBool:
    case Value::kInteger:
      return value.number != 0;
    case Value::kString:
      return !value.text.empty();
    case Value::kList:
      return !value.list->empty();
    default:
      return true;
  }
}

bool TemplateEvaluator::equal(const Value& a, const Value& b) const {
  if (a.is_number() && b.is_number()) return a.number == b.number;  // True == 1
  if (a.type != b.type) return false;
  switch (a.type) {
    case Value::kString:
      return a.text == b.text;
    case Value::kList:
      return std::equal(a.list->begin(), a.list->end(), b.list->begin(), b.list->end(),
                        [this](const Value& x, const Value& y) { return equal(x, y); });
    case Value::kMessage: {
      const ChatMessage& x = messages_[static_cast<size_t>(a.number)];
      const ChatMessage& y = messages_[static_cast<size_t>(b.number)];
      return x.role == y.role && x.content == y.content;
    }
    case Value::kLoop:
      return a.number == b.number;
    case Value::kNamespace:
      return a.attributes == b.attributes;
    default:
      return true;  // undefined, none
  }
}

Result<TemplateValue> TemplateEvaluator::name(const Node& node) {
  if (const Value* value = lookup(node.text)) {
    LMN_RETURN_IF_ERROR(charge(node, value->text.size()));
    return *value;
  }
  // Jinja2 and transformers define these; as values they are not known here. Calls find them in
  // call().
  static constexpr std::string_view kGlobals[] = {
      "range",           "dict",         "lipsum", "cycler", "joiner",  "namespace",
      "raise_exception", "strftime_now", "self",   "caller", "varargs", "kwargs"};
  if (std::find(std::begin(kGlobals), std::end(kGlobals), node.text) != std::end(kGlobals)) {
    return unsupported(node, "'" + node.text + "' used this way");
  }
  return Value::undefined("'" + node.text + "'");
}

Result<TemplateValue> TemplateEvaluator::attribute(const Node& node, const Value& of,
                                                   const std::string& name) {
  switch (of.type) {
    case Value::kUndefined:
      return fails(node, of.text + " is undefined, so it has no '" + name + "'");
    case Value::kMessage: {
      const ChatMessage& message = messages_[static_cast<size_t>(of.number)];
      if (name == "role") return make_string(node, std::string(message.role));
      if (name == "content") return make_string(node, std::string(message.content));
      static constexpr std::string_view kMethods[] = {"clear",      "copy",   "fromkeys", "get",
                                                      "items",      "keys",   "pop",      "popitem",
                                                      "setdefault", "update", "values"};
      if (name.starts_with("__") ||
          std::find(std::begin(kMethods), std::end(kMethods), name) != std::end(kMethods)) {
        return unsupported(node, "the attribute '" + name + "' of a message");
      }
      return Value::undefined("'" + name + "' of a message");
    }
    case Value::kLoop:
      return loop_attribute(node, loops_[static_cast<size_t>(of.number)], name);
    case Value::kNamespace:
      // Jinja2 filters one item ahead of the body, which may change the namespace in between.
      if (in_loop_filter_) return unsupported(node, "a namespace in the filter of a loop");
      for (const auto& [key, value] : *of.attributes) {
        if (key == name) return value;
      }
      return Value::undefined("'" + name + "' of a namespace");
    default:
      return unsupported(node, "the attribute '" + name + "' of " + of.type_name());
  }
}

Result<TemplateValue> TemplateEvaluator::loop_attribute(const Node& node, const Loop& loop,
                                                        const std::string& name) {
  const auto size = static_cast<int64_t>(loop.items.list->size()),
             index = static_cast<int64_t>(loop.index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "index0") return Value::integer(index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "length") return Value::integer(size);
  if (name == "previtem")
    return index > 0 ? (*loop.items.list)[loop.index - 1] : Value::undefined("loop.previtem");
  if (name == "nextitem")
    return index + 1 < size ? (*loop.items.list)[loop.index + 1]
                            : Value::undefined("loop.nextitem");
  return unsupported(node, "loop." + name);
}

Result<TemplateValue> TemplateEvaluator::item(const Node& node) {
  LMN_ASSIGN_OR_RETURN(const Value of, evaluate(node.a));
  LMN_ASSIGN_OR_RETURN(const Value key, evaluate(node.b));
  if (of.type == Value::kUndefined)
    return fails(node, of.text + " is undefined, so it has no items");
  if (of.type == Value::kMessage && key.type == Value::kString)
    return attribute(node, of, key.text);
  if (of.type == Value::kList && key.type == Value::kInteger) {
    const auto size = static_cast<int64_t>(of.list->size());
    const int64_t index = key.number < 0 ? key.number + size : key.number;
    if (index < 0 || index >= size)
      return Value::undefined("item " + std::to_string(key.number) + " of a list");
    const Value& found = (*of.list)[static_cast<size_t>(index)];
    LMN_RETURN_IF_ERROR(charge(node, found.text.size()));
    return found;
  }
  return unsupported(node, std::string("an item of ") + of.type_name() + " by " + key.type_name());
}

Result<TemplateValue> TemplateEvaluator::slice(const Node& node) {
  LMN_ASSIGN_OR_RETURN(const Value of, evaluate(node.a));
  std::array<Value, 3> parts;  // start, stop, step
  const std::array<int, 3> nodes{node.b, node.c, node.d};
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = Value::none();
    if (nodes[i] >= 0) {
      LMN_ASSIGN_OR_RETURN(parts[i], evaluate(nodes[i]));
    }
    if (parts[i].type != Value::kInteger && parts[i].type != Value::kNone)
      return unsupported(node, "this kind of slice");
  }
  if (of.type == Value::kUndefined)
    return fails(node, of.text + " is undefined, so it has no items");
  if (of.type != Value::kList)
    return unsupported(node, std::string("a slice of ") + of.type_name());
  const int64_t step = parts[2].type == Value::kNone ? 1 : parts[2].number;
  if (step != 1 && step != -1) return unsupported(node, "a slice by steps");
  if (step == -1 && (parts[0].type != Value::kNone || parts[1].type != Value::kNone)) {
    return unsupported(node, "a backward slice with bounds");
  }
  const auto size = static_cast<int64_t>(of.list->size());
  const auto bound = [size](const Value& value, int64_t absent) {
    if (value.type == Value::kNone) return absent;
    return std::clamp<int64_t>(value.number < 0 ? value.number + size : value.number, 0, size);
  };
  const int64_t begin = bound(parts[0], 0), end = std::max(begin, bound(parts[1], size));
  Value::List out(of.list->begin() + begin, of.list->begin() + end);
  for (const Value& value : out) LMN_RETURN_IF_ERROR(charge(node, value.text.size()));
  if (step == -1) std::reverse(out.begin(), out.end());
  return Value::of_list(std::move(out));
}

Result<TemplateValue> TemplateEvaluator::arithmetic(const Node& node) {
  LMN_ASSIGN_OR_RETURN(const Value a, evaluate(node.a));
  int64_t out = 0;
  if (node.op == Node::kNegate) {
    if (!a.is_number()) return unsupported(node, std::string("minus ") + a.type_name());
    if (__builtin_sub_overflow(int64_t{0}, a.number, &out))
      return unsupported(node, "integers this large");
    return Value::integer(out);
  }
  LMN_ASSIGN_OR_RETURN(const Value b, evaluate(node.b));
  if (node.op == Node::kConcat) {
    LMN_ASSIGN_OR_RETURN(std::string text, to_text(node, a));
    LMN_ASSIGN_OR_RETURN(const std::string more, to_text(node, b));
    return make_string(node, std::move(text.append(more)));
  }
  for (const Value* side : {&a, &b}) {
    if (side->type == Value::kUndefined)
      return fails(node, side->text + " is undefined and cannot be an operand");
  }
  if (node.op == Node::kAdd && a.type == Value::kString && b.type == Value::kString) {
    return make_string(node, a.text + b.text);
  }
  if (node.op == Node::kAdd && a.type == Value::kList && b.type == Value::kList) {
    Value::List both = *a.list;
    both.insert(both.end(), b.list->begin(), b.list->end());
    for (const Value& value : both) LMN_RETURN_IF_ERROR(charge(node, value.text.size()));
    return Value::of_list(std::move(both));
  }
  if (!a.is_number() || !b.is_number()) {
    const bool python_knows =
        node.op == Node::kMultiply || node.op == Node::kModulo;  // "a" * 3, "%s" % x
    const std::string what =
        std::string("an operator between ") + a.type_name() + " and " + b.type_name();
    return python_knows ? unsupported(node, what)
                        : fails(node, what + ", which Python does not define");
  }
  switch (node.op) {
    case Node::kAdd:
      if (__builtin_add_overflow(a.number, b.number, &out))
        return unsupported(node, "integers this large");
      break;
    case Node::kSubtract:
      if (__builtin_sub_overflow(a.number, b.number, &out))
        return unsupported(node, "integers this large");
      break;
    case Node::kMultiply:
      if (__builtin_mul_overflow(a.number, b.number, &out))
        return unsupported(node, "integers this large");
      break;
    default: {  // floor division and its remainder, rounded towards minus infinity
      if (b.number == 0) return fails(node, "division by zero");
      if (b.number == -1) {
        if (node.op == Node::kFloorDivide && __builtin_sub_overflow(int64_t{0}, a.number, &out)) {
          return unsupported(node, "integers this large");
        }
        break;
      }
      const int64_t remainder = a.number % b.number;
      const bool adjust = remainder != 0 && (remainder < 0) != (b.number < 0);
      out = node.op == Node::kModulo ? (adjust ? remainder + b.number : remainder)
                                     : a.number / b.number - (adjust ? 1 : 0);
    }
  }
  return Value::integer(out);
}

Result<TemplateValue> TemplateEvaluator::compare(const Node& node) {
  LMN_ASSIGN_OR_RETURN(const Value a, evaluate(node.a));
  LMN_ASSIGN_OR_RETURN(const Value b, evaluate(node.b));
  if (node.op == Node::kEqual) return Value::boolean(equal(a, b));
  if (node.op == Node::kNotEqual) return Value::boolean(!equal(a, b));
  if (node.op == Node::kIn || node.op == Node::kNotIn) {
    LMN_ASSIGN_OR_RETURN(const Value found, contains(node, a, b));
    return Value::boolean((found.number != 0) == (node.op == Node::kIn));
  }
  for (const Value* side : {&a, &b}) {
    if (side->type == Value::kUndefined)
      return fails(node, side->text + " is undefined and cannot be compared");
  }
  int order = 0;  // UTF-8 compares as its code points do
  if (a.is_number() && b.is_number()) {
    order = a.number < b.number ? -1 : a.number > b.number ? 1 : 0;
  } else if (a.type == Value::kString && b.type == Value::kString) {
    order = a.text.compare(b.text);
  } else {
    return unsupported(node,
                       std::string("the order of ") + a.type_name() + " and " + b.type_name());
  }
  const bool holds = node.op == Node::kLess        ? order < 0
                     : node.op == Node::kLessEqual ? order <= 0
                     : node.op == Node::kGreater   ? order > 0
                                                   : order >= 0;
  return Value::boolean(holds);
}

Result<TemplateValue> TemplateEvaluator::contains(const Node& node, const Value& needle,
                                                  const Value& hay) {
  switch (hay.type) {
    case Value::kUndefined:
      return Value::boolean(false);
    case Value::kString:
      if (needle.type != Value::kString)
        return fails(node, std::string(needle.type_name()) + " cannot be in a string");
      LMN_RETURN_IF_ERROR(charge(node, hay.text.size()));
      return Value::boolean(hay.text.find(needle.text) != std::string::npos);
    case Value::kList: {
      LMN_RETURN_IF_ERROR(charge(node, hay.list->size()));
      const auto found = std::find_if(hay.list->begin(), hay.list->end(),
                                      [&](const Value& v) { return equal(v, needle); });
      return Value::boolean(found != hay.list->end());
    }
    case Value::kMessage:
      return Value::boolean(needle.type == Value::kString &&
                            (needle.text == "role" || needle.text == "content"));
    default:
      return unsupported(node, std::string("'in' with ") + hay.type_name());
  }
}

}  // namespace lmn::text
