// SPDX-License-Identifier: Apache-2.0
//
// Runs the syntax tree of a chat template over messages. Semantics are those of Jinja2 3.1 in
// Hugging Face's environment; what would differ is refused. Work is bounded by a budget of nodes
// visited and bytes produced, so that no template keeps the caller busy for long.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "text/chat_template.h"
#include "text/jinja/parser.h"
#include "text/jinja/value.h"

namespace lmn::text {

class TemplateEvaluator {
 public:
  // Both must outlive the evaluator. Message texts are well-formed UTF-8.
  TemplateEvaluator(const TemplateTree& tree, std::span<const ChatMessage> messages);

  void define(std::string name, TemplateValue value) { assign(std::move(name), std::move(value)); }
  Result<std::string> run();

 private:
  using Value = TemplateValue;
  using Node = TemplateNode;
  using Scope = std::vector<std::pair<std::string, Value>>;
  struct Loop {
    Value items;  // a list
    size_t index = 0;
  };

  Status execute(int index);
  Status execute_for(const Node& node);
  Status set_attribute(const Node& node);
  Result<Value> evaluate(int index);
  Result<Value> name(const Node& node);
  Result<Value> attribute(const Node& node, const Value& of, const std::string& name);
  Result<Value> loop_attribute(const Node& node, const Loop& loop, const std::string& name);
  Result<Value> item(const Node& node);
  Result<Value> slice(const Node& node);
  Result<Value> call(const Node& node);
  Result<Value> call_method(const Node& node, const Node& callee);
  Result<Value> make_namespace(const Node& node);
  Result<Value> filter(const Node& node);
  Result<Value> test(const Node& node);
  Result<Value> arithmetic(const Node& node);
  Result<Value> compare(const Node& node);
  Result<Value> contains(const Node& node, const Value& needle, const Value& hay);
  Result<std::vector<Value>> evaluate_all(const std::vector<int>& nodes);
  Result<std::string> to_text(const Node& node, const Value& value);
  Result<Value> make_string(const Node& node, std::string value);
  Result<bool> truth(int index);

  bool is_true(const Value& value) const;
  bool equal(const Value& a, const Value& b) const;
  const Value* lookup(std::string_view name) const;
  void assign(std::string name, Value value);
  const Node& at(int index) const { return tree_.nodes[static_cast<size_t>(index)]; }
  Status charge(const Node& node, size_t bytes);
  Status fails(const Node& node, const std::string& what) const;  // Jinja2 would raise this
  Status unsupported(const Node& node, const std::string& what) const;

  const TemplateTree& tree_;
  std::span<const ChatMessage> messages_;
  std::vector<Scope> scopes_{1};  // [0] the template's; one more per running loop
  std::vector<Loop> loops_;
  bool in_loop_filter_ = false;  // evaluating the `if` of a `for`
  std::string out_;
  // Charged kNodeCost per node visited, iteration and list element, and 1 per byte produced: so no
  // more than four million nodes (about a second), and no more than 256 MiB of text.
  static constexpr uint64_t kNodeCost = 64;
  uint64_t budget_ = uint64_t{1} << 28;
};

}  // namespace lmn::text
