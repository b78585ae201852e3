// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of shapes whose sizes are names: the elements of Shape(x) and of what is cut out of it
// and put together again are known as names of sizes, though not as numbers. What turns out to be
// numbers becomes a constant; a Reshape to sizes that its input has gets a constant shape (0: as it
// is), so that its own sizes are known by name; an Expand to the sizes that its input has goes.
#include <unordered_map>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

constexpr int64_t kMostElements = 64;  // of what is taken for a shape

class ShapeFolder {
 public:
  explicit ShapeFolder(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      if (is_tensor_op(node.op)) {
        LMN_ASSIGN_OR_RETURN(const bool replaced, fold(node));
        if (replaced) continue;
      }
      LMN_RETURN_IF_ERROR(rewriter_.copy(node));
      if (is_tensor_op(node.op) && node.outputs.size() == 1) learn(node);
    }
    return rewriter_.finish();
  }

 private:
  const ValueType& type_of(ValueId now) const { return rewriter_.to().value(now).type; }
  // Vectors and numbers of integers.
  static bool may_be_sizes(const ValueType& type) {
    return type.kind == Kind::kTensor && type.ranked && type.dims.size() <= 1 &&
           (type.dtype == DType::kI64 || type.dtype == DType::kI32);
  }

  // The elements of a value of the new graph, as far as they are known; null: nothing is.
  const Dims* elements(ValueId now) {
    if (now == kNone) return nullptr;
    const auto found = elements_.find(now);
    if (found != elements_.end()) return &found->second;
    const TensorView* view = constant_of(rewriter_.to(), now);
    if (view == nullptr || !may_be_sizes(type_of(now)) || view->shape.elements() > kMostElements)
      return nullptr;
    Dims& dims = elements_[now];
    for (int64_t i = 0; i < view->shape.elements(); ++i)
      dims.emplace_back(view->dtype == DType::kI64 ? view->as<int64_t>()[i]
                                                   : int64_t{view->as<int32_t>()[i]});
    return &dims;
  }
  static bool are_numbers(const Dims& dims) {
    return std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); });
  }
  static bool are_named(const Dims& dims) {
    return std::all_of(dims.begin(), dims.end(),
                       [](const Dim& d) { return d.is_constant() || d.symbol != "?"; });
  }

  // The elements of a node's output, from those of its operands.
  std::optional<Dims> compute(const Node& node) {
    const auto operand = [&](size_t i) { return elements(rewriter_.map(node.input(i))); };
    if (node.op == Op::kShape) {
      const ValueType& x = type_of(rewriter_.map(node.inputs[0]));
      if (x.kind != Kind::kTensor || !x.ranked) return std::nullopt;
      return part_of(x.dims, node.attributes.get_or<int64_t>("start", 0),
                     node.attributes.get_or<int64_t>("end", kMostElements));
    }
    if (node.op == Op::kConcat) {
      Dims all;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Dims* part = operand(i);
        if (part == nullptr) return std::nullopt;
        all.insert(all.end(), part->begin(), part->end());
      }
      return all;
    }
    const Dims* x = operand(0);
    if (x == nullptr) return std::nullopt;
    if (node.op == Op::kCast || node.op == Op::kSqueeze || node.op == Op::kUnsqueeze ||
        node.op == Op::kReshape || node.op == Op::kIdentity)
      return *x;
    const Dims *first = operand(1), *second = operand(2);
    if (node.op == Op::kGather) return gathered(*x, first);
    if (node.op != Op::kSlice || first == nullptr || second == nullptr) return std::nullopt;
    for (size_t i : {3, 4}) {  // axes, of which there is one, and steps
      const Dims* more = operand(i);
      if (node.input(i) != kNone && (more == nullptr || *more != Dims{i == 3 ? 0 : 1}) &&
          (i == 4 || more == nullptr || *more != Dims{-1}))
        return std::nullopt;
    }
    if (first->size() != 1 || second->size() != 1 || !are_numbers(*first) || !are_numbers(*second))
      return std::nullopt;
    return part_of(*x, first->front().size, second->front().size);
  }
  static std::optional<Dims> gathered(const Dims& x, const Dims* indices) {
    if (indices == nullptr || !are_numbers(*indices)) return std::nullopt;
    Dims out;
    const auto count = static_cast<int64_t>(x.size());
    for (const Dim& index : *indices) {
      const int64_t at = index.size < 0 ? index.size + count : index.size;
      if (at < 0 || at >= count) return std::nullopt;
      out.push_back(x[static_cast<size_t>(at)]);
    }
    return out;
  }
  static Dims part_of(const Dims& x, int64_t begin, int64_t end) {
    const auto count = static_cast<int64_t>(x.size());
    const auto place = [count](int64_t i) {
      return std::clamp<int64_t>(i < 0 ? i + count : i, 0, count);
    };
    const int64_t first = place(begin), past = std::max(first, place(end));
    return {x.begin() + first, x.begin() + past};
  }

  void learn(const Node& node) {
    const ValueId y = rewriter_.map(node.outputs[0]);
    if (!may_be_sizes(type_of(y))) return;
    std::optional<Dims> sizes = compute(node);
    if (sizes && sizes->size() <= kMostElements) elements_[y] = std::move(*sizes);
  }

  Result<bool> fold(const Node& node) {
    if (node.outputs.size() != 1) return false;
    if (may_be_sizes(graph_.value(node.outputs[0]).type)) {
      const std::optional<Dims> sizes = compute(node);
      if (sizes && are_numbers(*sizes) && put_constant(node, *sizes)) return true;
    }
    if (node.op != Op::kReshape && node.op != Op::kExpand) return false;
    const ValueId x = rewriter_.map(node.inputs[0]), shape = rewriter_.map(node.inputs[1]);
    const Dims* wanted = elements(shape);
    const ValueType& type = type_of(x);
    if (wanted == nullptr || !type.ranked || type.kind != Kind::kTensor || !are_named(*wanted))
      return false;
    if (node.op == Op::kExpand) {
      if (!has_sizes(type.dims, *wanted)) return false;
      rewriter_.replace(node.outputs[0], x);
      return true;
    }
    const auto is_zero = [](const Dim& dim) { return dim == Dim(0); };
    const bool allows_zero = node.attributes.get_or<int64_t>("allowzero", 0) != 0;
    if (are_numbers(*wanted) ||
        (allows_zero && std::any_of(wanted->begin(), wanted->end(), is_zero)))
      return false;
    return reshape(node, x, type.dims, *wanted);
  }

  bool put_constant(const Node& node, const Dims& sizes) {
    const ValueType& type = graph_.value(node.outputs[0]).type;
    if (type.dims.empty() && sizes.size() != 1) return false;
    const auto put = [&](auto zero) {
      auto memory = std::make_shared<std::vector<decltype(zero)>>();
      for (const Dim& size : sizes) memory->push_back(static_cast<decltype(zero)>(size.size));
      memory->push_back(0);  // never empty: the address counts
      Tensor tensor{type.dtype, {}, reinterpret_cast<std::byte*>(memory->data()), memory};
      if (!type.dims.empty()) tensor.shape = Shape{static_cast<int64_t>(sizes.size())};
      Constant constant;
      constant.pieces.push_back({node.name, tensor.view(), tensor.owner});
      rewriter_.replace(node.outputs[0], rewriter_.add_constant(std::move(constant)));
    };
    if (type.dtype == DType::kI64) {
      put(int64_t{0});
    } else {
      put(int32_t{0});
    }
    return true;
  }

  // An Expand to `wanted` changes nothing.
  static bool has_sizes(const Dims& dims, const Dims& wanted) {
    if (wanted.size() > dims.size()) return false;
    const size_t more = dims.size() - wanted.size();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] != Dim(1) && (wanted[i] != dims[i + more] || dims[i + more].symbol == "?"))
        return false;
    }
    return true;
  }

  // Names of sizes become 0 where the input has them, or one of them -1 beside numbers.
  Result<bool> reshape(const Node& node, ValueId x, const Dims& dims, const Dims& wanted) {
    std::vector<int64_t> sizes;
    size_t unknown = 0, counted = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const bool is_kept = i < dims.size() && wanted[i] == dims[i];
      const bool is_number = wanted[i].is_constant();
      sizes.push_back(is_number ? wanted[i].size : is_kept ? 0 : -1);
      unknown += !is_number && !is_kept ? 1 : 0;
      counted += is_number && wanted[i].size > 0 ? 1 : 0;
    }
    // Beside a size that may be 0, -1 would be any number.
    if (unknown > 0 && (unknown > 1 || counted + 1 != wanted.size())) return false;
    const ValueId shape = add_integers(&rewriter_, std::move(sizes),
                                       node.name.empty() ? node.name : node.name + ".shape");
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter_.add(node.op, {x, shape}, {}, node.name));
    rewriter_.replace(node.outputs[0], y);
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::unordered_map<ValueId, Dims> elements_;  // of values of the new graph
};

}  // namespace

Result<Graph> fold_shapes(const Graph& graph, const PassOptions&) {
  return ShapeFolder(graph).run();
}

}  // namespace lmn::graph
