// SPDX-License-Identifier: Apache-2.0
//
// add(linear(x, w), r) -> linear(x, w, residual = r): the sum is made while the product is still in
// a register, and the residual stream can stay where it is.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

// Which operand of `add` is a Linear that can take the other one as residual: the later one if both
// are; -1: none.
int linear_operand(const Graph& graph, const Uses& uses, const Node& add) {
  if (add.inputs[0] == add.inputs[1]) return -1;
  int found = -1;
  for (int i : {0, 1}) {
    const ValueId id = add.inputs[static_cast<size_t>(i)];
    const Node* linear = graph.producer(id);
    if (linear == nullptr || linear->op != Op::kLinear || linear->input(3) != kNone ||
        !uses.only_one(id))
      continue;
    if (found >= 0 &&
        graph.value(id).producer < graph.value(add.inputs[static_cast<size_t>(found)]).producer)
      continue;
    found = i;
  }
  return found;
}

}  // namespace

Result<Graph> fuse_residual(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  std::vector<int> operand(graph.nodes.size(), -1);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op != Op::kResidualAdd) continue;
    operand[n] = linear_operand(graph, uses, node);
    if (operand[n] < 0) continue;
    gone[static_cast<size_t>(graph.value(node.inputs[static_cast<size_t>(operand[n])]).producer)] =
        true;
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (gone[n]) continue;
    if (operand[n] < 0) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    const Node& linear = *graph.producer(node.inputs[static_cast<size_t>(operand[n])]);
    const ValueId residual = node.inputs[static_cast<size_t>(1 - operand[n])];
    LMN_ASSIGN_OR_RETURN(
        const ValueId y,
        rewriter.add(Op::kLinear,
                     {rewriter.map(linear.inputs[0]), rewriter.map(linear.inputs[1]),
                      rewriter.map(linear.input(2)), rewriter.map(residual)},
                     linear.attributes, linear.name));
    rewriter.replace(node.outputs[0], y);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
