// SPDX-License-Identifier: Apache-2.0
//
// The exact Gelu as exporters of older operator sets write it: x * 0.5 * (1 + erf(x / sqrt(2))),
// the factors in any order.
#include <cmath>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

bool is_op(const Node* node, std::string_view op) {
  return node != nullptr && is_tensor_op(node->op) && name(node->op) == op;
}

class GeluFuser {
 public:
  explicit GeluFuser(const Graph& graph) : graph_(graph), uses_(graph) {}

  Result<Graph> run() {
    const ops::TensorOp* gelu = ops::find_tensor_op("Gelu");
    if (gelu == nullptr) return graph_;
    std::vector<ValueId> argument(graph_.nodes.size(), kNone);  // by the last node
    for (const Node& node : graph_.nodes) {
      if (!is_op(&node, "Erf")) continue;
      const auto [last, x] = match(node);
      if (last != nullptr) argument[static_cast<size_t>(last - graph_.nodes.data())] = x;
    }
    Rewriter rewriter(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (argument[n] == kNone) {
        LMN_RETURN_IF_ERROR(rewriter.copy(node));
        continue;
      }
      LMN_ASSIGN_OR_RETURN(const ValueId y,
                           rewriter.add(op_of(*gelu), {rewriter.map(argument[n])}, {}, node.name));
      rewriter.replace(node.outputs[0], y);
    }
    return rewriter.finish();
  }

 private:
  // The other operand where one of `node` is the constant `wanted`; kNone otherwise.
  ValueId beside(const Node* node, std::string_view op, double wanted, bool either_side) const {
    if (!is_op(node, op)) return kNone;
    for (size_t i : {1, 0}) {
      const TensorView* known = constant_of(graph_, node->inputs[i]);
      if (known == nullptr || known->dtype != DType::kF32 || known->shape.elements() != 1) continue;
      if (i == 0 && !either_side) continue;
      if (std::abs(static_cast<double>(*known->as<float>()) - wanted) <= 1e-6 * wanted)
        return node->inputs[1 - i];
    }
    return kNone;
  }
  // The only reader of a node's output; null: there are others.
  const Node* reader(const Node& node) const {
    const ValueId y = node.outputs[0];
    return uses_.only_one(y) ? &graph_.node(uses_.of(y)[0]) : nullptr;
  }

  std::pair<const Node*, ValueId> match(const Node& erf) const {
    const std::pair<const Node*, ValueId> none{nullptr, kNone};
    const Node* scaled = graph_.producer(erf.inputs[0]);
    ValueId x = beside(scaled, "Div", std::sqrt(2.0), false);
    if (x == kNone) x = beside(scaled, "Mul", std::sqrt(0.5), true);
    const Node* sum = reader(erf);
    if (x == kNone || sum == nullptr || beside(sum, "Add", 1.0, true) != erf.outputs[0])
      return none;
    const Node* product = reader(*sum);
    if (!is_op(product, "Mul")) return none;
    const ValueId other =
        product->inputs[0] == sum->outputs[0] ? product->inputs[1] : product->inputs[0];
    if (beside(graph_.producer(other), "Mul", 0.5, true) == x) return {product, x};
    const Node* half = reader(*product);
    const bool halved = half != nullptr && beside(half, "Mul", 0.5, true) == product->outputs[0];
    if (other == x && halved) return {half, x};
    // 0.5 * (1 + erf) and then times x
    if (beside(product, "Mul", 0.5, true) == sum->outputs[0] && is_op(half, "Mul")) {
      const ValueId factor =
          half->inputs[0] == product->outputs[0] ? half->inputs[1] : half->inputs[0];
      if (factor == x) return {half, x};
    }
    return none;
  }

  const Graph& graph_;
  const Uses uses_;
};

}  // namespace

Result<Graph> fuse_gelu(const Graph& graph, const PassOptions&) { return GeluFuser(graph).run(); }

}  // namespace lmn::graph
