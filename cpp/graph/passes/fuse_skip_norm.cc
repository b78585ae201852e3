// SPDX-License-Identifier: Apache-2.0
//
// A sum of two tensors of one shape that nothing but a layer norm reads, and the norm, become
// com.microsoft's SkipLayerNormalization: the sum is in no memory of its own. float32, the same
// bits.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

// The sum that a layer norm takes along; null: none.
const Node* sum_of_norm(const Graph& graph, const Uses& uses, const Node& norm) {
  if (norm.op != Op::kLayerNormalization || norm.outputs.size() != 1 ||
      !uses.only_one(norm.inputs[0]))
    return nullptr;
  const Node* sum = graph.producer(norm.inputs[0]);
  if (sum == nullptr || sum->op != Op::kAdd) return nullptr;
  const auto type = [&](ValueId id) -> const ValueType& { return graph.value(id).type; };
  const ValueType &a = type(sum->inputs[0]), &b = type(sum->inputs[1]);
  const auto rank = static_cast<int64_t>(a.dims.size());
  const auto axis = norm.attributes.get_or<int64_t>("axis", -1);
  if (a != b || a.dtype != DType::kF32 || !a.ranked || (rank != 2 && rank != 3) ||
      (axis != -1 && axis != rank - 1))
    return nullptr;
  for (const Dim& dim : a.dims) {
    if (dim.symbol == "?") return nullptr;
  }
  for (size_t i : {1, 2}) {
    if (norm.input(i) == kNone) continue;
    const ValueType& row = type(norm.inputs[i]);
    if (row.dtype != DType::kF32 || !row.ranked || row.dims != Dims{a.dims.back()}) return nullptr;
  }
  return sum;
}

}  // namespace

Result<Graph> fuse_skip_norm(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const Node* sum = sum_of_norm(graph, uses, node);
    if (sum == nullptr) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    std::vector<ValueId> inputs;
    for (ValueId id : {sum->inputs[0], sum->inputs[1], node.inputs[1]})
      inputs.push_back(rewriter.map(id));
    if (node.input(2) != kNone) inputs.push_back(rewriter.map(node.inputs[2]));
    Attributes attributes;
    attributes.set("epsilon", node.attributes.get_or<float>("epsilon", 1e-5f));
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter.add(Op::kSkipLayerNormalization,
                                                       std::move(inputs), attributes, node.name));
    rewriter.replace(node.outputs[0], y);
  }
  return rewriter.finish();  // sums are dead
}

}  // namespace lmn::graph
