// SPDX-License-Identifier: Apache-2.0
//
// Gelu as exporters of older operator sets write it, the factors in any order: the exact one,
// x * 0.5 * (1 + erf(x / sqrt(2))), and the one with tanh,
// x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
// Gelu is nearer to the function than the formula is, in which 1 + erf cancels: at -6 it is -5.9e-9
// and not 0, and at minus infinity 0 and not NaN.
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
    std::vector<bool> by_tanh(graph_.nodes.size(), false);
    for (const Node& node : graph_.nodes) {
      const bool is_tanh = is_op(&node, "Tanh");
      if (!is_tanh && !is_op(&node, "Erf")) continue;
      const auto [last, x] = is_tanh ? match_tanh(node) : match(node);
      if (last == nullptr || !same_type(x, last->outputs[0])) continue;
      argument[static_cast<size_t>(last - graph_.nodes.data())] = x;
      by_tanh[static_cast<size_t>(last - graph_.nodes.data())] = is_tanh;
    }
    Rewriter rewriter(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (argument[n] == kNone) {
        LMN_RETURN_IF_ERROR(rewriter.copy(node));
        continue;
      }
      Attributes attributes;
      if (by_tanh[n]) attributes.set("approximate", std::string("tanh"));
      LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter.add(op_of(*gelu), {rewriter.map(argument[n])},
                                                         attributes, node.name));
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
  // Constants of more dimensions than x would have changed its rank.
  bool same_type(ValueId x, ValueId y) const {
    const ValueType &from = graph_.value(x).type, &to = graph_.value(y).type;
    return from.dtype == to.dtype && from.ranked && to.ranked && from.dims.size() == to.dims.size();
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

  // A product of numbers and of other values, which are factors as often as they are listed.
  struct Factors {
    double number = 1;
    std::vector<ValueId> values;

    bool is(double wanted, std::initializer_list<ValueId> others) const {
      return std::abs(number - wanted) <= 1e-6 * wanted &&
             std::equal(values.begin(), values.end(), others.begin(), others.end());
    }
  };
  // What is multiplied to `id`, through what nobody else reads.
  void add_factors(ValueId id, Factors* factors) const {
    if (const std::optional<double> number = number_of(graph_, id); number) {
      factors->number *= *number;
      return;
    }
    const Node* node = uses_.only_one(id) ? graph_.producer(id) : nullptr;
    const bool is_product = is_op(node, "Mul") && node->inputs[0] != node->inputs[1];
    const auto power = [&](double wanted) {
      return is_op(node, "Pow") && is_number(graph_, node->inputs[1], wanted);
    };
    if (is_product) {
      add_factors(node->inputs[0], factors);
      add_factors(node->inputs[1], factors);
    } else if (is_op(node, "Mul") || power(2) || power(3)) {
      factors->values.insert(factors->values.end(), power(3) ? size_t{3} : size_t{2},
                             node->inputs[0]);
    } else {
      factors->values.push_back(id);
    }
  }
  Factors factors_of(ValueId id) const {
    Factors factors;
    add_factors(id, &factors);
    return factors;
  }

  // x of tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), where x may be before the sum.
  ValueId cubic_argument(ValueId id) const {
    const Factors outer = factors_of(id);
    for (size_t i = 0; i < outer.values.size() && outer.values.size() <= 2; ++i) {
      const Node* sum = graph_.producer(outer.values[i]);
      if (!is_op(sum, "Add")) continue;
      for (size_t side : {0, 1}) {
        const ValueId first = sum->inputs[side];
        const Factors rest = factors_of(sum->inputs[1 - side]);
        constexpr double kRoot = 0.79788456080286536, kCubic = 0.044715;
        if (outer.is(kRoot, {sum->outputs[0]}) && rest.is(kCubic, {first, first, first}))
          return first;
        if (outer.values.size() < 2 || !is_number(graph_, first, 1)) continue;
        const ValueId x = outer.values[1 - i];
        const bool in_order = outer.is(kRoot, {sum->outputs[0], x});
        if ((in_order || outer.is(kRoot, {x, sum->outputs[0]})) && rest.is(kCubic, {x, x}))
          return x;
      }
    }
    return kNone;
  }

  std::pair<const Node*, ValueId> match_tanh(const Node& tanh) const {
    const std::pair<const Node*, ValueId> none{nullptr, kNone};
    const ValueId x = cubic_argument(tanh.inputs[0]);
    const Node* last = x == kNone ? nullptr : reader(tanh);
    if (last == nullptr || beside(last, "Add", 1.0, true) != tanh.outputs[0]) return none;
    Factors factors;
    while (!factors.is(0.5, {x})) {
      const ValueId y = last->outputs[0];
      last = reader(*last);
      if (!is_op(last, "Mul") || factors.values.size() > 1) return none;
      add_factors(last->inputs[0] == y ? last->inputs[1] : last->inputs[0], &factors);
    }
    return {last, x};
  }

  const Graph& graph_;
  const Uses uses_;
};

}  // namespace

Result<Graph> fuse_gelu(const Graph& graph, const PassOptions&) { return GeluFuser(graph).run(); }

}  // namespace lmn::graph
