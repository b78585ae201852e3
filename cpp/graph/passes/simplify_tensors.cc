// SPDX-License-Identifier: Apache-2.0
//
// Algebra of tensor operators: what does nothing goes, two movements of data become one.
#include <limits>

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
      LMN_ASSIGN_OR_RETURN(const bool turned, turn(node));
      if (!turned) LMN_RETURN_IF_ERROR(rewriter_.copy(node));
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
    if (node.op == Op::kSlice && takes_all(node)) return x;
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

  // A Slice of all elements, in order.
  bool takes_all(const Node& node) const {
    const ValueType& type = graph_.value(node.inputs[0]).type;
    const std::vector<int64_t> starts = integers(node.input(1)), ends = integers(node.input(2));
    std::vector<int64_t> axes = integers(node.input(3)), steps = integers(node.input(4));
    for (size_t i = axes.size(); node.input(3) == kNone && i < starts.size(); ++i)
      axes.push_back(static_cast<int64_t>(i));
    if (node.input(4) == kNone) steps.assign(starts.size(), 1);
    if (!type.ranked || starts.empty() || ends.size() != starts.size() ||
        axes.size() != starts.size() || steps.size() != starts.size())
      return false;
    const auto rank = static_cast<int64_t>(type.dims.size());
    // To the end of a size that is not known: ONNX's largest integers, or where the tensor would
    // have more bytes than an address space.
    double end = 0x1p47 / static_cast<double>(info(type.dtype).block_bytes);
    for (const Dim& dim : type.dims) {
      if (dim.is_constant() && dim.size > 0) end /= static_cast<double>(dim.size);
    }
    end = std::min<double>(end, std::numeric_limits<int32_t>::max());
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
      if (axis < 0 || axis >= rank) return false;
      const Dim& dim = type.dims[static_cast<size_t>(axis)];
      const double wanted = dim.is_constant() ? static_cast<double>(dim.size) : end;
      if (starts[i] != 0 || steps[i] != 1 || static_cast<double>(ends[i]) < wanted) return false;
    }
    return true;
  }
  // The elements of a constant of integers; none: it is none.
  std::vector<int64_t> integers(ValueId id) const {
    const TensorView* view = constant_of(graph_, id);
    std::vector<int64_t> out;
    if (view == nullptr || view->shape.elements() > kMaxRank) return out;
    for (int64_t i = 0; i < view->shape.elements(); ++i) {
      if (view->dtype == DType::kI64) out.push_back(view->as<int64_t>()[i]);
      if (view->dtype == DType::kI32) out.push_back(view->as<int32_t>()[i]);
    }
    return out;
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

  // Transpose(Transpose(x)) -> one Transpose, or x; a Reshape where only sizes of 1 move.
  Result<bool> turn(const Node& node) {
    const auto* own = node.attributes.find_as<ops::Ints>("perm");
    if (node.op != Op::kTranspose || own == nullptr) return false;
    ops::Ints perm = *own;
    const Node* inner = graph_.producer(node.inputs[0]);
    const auto* first = inner == nullptr ? nullptr : inner->attributes.find_as<ops::Ints>("perm");
    const bool merges = first != nullptr && inner->op == node.op && first->size() == perm.size();
    for (int64_t& axis : perm) axis = merges ? (*first)[static_cast<size_t>(axis)] : axis;
    const ValueId x = rewriter_.map(merges ? inner->inputs[0] : node.inputs[0]);
    if (std::is_sorted(perm.begin(), perm.end())) {
      rewriter_.replace(node.outputs[0], x);
      return true;
    }
    const std::vector<int64_t> shape = shape_of_turned(rewriter_.to().value(x).type, perm);
    if (!merges && shape.empty()) return false;
    Result<ValueId> y =
        shape.empty()
            ? rewriter_.add(node.op, {x}, {{"perm", perm}}, node.name)
            : rewriter_.add(Op::kReshape, {x, add_integers(&rewriter_, shape)}, {}, node.name);
    if (!y.ok()) return std::move(y).status();
    rewriter_.replace(node.outputs[0], *y);
    return true;
  }
  // What a Reshape makes of a tensor where nothing but sizes of 1 moves: every element stays where
  // it is. Empty: something else moves, or no Reshape says it.
  static std::vector<int64_t> shape_of_turned(const ValueType& type, const ops::Ints& perm) {
    std::vector<int64_t> sizes;
    if (!type.ranked || type.kind != Kind::kTensor || perm.size() != type.dims.size()) return {};
    int64_t last = -1;
    for (size_t i = 0; i < perm.size(); ++i) {
      const Dim& dim = type.dims[static_cast<size_t>(perm[i])];
      if (dim == Dim(0)) return {};  // 0 would mean another size
      const bool is_kept = static_cast<size_t>(perm[i]) == i;
      sizes.push_back(dim.is_constant() ? dim.size : is_kept ? 0 : -1);
      if (dim == Dim(1)) continue;
      if (perm[i] < last) return {};
      last = perm[i];
    }
    // Beside a size that may be 0, -1 would be any number.
    const auto moved = std::count(sizes.begin(), sizes.end(), -1);
    if (moved > 1 || (moved == 1 && std::count(sizes.begin(), sizes.end(), 0) > 0)) return {};
    return sizes;
  }

  const Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

Result<Graph> simplify_tensors(const Graph& graph, const PassOptions&) {
  return Simplifier(graph).run();
}

}  // namespace lmn::graph
