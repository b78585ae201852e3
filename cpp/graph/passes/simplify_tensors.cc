// SPDX-License-Identifier: Apache-2.0
//
// Algebra of tensor operators: what does nothing goes, two movements of data become one.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

// Whether every element of a constant is `wanted`.
bool is_all(const TensorView& view, int wanted) {
  const int64_t count = view.shape.elements();
  if (count > 4096) return false;  // worth a look, not a scan
  const auto all = [&](auto value) {
    using T = decltype(value);
    for (int64_t i = 0; i < count; ++i) {
      if (view.as<T>()[i] != value) return false;
    }
    return true;
  };
  switch (view.dtype) {
    case DType::kF32:
      return all(static_cast<float>(wanted));
    case DType::kF64:
      return all(static_cast<double>(wanted));
    case DType::kI32:
      return all(static_cast<int32_t>(wanted));
    case DType::kI64:
      return all(static_cast<int64_t>(wanted));
    default:
      return false;
  }
}

// x op c gives x's shape whatever x's sizes are: c has no more dimensions, and all of size 1.
bool keeps_shape(const Graph& graph, ValueId x, const TensorView& c) {
  const ValueType& type = graph.value(x).type;
  return type.ranked && c.shape.elements() == 1 &&
         c.shape.rank <= static_cast<int>(type.dims.size());
}

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      const ValueId same = is_tensor_op(node.op) ? same_value(node) : kNone;
      if (same != kNone) {
        rewriter_.replace(node.outputs[0], rewriter_.map(same));
        continue;
      }
      if (node.op == Op::kReshape && merge_reshapes(node)) continue;
      LMN_ASSIGN_OR_RETURN(const bool merged, merge_transposes(node));
      if (!merged) LMN_RETURN_IF_ERROR(rewriter_.copy(node));
    }
    return rewriter_.finish();
  }

 private:
  // The operand that the node's output equals; kNone: none.
  ValueId same_value(const Node& node) const {
    const std::string_view op = name(node.op);
    const ValueId x = node.input(0), y = node.input(1);
    if (op == "Identity") return x;
    if (op == "Dropout" && node.outputs.size() == 1) {
      // Without a training_mode, or with a false one.
      const TensorView* training = constant_of(graph_, node.input(2));
      if (node.input(2) == kNone || (training != nullptr && *training->as<uint8_t>() == 0))
        return x;
    }
    if (op == "Cast") {
      const ValueType &from = graph_.value(x).type, &to = graph_.value(node.outputs[0]).type;
      if (from.dtype == to.dtype) return x;
    }
    if (op == "Transpose") {
      const auto* perm = node.attributes.find_as<ops::Ints>("perm");
      bool in_order = perm != nullptr;
      for (size_t i = 0; in_order && i < perm->size(); ++i)
        in_order = (*perm)[i] == static_cast<int64_t>(i);
      if (in_order) return x;
    }
    if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
      // -0 + 0 is 0: only where no sign is lost. x + -0, x - 0, x * 1 and x / 1 keep every bit of
      // x, and 0 is as good as -0 to integers.
      const TensorView* right = constant_of(graph_, y);
      const int neutral = op == "Mul" || op == "Div" ? 1 : 0;
      const bool sum_of_floats = op == "Add" && (graph_.value(x).type.dtype == DType::kF32 ||
                                                 graph_.value(x).type.dtype == DType::kF64);
      if (right != nullptr && !sum_of_floats && is_all(*right, neutral) &&
          keeps_shape(graph_, x, *right)) {
        return x;
      }
      const TensorView* left = constant_of(graph_, x);
      const bool commutes = op == "Mul" || (op == "Add" && !sum_of_floats);
      if (left != nullptr && commutes && is_all(*left, neutral) && keeps_shape(graph_, y, *left))
        return y;
    }
    return kNone;
  }

  // Reshape(Reshape(x, a), b) -> Reshape(x, b), where b says nothing relative to its input's shape.
  bool merge_reshapes(const Node& node) {
    const Node* inner = graph_.producer(node.inputs[0]);
    const TensorView* shape = constant_of(graph_, node.input(1));
    if (inner == nullptr || inner->op != Op::kReshape || shape == nullptr ||
        shape->dtype != DType::kI64) {
      return false;
    }
    for (int64_t i = 0; i < shape->shape.elements(); ++i) {
      if (shape->as<int64_t>()[i] == 0) return false;
    }
    Result<ValueId> merged =
        rewriter_.add(node.op, {rewriter_.map(inner->inputs[0]), rewriter_.map(node.inputs[1])},
                      node.attributes, node.name);
    if (!merged.ok()) return false;
    rewriter_.replace(node.outputs[0], *merged);
    return true;
  }

  // Transpose(Transpose(x)) -> one Transpose, or x.
  Result<bool> merge_transposes(const Node& node) {
    if (name(node.op) != "Transpose") return false;
    const Node* inner = graph_.producer(node.inputs[0]);
    if (inner == nullptr || inner->op != node.op) return false;
    const auto* outer_perm = node.attributes.find_as<ops::Ints>("perm");
    const auto* inner_perm = inner->attributes.find_as<ops::Ints>("perm");
    if (outer_perm == nullptr || inner_perm == nullptr || outer_perm->size() != inner_perm->size())
      return false;
    ops::Ints perm;
    bool in_order = true;
    for (size_t i = 0; i < outer_perm->size(); ++i) {
      perm.push_back((*inner_perm)[static_cast<size_t>((*outer_perm)[i])]);
      in_order &= perm[i] == static_cast<int64_t>(i);
    }
    const ValueId x = rewriter_.map(inner->inputs[0]);
    if (in_order) {
      rewriter_.replace(node.outputs[0], x);
      return true;
    }
    Attributes attributes;
    attributes.set("perm", perm);
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter_.add(node.op, {x}, attributes, node.name));
    rewriter_.replace(node.outputs[0], y);
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

Result<Graph> simplify_tensors(const Graph& graph, const PassOptions&) {
  return Simplifier(graph).run();
}

}  // namespace lmn::graph
