// SPDX-License-Identifier: Apache-2.0
#include "graph/rewriter.h"

namespace lmn::graph {

Rewriter::Rewriter(const Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.values.reserve(from.values.size());
  to_.nodes.reserve(from.nodes.size());
  for (ValueId id : from.inputs)
    replace(id, to_.add_input(from.value(id).name, from.value(id).type));
}

ValueId Rewriter::map(ValueId old) {
  if (old == kNone) return kNone;
  ValueId& now = map_[static_cast<size_t>(old)];
  if (now == kNone) {
    const Value& value = from_.value(old);
    LMN_CHECK(value.constant != nullptr);  // else a pass reads a node that it left out
    now = static_cast<ValueId>(to_.values.size());
    to_.values.push_back(value);
  }
  return now;
}

Status Rewriter::copy(const Node& node) {
  std::vector<ValueId> inputs;
  inputs.reserve(node.inputs.size());
  for (ValueId id : node.inputs) inputs.push_back(map(id));
  LMN_ASSIGN_OR_RETURN(const NodeId id, to_.add(node.op, std::move(inputs), node.attributes,
                                                node.name, static_cast<int>(node.outputs.size())));
  for (size_t i = 0; i < node.outputs.size(); ++i)
    replace(node.outputs[i], to_.node(id).outputs[i]);
  return {};
}

Result<ValueId> Rewriter::add(Op op, std::vector<ValueId> inputs, Attributes attributes,
                              std::string name) {
  LMN_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                       add_all(op, std::move(inputs), std::move(attributes), std::move(name), 1));
  return outputs.front();
}

Result<std::vector<ValueId>> Rewriter::add_all(Op op, std::vector<ValueId> inputs,
                                               Attributes attributes, std::string name,
                                               int outputs) {
  LMN_ASSIGN_OR_RETURN(const NodeId id, to_.add(op, std::move(inputs), std::move(attributes),
                                                std::move(name), outputs));
  return to_.node(id).outputs;
}

Graph Rewriter::finish() {
  for (const Output& output : from_.outputs) to_.add_output(map(output.value), output.name);
  return std::move(to_);
}

}  // namespace lmn::graph
