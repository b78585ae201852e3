// SPDX-License-Identifier: Apache-2.0
//
// Dynamically quantised products: MatMulInteger, the Cast of its sums, the product with both
// scales, the bias and an activation become one lmnative.IntegerLinear, whose weights the device
// packs once. com.microsoft's operators for the same, too. DynamicQuantizeLinear becomes two steps,
// both of which all workers share.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

struct IntegerProduct {
  ValueId x = kNone, x_scale = kNone, x_zero = kNone;
  ValueId w = kNone, w_scale = kNone, w_zero = kNone, bias = kNone;
  size_t last = 0;  // the node whose output is the result
  std::string activation;
  bool quantizes = false;  // x is float32 yet
};

class IntegerFuser {
 public:
  explicit IntegerFuser(const Graph& graph) : graph_(graph), uses_(graph), rewriter_(graph) {}

  Result<Graph> run() {
    const size_t count = graph_.nodes.size();
    std::vector<std::optional<IntegerProduct>> at(count);  // by the last node
    std::vector<bool> taken(count, false);
    for (size_t n = 0; n < count; ++n) {
      std::vector<size_t> nodes{n};
      std::optional<IntegerProduct> product = match(n, &nodes);
      if (!product) continue;
      grow(&*product, &nodes);
      for (size_t node : nodes) taken[node] = true;
      at[product->last] = std::move(product);
    }
    for (size_t n = 0; n < count; ++n) {
      const Node& node = graph_.nodes[n];
      if (at[n]) {
        LMN_RETURN_IF_ERROR(put(*at[n], node));
      } else if (!taken[n] && name_of(node) == "DynamicQuantizeLinear" &&
                 graph_.value(node.inputs[0]).type.dtype == DType::kF32) {
        LMN_ASSIGN_OR_RETURN(const std::vector<ValueId> parts,
                             quantize(rewriter_.map(node.inputs[0]), node.name));
        for (size_t i = 0; i < node.outputs.size(); ++i)
          rewriter_.replace(node.outputs[i], parts[i]);
      } else if (!taken[n]) {
        LMN_RETURN_IF_ERROR(rewriter_.copy(node));
      }
    }
    return rewriter_.finish();
  }

 private:
  static std::string_view name_of(const Node& node) {
    return is_tensor_op(node.op) ? name(node.op) : std::string_view();
  }
  const Dims& dims(ValueId id) const { return graph_.value(id).type.dims; }

  // The only node that reads the only output of node `n`; none where there are more.
  std::optional<size_t> next(size_t n) const {
    const ValueId y = graph_.nodes[n].outputs[0];
    if (graph_.nodes[n].outputs.size() != 1 || !uses_.only_one(y)) return std::nullopt;
    return static_cast<size_t>(uses_.of(y)[0]);
  }
  bool is_number(ValueId id) const {
    const ValueType& type = graph_.value(id).type;
    return type.ranked && (type.dims.empty() || (type.dims.size() == 1 && type.dims[0] == Dim(1)));
  }
  bool is_matrix(ValueId id) const {
    const TensorView* w = constant_of(graph_, id);
    return w != nullptr && w->shape.rank == 2 && (w->dtype == DType::kI8 || w->dtype == DType::kU8);
  }
  // A constant that is a number or a row for the matrix's columns.
  bool is_row(ValueId id, ValueId matrix, bool or_number) const {
    const TensorView* row = constant_of(graph_, id);
    if (row == nullptr || row->shape.rank > 1) return false;
    return (or_number && row->shape.elements() == 1) ||
           row->shape.elements() == constant_of(graph_, matrix)->shape[1];
  }
  bool has_columns(ValueId x) const {
    const ValueType& type = graph_.value(x).type;
    return type.ranked && type.dims.size() >= 2;
  }

  // Operands of a product that are all there are and of the shapes that are taken.
  bool suits(const IntegerProduct& p) const {
    return is_matrix(p.w) && has_columns(p.x) && is_row(p.w_scale, p.w, true) &&
           graph_.value(p.w_scale).type.dtype == DType::kF32 &&
           (p.w_zero == kNone || is_row(p.w_zero, p.w, true)) &&
           (p.bias == kNone || is_row(p.bias, p.w, false)) &&
           (p.quantizes || (is_number(p.x_scale) && is_number(p.x_zero)));
  }

