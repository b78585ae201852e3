// SPDX-License-Identifier: Apache-2.0
//
// Dead code: what counts is what an output needs, and every write of a state, whether or not
// anything reads it in this step (the next one will).
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

bool writes_state(const Graph& graph, const Node& node) {
  for (ValueId id : node.outputs) {
    if (graph.value(id).type.kind == Kind::kKvCache) return true;
  }
  return false;
}

}  // namespace

Result<Graph> eliminate_dead_code(const Graph& graph, const PassOptions&) {
  std::vector<bool> live(graph.values.size(), false);
  for (const Output& output : graph.outputs) live[static_cast<size_t>(output.value)] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool wanted = writes_state(graph, node);
    for (ValueId id : node.outputs) wanted |= live[static_cast<size_t>(id)];
    if (!wanted) continue;
    keep[n] = true;
    for (ValueId id : node.inputs) {
      if (id != kNone) live[static_cast<size_t>(id)] = true;
    }
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (keep[n]) LMN_RETURN_IF_ERROR(rewriter.copy(graph.nodes[n]));
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
