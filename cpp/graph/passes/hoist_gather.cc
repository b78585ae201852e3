// SPDX-License-Identifier: Apache-2.0
//
// A choice of rows made after row-wise operators is made before them:
// gather_rows(linear(rms_norm(x)), i) becomes linear(rms_norm(gather_rows(x, i))), so that the
// output head computes logits only where somebody asked for them.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"
#include "graph/schema.h"

namespace lmn::graph {
namespace {

// Whether rows may be chosen on operand 0 of `node` instead of on its result.
bool commutes_with_gather(const Graph& graph, const Node& node) {
  if (is_tensor_op(node.op) || !schema(node.op).row_wise) return false;
  const ValueType& x = graph.value(node.inputs[0]).type;
  if (x.kind != Kind::kTensor || x.dtype != DType::kF32 || x.dims.size() != 2) return false;
  if (graph.value(node.inputs[0]).constant != nullptr) return false;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id != kNone && graph.value(id).constant == nullptr)
      return false;  // another operand with rows
  }
  return true;
}

}  // namespace

Result<Graph> hoist_gather(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  std::vector<std::vector<NodeId>> chain(
      graph.nodes.size());  // per gather: the nodes it moves before, last first
  std::vector<bool> moved(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != Op::kGatherRows) continue;
    ValueId x = graph.nodes[n].inputs[0];
    while (graph.producer(x) != nullptr && uses.only_one(x) &&
           commutes_with_gather(graph, *graph.producer(x))) {
      const NodeId producer = graph.value(x).producer;
      chain[n].push_back(producer);
      moved[static_cast<size_t>(producer)] = true;
      x = graph.node(producer).inputs[0];
    }
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (moved[n]) continue;
    if (chain[n].empty()) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    const ValueId x = rewriter.map(graph.node(chain[n].back()).inputs[0]);
    LMN_ASSIGN_OR_RETURN(
        ValueId now,
        rewriter.add(Op::kGatherRows, {x, rewriter.map(node.inputs[1])}, {}, node.name));
    for (size_t i = chain[n].size(); i-- > 0;) {
      const Node& row_wise = graph.node(chain[n][i]);
      std::vector<ValueId> inputs{now};
      for (size_t k = 1; k < row_wise.inputs.size(); ++k)
        inputs.push_back(rewriter.map(row_wise.inputs[k]));
      LMN_ASSIGN_OR_RETURN(
          now, rewriter.add(row_wise.op, std::move(inputs), row_wise.attributes, row_wise.name));
    }
    rewriter.replace(node.outputs[0], now);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
