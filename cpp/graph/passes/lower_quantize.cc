// SPDX-License-Identifier: Apache-2.0
//
// linear(x, w) -> linear(quantize(x), w) for weights whose product the device computes on integers.
// This is the one pass that changes results, by the rounding of x; a device that wants it may have
// no other kernel for the weight.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {

Result<Graph> lower_quantize(const Graph& graph, const PassOptions& options) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kLinear || graph.value(node.inputs[0]).type.dtype != DType::kF32) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    LMN_ASSIGN_OR_RETURN(const std::optional<DType> wanted,
                         linear_input_type(graph, node, options));
    if (!wanted) {
      return error(Code::kInternal, "linear '%s' merges weights that want different inputs",
                   node.name.c_str());
    }
    if (*wanted == DType::kF32) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    const std::string type(info(*wanted).name);
    LMN_ASSIGN_OR_RETURN(
        const ValueId x,
        rewriter.add(Op::kQuantize, {rewriter.map(node.inputs[0])}, {{"type", type}}, node.name));
    std::vector<ValueId> inputs{x};
    for (size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(rewriter.map(node.inputs[i]));
    LMN_ASSIGN_OR_RETURN(const ValueId y,
                         rewriter.add(Op::kLinear, std::move(inputs), node.attributes, node.name));
    rewriter.replace(node.outputs[0], y);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
