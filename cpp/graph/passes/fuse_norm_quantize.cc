// SPDX-License-Identifier: Apache-2.0
//
// quantize(rms_norm(x, w)) -> rms_norm_quantize(x, w), where nothing else reads the norm.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {

Result<Graph> fuse_norm_quantize(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  const auto norm_of = [&](const Node& node) -> const Node* {
    if (node.op != Op::kQuantize || !uses.only_one(node.inputs[0])) return nullptr;
    const Node* norm = graph.producer(node.inputs[0]);
    return norm != nullptr && norm->op == Op::kRmsNorm ? norm : nullptr;
  };
  std::vector<bool> gone(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    if (const Node* norm = norm_of(node))
      gone[static_cast<size_t>(norm - graph.nodes.data())] = true;
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (gone[n]) continue;
    const Node* norm = norm_of(node);
    if (norm == nullptr) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    Attributes attributes = norm->attributes;
    attributes.set("type", node.attributes.get<std::string>("type"));
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter.add(Op::kRmsNormQuantize,
                                                       {rewriter.map(norm->inputs[0]),
                                                        rewriter.map(norm->inputs[1])},
                                                       std::move(attributes), norm->name));
    rewriter.replace(node.outputs[0], y);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
