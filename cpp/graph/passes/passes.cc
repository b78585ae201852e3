// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/passes.h"

#include "graph/schema.h"

namespace lmn::graph {
namespace {

constexpr Pass kPasses[] = {
    {"fold_constants", fold_constants},
    {"fold_shapes", fold_shapes},
    {"simplify_tensors", simplify_tensors},
    // Where a Slice of everything hid the name of a size.
    {"fold_shapes", fold_shapes},
    // Rope tables are built layer by layer and are all the same; merged first, so that fusion sees
    // one.
    {"eliminate_common_subexpressions", eliminate_common_subexpressions},
    // Before fuse_linear, which takes activations along.
    {"fuse_gelu", fuse_gelu},
    {"fuse_layer_norm", fuse_layer_norm},
    {"gather_one_hot", gather_one_hot},
    {"fuse_attention", fuse_attention},
    {"eliminate_dead_code", eliminate_dead_code},
    {"fold_batch_norm", fold_batch_norm},
    // Before fuse_convolution, which works on what it makes.
    {"use_channels_last", use_channels_last},
    // Of the Transposes that it wrote with those that were there.
    {"simplify_tensors", simplify_tensors},
    {"fuse_convolution", fuse_convolution},
    {"fuse_linear", fuse_linear},
    {"fuse_integer_linear", fuse_integer_linear},
    // After the products that take sums along.
    {"fuse_skip_norm", fuse_skip_norm},
    {"hoist_gather", hoist_gather},
    // Before merge_linears: a gate and an up of one type are better interleaved than side by side.
    {"merge_gate_up", merge_gate_up},
    {"merge_linears", merge_linears},
    {"fuse_rope_kv_write", fuse_rope_kv_write},
    {"fuse_residual", fuse_residual},
    // The number of Linears is final: each asks for its input type, and those on one x then share
    // one quantize.
    {"lower_quantize", lower_quantize},
    {"eliminate_common_subexpressions", eliminate_common_subexpressions},
    {"fuse_norm_quantize", fuse_norm_quantize},
    // After all that takes such operators along, and without what nobody reads.
    {"eliminate_dead_code", eliminate_dead_code},
    {"fuse_elementwise", fuse_elementwise},
};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Result<Graph> optimize(Graph graph, const PassOptions& options) {
  for (Node& node : graph.nodes) {
    const Attributes attributes = node.attributes;
    for (const auto& [key, value] : attributes.entries()) {
      const auto* subgraph = std::get_if<std::shared_ptr<const Graph>>(&value);
      if (subgraph == nullptr) continue;
      LMN_ASSIGN_OR_RETURN(Graph optimized, optimize(**subgraph, options));
      node.attributes.set(
          key, std::shared_ptr<const Graph>(std::make_shared<Graph>(std::move(optimized))));
    }
  }
  if (options.observe) options.observe("input", graph);
  for (const Pass& pass : kPasses) {
    LMN_ASSIGN_OR_RETURN(graph, pass.run(graph, options));
    Status verified = verify(graph);
    if (!verified.ok()) {
      return error(Code::kInternal, "%s: %s", std::string(pass.name).c_str(),
                   std::string(verified.message()).c_str());
    }
    if (options.observe) options.observe(pass.name, graph);
  }
  return graph;
}

}  // namespace lmn::graph
