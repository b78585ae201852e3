// SPDX-License-Identifier: Apache-2.0
//
// silu_mul(linear(x, gate), linear(x, up)) -> linear(x, gate and up interleaved): the gated
// feed-forward of Llama as one product whose kernel has both halves of an output in registers.
// Panels of the two alternate, so types and shapes are equal; a bias would have to be interleaved
// likewise, so there is none.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

bool is_gated_pair(const Graph& graph, const Uses& uses, const Node& silu_mul) {
  const Node* gate = graph.producer(silu_mul.inputs[0]);
  const Node* up = graph.producer(silu_mul.inputs[1]);
  if (gate == nullptr || up == nullptr || gate == up) return false;
  for (const Node* linear : {gate, up}) {
    if (!is_plain_linear(graph, *linear) || linear->input(2) != kNone) return false;
    if (!uses.only_one(linear->outputs[0])) return false;
    if (graph.value(linear->inputs[1]).constant->pieces.size() != 1) return false;
  }
  const TensorView& a = graph.value(gate->inputs[1]).constant->pieces[0].view;
  const TensorView& b = graph.value(up->inputs[1]).constant->pieces[0].view;
  return gate->inputs[0] == up->inputs[0] && is_precise(*gate) == is_precise(*up) &&
         a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace

Result<Graph> merge_gate_up(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  std::vector<bool> merged(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op != Op::kSiluMul || !is_gated_pair(graph, uses, node)) continue;
    merged[n] = true;
    for (ValueId id : node.inputs) gone[static_cast<size_t>(graph.value(id).producer)] = true;
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (gone[n]) continue;
    if (!merged[n]) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    const Node& gate = *graph.producer(node.inputs[0]);
    const Node& up = *graph.producer(node.inputs[1]);
    Constant both;
    both.pieces = {graph.value(gate.inputs[1]).constant->pieces[0],
                   graph.value(up.inputs[1]).constant->pieces[0]};
    Attributes attributes = gate.attributes;
    attributes.set("interleaved", int64_t{1});
    const ValueId x = rewriter.map(gate.inputs[0]);
    const ValueId weight = rewriter.add_constant(std::move(both));
    LMN_ASSIGN_OR_RETURN(const ValueId y,
                         rewriter.add(Op::kLinear, {x, weight}, std::move(attributes), node.name));
    rewriter.replace(node.outputs[0], y);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
