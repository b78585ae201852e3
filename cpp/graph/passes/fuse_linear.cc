// SPDX-License-Identifier: Apache-2.0
//
// Products with constant matrices: MatMul or Gemm, then a constant vector that is added, then an
// activation, then a tensor of as many columns that is added, become one lmnative.Linear, whose
// weights the device packs once. float32 only.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

struct Product {
  ValueId x, weight, bias;
  bool transposed;
  size_t last;  // the node whose output is the result
  std::string activation;
  ValueId residual = kNone;
};

class LinearFuser {
 public:
  explicit LinearFuser(const Graph& graph) : graph_(graph), uses_(graph) {}

  Result<Graph> run() {
    std::vector<std::optional<Product>> at(graph_.nodes.size());  // by the last node
    std::vector<bool> taken(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      std::optional<Product> product = match(n);
      if (!product) continue;
      std::vector<size_t> nodes{n};
      grow(taken, &*product, &nodes);
      for (size_t node : nodes) taken[node] = true;
      at[product->last] = std::move(product);
    }
    Rewriter rewriter(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (at[n]) {
        const Product& p = *at[n];
        Attributes attributes;
        if (p.transposed) attributes.set("transposed", int64_t{1});
        if (!p.activation.empty()) attributes.set("activation", p.activation);
        std::vector<ValueId> inputs{rewriter.map(p.x), rewriter.map(p.weight)};
        if (p.bias != kNone || p.residual != kNone) inputs.push_back(bias_of(p, &rewriter));
        if (p.residual != kNone) inputs.push_back(rewriter.map(p.residual));
        LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter.add(Op::kFusedLinear, std::move(inputs),
                                                           attributes, graph_.nodes[n].name));
        rewriter.replace(graph_.nodes[n].outputs[0], y);
      } else if (!taken[n]) {
        LMN_RETURN_IF_ERROR(rewriter.copy(graph_.nodes[n]));
      }
    }
    return rewriter.finish();
  }

 private:
  bool is_constant(ValueId id, size_t rank) const {
    const TensorView* known = constant_of(graph_, id);
    return known != nullptr && known->dtype == DType::kF32 &&
           known->shape.rank == static_cast<int>(rank);
  }

  std::optional<Product> match(size_t n) const {
    const Node& node = graph_.nodes[n];
    if (node.op == Op::kMatMul && is_constant(node.inputs[1], 2)) {
      const ValueType& x = graph_.value(node.inputs[0]).type;
      if (x.dtype != DType::kF32 || !x.ranked || x.dims.size() < 2) return std::nullopt;
      return Product{node.inputs[0], node.inputs[1], kNone, false, n, ""};
    }
    if (node.op == Op::kFusedLinear) return match_linear(n);
    if (name(node.op) != "Gemm" || !is_constant(node.inputs[1], 2)) return std::nullopt;
    const bool plain = node.attributes.get_or<int64_t>("transA", 0) == 0 &&
                       node.attributes.get_or<float>("alpha", 1.0f) == 1.0f &&
                       node.attributes.get_or<float>("beta", 1.0f) == 1.0f;
    const bool transposed = node.attributes.get_or<int64_t>("transB", 0) != 0;
    const ValueId bias = node.input(2);
    const Product product{node.inputs[0], node.inputs[1], bias, transposed, n, ""};
    if (!plain || (bias != kNone && !is_bias(bias, product))) return std::nullopt;
    return product;
  }

  // A graph may have been built with one, which has room for a bias or an activation yet.
  std::optional<Product> match_linear(size_t n) const {
    const Node& node = graph_.nodes[n];
    if (node.inputs.size() > 3 || node.attributes.find("activation") != nullptr ||
        !is_constant(node.inputs[1], 2))
      return std::nullopt;
    const bool transposed = node.attributes.get_or<int64_t>("transposed", 0) != 0;
    return Product{node.inputs[0], node.inputs[1], node.input(2), transposed, n, ""};
  }

  // One number for every column of the result, in no more dimensions than that has.
  bool is_bias(ValueId id, const Product& p) const {
    const TensorView* known = constant_of(graph_, id);
    const Dim& columns = graph_.value(p.weight).type.dims[p.transposed ? 0 : 1];
    return known != nullptr && known->dtype == DType::kF32 && known->shape.rank >= 1 &&
           known->shape.rank <= static_cast<int>(graph_.value(p.x).type.dims.size()) &&
           known->shape.elements() == columns.size && known->shape.last() == columns.size;
  }
  // As a vector.
  ValueId bias_of(const Product& p, Rewriter* rewriter) const {
    if (p.bias == kNone || graph_.value(p.bias).type.dims.size() == 1) return rewriter->map(p.bias);
    Constant vector = *graph_.value(p.bias).constant;
    vector.pieces[0].view.shape = Shape{vector.pieces[0].view.shape.elements()};
    return rewriter->add_constant(std::move(vector));
  }

  // A tensor with the columns of the result; its rows are broadcast, or the result's are.
  bool is_residual(ValueId id, ValueId weight, bool transposed) const {
    const ValueType& type = graph_.value(id).type;
    return type.kind == Kind::kTensor && type.dtype == DType::kF32 && type.ranked &&
           !type.dims.empty() &&
           type.dims.back() == graph_.value(weight).type.dims[transposed ? 0 : 1];
  }

  void grow(const std::vector<bool>& taken, Product* p, std::vector<size_t>* nodes) const {
    for (;;) {
      const ValueId y = graph_.nodes[p->last].outputs[0];
      if (!uses_.only_one(y)) return;
      const auto next = static_cast<size_t>(uses_.of(y)[0]);
      const Node& node = graph_.nodes[next];
      if (taken[next]) return;  // by the other of two products that are added
      if (!is_tensor_op(node.op) || node.outputs.size() != 1) return;
      const ValueId other = node.op != Op::kAdd   ? kNone
                            : node.inputs[0] == y ? node.inputs[1]
                                                  : node.inputs[0];
      if (other != kNone && p->bias == kNone && p->activation.empty() && is_bias(other, *p)) {
        p->bias = other;
      } else if (other != kNone && is_residual(other, p->weight, p->transposed)) {
        p->residual = other;
      } else {
        if (!p->activation.empty()) return;
        p->activation = activation_of(node);
        if (p->activation.empty()) return;
      }
      p->last = next;
      nodes->push_back(next);
      if (p->residual != kNone) return;
    }
  }

  const Graph& graph_;
  const Uses uses_;
};

}  // namespace

Result<Graph> fuse_linear(const Graph& graph, const PassOptions&) {
  return LinearFuser(graph).run();
}

}  // namespace lmn::graph
