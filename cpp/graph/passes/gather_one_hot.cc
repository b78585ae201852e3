// SPDX-License-Identifier: Apache-2.0
//
// The product of one-hot rows, Cast(ids == [0, 1, ... n - 1]), with a constant matrix of finite
// numbers picks rows of the matrix: a Gather from it, with a row of zeros in front and behind for
// ids that are none of these.
#include <cmath>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

constexpr int64_t kMostTableElements = int64_t{1} << 24;

class OneHotGatherer {
 public:
  explicit OneHotGatherer(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      const ValueId ids = node.op == Op::kMatMul ? ids_of(node) : kNone;
      LMN_RETURN_IF_ERROR(ids == kNone ? rewriter_.copy(node) : gather(node, ids));
    }
    return rewriter_.finish();
  }

 private:
  // What is compared with [0, 1, ... n - 1] to make the rows of the product; kNone: there are none.
  ValueId ids_of(const Node& product) const {
    const TensorView* table = constant_of(graph_, product.inputs[1]);
    const Node* cast = graph_.producer(product.inputs[0]);
    if (table == nullptr || table->dtype != DType::kF32 || table->shape.rank != 2 ||
        table->shape.elements() > kMostTableElements || cast == nullptr || cast->op != Op::kCast)
      return kNone;
    const Node* equal = graph_.producer(cast->inputs[0]);
    if (equal == nullptr || equal->op != Op::kEqual) return kNone;
    for (int64_t i = 0; i < table->shape.elements(); ++i) {
      if (!std::isfinite(table->as<float>()[i])) return kNone;
    }
    for (size_t side : {0, 1}) {
      const ValueId ids = equal->inputs[side], numbers = equal->inputs[1 - side];
      const ValueType& type = graph_.value(ids).type;
      const TensorView* counted = constant_of(graph_, numbers);
      if (counted != nullptr && type.ranked && !type.dims.empty() && type.dims.back() == Dim(1) &&
          counted->shape.rank <= static_cast<int>(type.dims.size()) &&
          counts_up(*counted, table->shape[0]))
        return ids;
    }
    return kNone;
  }
  static bool counts_up(const TensorView& view, int64_t n) {
    if (view.shape.rank < 1 || view.shape.last() != n || view.shape.elements() != n) return false;
    const auto all = [&](auto zero) {
      for (int64_t i = 0; i < n; ++i) {
        if (static_cast<int64_t>(view.as<decltype(zero)>()[i]) != i) return false;
      }
      return true;
    };
    return view.dtype == DType::kI64 ? all(int64_t{0})
                                     : view.dtype == DType::kI32 && all(int32_t{0});
  }

  ValueId number(int64_t value, DType dtype) {
    const auto put = [&](auto typed) {
      auto memory = std::make_shared<decltype(typed)>(typed);
      const Tensor tensor{dtype, {}, reinterpret_cast<std::byte*>(memory.get()), memory};
      return rewriter_.add_constant({{{"", tensor.view(), memory}}});
    };
    return dtype == DType::kI64 ? put(value) : put(static_cast<int32_t>(value));
  }

  Status gather(const Node& product, ValueId ids) {
    const TensorView& table = *constant_of(graph_, product.inputs[1]);
    const int64_t n = table.shape[0], columns = table.shape[1];
    std::vector<float> rows(static_cast<size_t>((n + 2) * columns), 0.0f);
    std::copy_n(table.as<float>(), n * columns, rows.begin() + columns);
    Constant padded = owned_constant(graph_.value(product.inputs[1]).name, std::move(rows));
    padded.pieces[0].view.shape = Shape{n + 2, columns};
    const ValueId w = rewriter_.add_constant(std::move(padded));
    const DType dtype = graph_.value(ids).type.dtype;
    const auto add = [&](Op op, std::vector<ValueId> inputs, Attributes attributes = {}) {
      return rewriter_.add(op, std::move(inputs), std::move(attributes), product.name);
    };
    LMN_ASSIGN_OR_RETURN(const ValueId flat,
                         add(Op::kSqueeze, {rewriter_.map(ids), add_integers(&rewriter_, {-1})}));
    LMN_ASSIGN_OR_RETURN(const ValueId within,
                         add(Op::kClip, {flat, number(-1, dtype), number(n, dtype)}));
    LMN_ASSIGN_OR_RETURN(const ValueId index, add(Op::kAdd, {within, number(1, dtype)}));
    LMN_ASSIGN_OR_RETURN(const ValueId y, add(Op::kGather, {w, index}, {{"axis", int64_t{0}}}));
    rewriter_.replace(product.outputs[0], y);
    return {};
  }

  const Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

Result<Graph> gather_one_hot(const Graph& graph, const PassOptions&) {
  return OneHotGatherer(graph).run();
}

}  // namespace lmn::graph
