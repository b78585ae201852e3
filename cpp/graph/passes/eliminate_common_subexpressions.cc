// SPDX-License-Identifier: Apache-2.0
//
// Common subexpressions: a node with the operator, operands and attributes of an earlier one is
// that one; constants over the same bytes are one constant. Writes of a state are never merged, nor
// are two draws of random numbers.
#include <map>

#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

using ConstantKey = std::vector<std::pair<const std::byte*, DType>>;

ConstantKey key_of(const Constant& constant) {
  ConstantKey key;
  for (const Piece& piece : constant.pieces) key.emplace_back(piece.view.data, piece.view.dtype);
  return key;
}

// Maps every constant to the first one over the same bytes in the same shape.
std::vector<ValueId> first_of_equal_constants(const Graph& graph) {
  std::map<ConstantKey, ValueId> first;
  std::vector<ValueId> out(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    out[i] = static_cast<ValueId>(i);
    if (value.constant == nullptr) continue;
    const auto [at, inserted] = first.emplace(key_of(*value.constant), out[i]);
    if (!inserted && graph.value(at->second).type == value.type) out[i] = at->second;
  }
  return out;
}

}  // namespace

Result<Graph> eliminate_common_subexpressions(const Graph& graph, const PassOptions&) {
  Rewriter rewriter(graph);
  const std::vector<ValueId> first_constant = first_of_equal_constants(graph);
  std::map<std::pair<Op, std::vector<ValueId>>, std::vector<const Node*>> seen;
  for (const Node& node : graph.nodes) {
    std::vector<ValueId> operands;
    for (ValueId id : node.inputs) {
      if (id == kNone) {
        operands.push_back(kNone);
        continue;
      }
      const ValueId first = first_constant[static_cast<size_t>(id)];
      if (first != id) rewriter.replace(id, rewriter.map(first));
      operands.push_back(rewriter.map(id));
    }
    bool stateful = is_tensor_op(node.op) && ops::is_random(tensor_op(node.op));
    for (ValueId id : node.outputs) stateful |= graph.value(id).type.kind == Kind::kKvCache;

    const Node* same = nullptr;
    std::vector<const Node*>& candidates = seen[{node.op, std::move(operands)}];
    for (const Node* candidate : candidates) {
      if (!stateful && candidate->attributes == node.attributes &&
          candidate->outputs.size() == node.outputs.size())
        same = candidate;
    }
    if (same == nullptr) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      candidates.push_back(&node);
      continue;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      rewriter.replace(node.outputs[i], rewriter.map(same->outputs[i]));
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