  std::optional<IntegerProduct> match(size_t n, std::vector<size_t>* nodes) const {
    const Node& node = graph_.nodes[n];
    const std::string_view op = name_of(node);
    IntegerProduct p;
    p.last = n;
    if (op == "com.microsoft.DynamicQuantizeMatMul") {
      p.x = node.inputs[0];
      p.w = node.inputs[1];
      p.w_scale = node.inputs[2];
      p.w_zero = node.input(3);
      p.bias = node.input(4);
      p.quantizes = true;
    } else if (op == "com.microsoft.MatMulIntegerToFloat") {
      p.x = node.inputs[0];
      p.w = node.inputs[1];
      p.x_scale = node.inputs[2];
      p.w_scale = node.inputs[3];
      p.x_zero = node.input(4);
      p.w_zero = node.input(5);
      p.bias = node.input(6);
      if (p.x_zero == kNone) return std::nullopt;
    } else if (op == "MatMulInteger") {
      p.x = node.inputs[0];
      p.w = node.inputs[1];
      p.x_zero = node.input(2);
      p.w_zero = node.input(3);
      if (p.x_zero == kNone || !match_scales(&p, nodes)) return std::nullopt;
    } else {
      return std::nullopt;
    }
    return suits(p) ? std::optional(p) : std::nullopt;
  }

  // Cast(sums) * (x_scale * w_scale)
  bool match_scales(IntegerProduct* p, std::vector<size_t>* nodes) const {
    const std::optional<size_t> cast = next(p->last);
    if (!cast || name_of(graph_.nodes[*cast]) != "Cast" ||
        graph_.value(graph_.nodes[*cast].outputs[0]).type.dtype != DType::kF32) {
      return false;
    }
    const std::optional<size_t> product = next(*cast);
    if (!product || name_of(graph_.nodes[*product]) != "Mul") return false;
    const ValueId sums = graph_.nodes[*cast].outputs[0];
    const Node& mul = graph_.nodes[*product];
    const Node* scales = graph_.producer(mul.inputs[0] == sums ? mul.inputs[1] : mul.inputs[0]);
    if (scales == nullptr || name_of(*scales) != "Mul") return false;
    const bool swapped = constant_of(graph_, scales->inputs[1]) == nullptr;
    p->x_scale = scales->inputs[swapped ? 1 : 0];
    p->w_scale = scales->inputs[swapped ? 0 : 1];
    p->last = *product;
    nodes->push_back(*cast);
    nodes->push_back(*product);
    return true;
  }

  void grow(IntegerProduct* p, std::vector<size_t>* nodes) const {
    for (;;) {
      const std::optional<size_t> found = next(p->last);
      if (!found || graph_.nodes[*found].outputs.size() != 1) return;
      const Node& node = graph_.nodes[*found];
      const ValueId y = graph_.nodes[p->last].outputs[0];
      if (node.op == Op::kAdd && p->bias == kNone) {
        const ValueId other = node.inputs[0] == y ? node.inputs[1] : node.inputs[0];
        if (!is_row(other, p->w, false)) return;
        p->bias = other;
      } else {
        p->activation = activation_of(node);
        if (p->activation.empty()) return;
      }
      p->last = *found;
      nodes->push_back(*found);
      if (!p->activation.empty()) return;
    }
  }

  // y, scale and zero point of x, a value of the new graph.
  Result<std::vector<ValueId>> quantize(ValueId x, const std::string& name) {
    LMN_ASSIGN_OR_RETURN(const ValueId ranges,
                         rewriter_.add(op_of(ops::TensorOp::kBlockRanges), {x}, {}, name));
    return rewriter_.add_all(op_of(ops::TensorOp::kQuantizeByRanges), {x, ranges}, {}, name, 3);
  }

  Status put(const IntegerProduct& p, const Node& last) {
    std::vector<ValueId> x{rewriter_.map(p.x), kNone, kNone};
    if (p.quantizes) {
      LMN_ASSIGN_OR_RETURN(x, quantize(x[0], last.name));
    } else {
      x[1] = rewriter_.map(p.x_scale);
      x[2] = rewriter_.map(p.x_zero);
    }
    for (ValueId id : {p.w, p.w_scale, p.w_zero, p.bias}) x.push_back(rewriter_.map(id));
    while (x.back() == kNone) x.pop_back();
    Attributes attributes;
    if (!p.activation.empty()) attributes.set("activation", p.activation);
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter_.add(op_of(ops::TensorOp::kIntegerLinear),
                                                        std::move(x), attributes, last.name));
    rewriter_.replace(last.outputs[0], y);
    return {};
  }

  const Graph& graph_;
  const Uses uses_;
  Rewriter rewriter_;
};

}  // namespace

Result<Graph> fuse_integer_linear(const Graph& graph, const PassOptions&) {
  return IntegerFuser(graph).run();
}

}  // namespace lmn::graph
