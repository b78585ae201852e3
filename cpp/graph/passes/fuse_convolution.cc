// SPDX-License-Identifier: Apache-2.0
//
// A convolution over channels last takes along what follows it: a constant vector that is added, a
// tensor of its shape that is added, an activation.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

struct FusedConvolution {
  std::vector<ValueId> inputs;  // x, weights, bias, residual
  Attributes attributes;
  size_t first;  // the convolution
};

class ConvolutionFuser {
 public:
  explicit ConvolutionFuser(const Graph& graph) : graph_(graph), uses_(graph) {}

  Result<Graph> run() {
    const size_t count = graph_.nodes.size();
    std::vector<std::optional<FusedConvolution>> at(count);  // by the last node
    taken_.assign(count, false);
    // From the end: of two convolutions whose sum is taken, the later one adds the other's result.
    for (size_t n = count; n-- > 0;) {
      const Node& node = graph_.nodes[n];
      if (node.op != op_of(ops::TensorOp::kChannelsLastConv) || node.input(3) != kNone ||
          !node.attributes.get_or<std::string>("activation", "").empty()) {
        continue;
      }
      FusedConvolution fused{node.inputs, node.attributes, n};
      const size_t last = grow(&fused);
      at[last] = std::move(fused);
    }
    Rewriter rewriter(graph_);
    for (size_t n = 0; n < count; ++n) {
      const Node& node = graph_.nodes[n];
      if (!at[n]) {
        if (!taken_[n]) LMN_RETURN_IF_ERROR(rewriter.copy(node));
        continue;
      }
      std::vector<ValueId> inputs;
      for (ValueId id : at[n]->inputs) inputs.push_back(rewriter.map(id));
      const Node& first = graph_.nodes[at[n]->first];
      LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter.add(first.op, std::move(inputs),
                                                         at[n]->attributes, first.name));
      rewriter.replace(node.outputs[0], y);
    }
    return rewriter.finish();
  }

 private:
  // The last node that the convolution takes along, or itself.
  size_t grow(FusedConvolution* fused) {
    size_t last = fused->first;
    taken_[last] = true;
    for (;;) {
      const ValueId y = graph_.nodes[last].outputs[0];
      if (!uses_.only_one(y)) return last;
      const auto next = static_cast<size_t>(uses_.of(y)[0]);
      const Node& node = graph_.nodes[next];
      if (taken_[next] || !is_tensor_op(node.op) || node.outputs.size() != 1) return last;
      const bool added = node.op == Op::kAdd && add(node, y, fused);
      if (!added && !activate(node, &fused->attributes)) return last;
      last = next;
      taken_[next] = true;
      if (!added) return last;
    }
  }

  bool add(const Node& node, ValueId y, FusedConvolution* fused) const {
    const ValueId other = node.inputs[0] == y ? node.inputs[1] : node.inputs[0];
    const ValueType &mine = graph_.value(y).type, &theirs = graph_.value(other).type;
    if (fused->inputs.size() >= 4 || !theirs.ranked || !mine.ranked) return false;
    const TensorView* constant = constant_of(graph_, other);
    const Dim& channels = mine.dims.back();
    if (fused->inputs.size() == 2 && constant != nullptr && constant->shape.rank == 1 &&
        channels.is_constant() && constant->shape[0] == channels.size) {
      fused->inputs.push_back(other);
      return true;
    }
    bool same = theirs.dims == mine.dims;
    for (const Dim& dim : mine.dims) same = same && (dim.is_constant() || dim.symbol != "?");
    if (!same) return false;
    if (fused->inputs.size() == 2) fused->inputs.push_back(kNone);
    fused->inputs.push_back(other);
    return true;
  }

  bool activate(const Node& node, Attributes* attributes) const {
    const std::string_view op = name(node.op);
    if (op == "Clip") {
      for (size_t i = 1; i <= 2; ++i) {
        if (node.input(i) == kNone) continue;
        const TensorView* limit = constant_of(graph_, node.input(i));
        if (limit == nullptr || limit->dtype != DType::kF32 || limit->shape.elements() != 1)
          return false;
      }
      if (node.input(1) != kNone)
        attributes->set("low", *constant_of(graph_, node.input(1))->as<float>());
      if (node.input(2) != kNone)
        attributes->set("high", *constant_of(graph_, node.input(2))->as<float>());
    } else if (op != "Relu" && op != "Sigmoid" && op != "Tanh" && op != "HardSwish") {
      return false;
    }
    attributes->set("activation", std::string(op));
    return true;
  }

  const Graph& graph_;
  const Uses uses_;
  std::vector<bool> taken_;
};

}  // namespace

Result<Graph> fuse_convolution(const Graph& graph, const PassOptions&) {
  return ConvolutionFuser(graph).run();
}

}  // namespace lmn::graph
