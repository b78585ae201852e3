// SPDX-License-Identifier: Apache-2.0
//
// Constant folding of tensor operators: the device computes, once, what depends on constants alone.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"
#include "graph/tensor_types.h"

namespace lmn::graph {
namespace {

// What a folded result may need: a constant that is broadcast to gigabytes is better broadcast when
// it is used.
constexpr int64_t kMaxBytes = int64_t{64} << 20;

Tensor shape_of(const Graph& graph, const Node& node) {
  const auto& dims = graph.value(node.inputs[0]).type.dims;
  const auto rank = static_cast<int64_t>(dims.size());
  const auto clamp = [rank](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  const int64_t begin = clamp(node.attributes.get_or<int64_t>("start", 0));
  const int64_t end = std::max(begin, clamp(node.attributes.get_or<int64_t>("end", rank)));
  auto owner = std::make_shared<std::vector<int64_t>>();
  for (int64_t i = begin; i < end; ++i) owner->push_back(dims[static_cast<size_t>(i)].size);
  Tensor out;
  out.dtype = DType::kI64;
  out.shape = Shape{static_cast<int64_t>(owner->size())};
  owner->push_back(0);  // never empty: the address counts
  out.data = reinterpret_cast<std::byte*>(owner->data());
  out.owner = std::move(owner);
  return out;
}

// All sizes that Shape gives out are known.
bool has_known_shape(const Graph& graph, const Node& node) {
  const ValueType& type = graph.value(node.inputs[0]).type;
  if (type.kind != Kind::kTensor || !type.ranked) return false;
  for (const Dim& dim : type.dims) {
    if (!dim.is_constant()) return false;
  }
  return true;
}

class Folder {
 public:
  Folder(const Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), rewriter_(graph) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      LMN_ASSIGN_OR_RETURN(const bool folded, fold(node));
      if (!folded) LMN_RETURN_IF_ERROR(rewriter_.copy(node));
    }
    return rewriter_.finish();
  }

 private:
  Result<bool> fold(const Node& node) {
    if (!is_tensor_op(node.op) || node.inputs.empty()) return false;
    if (node.op == Op::kShape && has_known_shape(graph_, node)) {
      replace(node, 0, shape_of(graph_, node));
      return true;
    }
    const ops::TensorOp op = tensor_op(node.op);
    if (ops::op_class(op) == ops::OpClass::kControl || ops::is_random(op)) return false;
    std::vector<ops::Operand> operands(node.inputs.size());
    std::vector<TensorView> views(node.inputs.size());
    TypeTranslator translator;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = rewriter_.map(node.inputs[i]);
      if (id == kNone) continue;
      const TensorView* known = constant_of(rewriter_.to(), id);
      if (known == nullptr) return false;
      views[i] = *known;
      operands[i] = {translator.to_ops(rewriter_.to().value(id).type), true, known->data};
    }
    const ops::TensorNode view(op, node.attributes, node.name, operands,
                               static_cast<int>(node.outputs.size()));
    std::vector<ops::TensorType> types(node.outputs.size());
    LMN_RETURN_IF_ERROR(ops::infer(view, types));
    int64_t bytes = 0;
    for (const ops::TensorType& type : types) {
      if (type.kind != ops::ValueKind::kTensor) return false;
      if (!type.is_known()) continue;  // data decide: at most a few times the input
      int64_t size = info(type.dtype).block_bytes;
      for (int d = 0; d < type.shape.rank; ++d) {
        if (__builtin_mul_overflow(size, type.shape[d], &size)) return false;
      }
      bytes += size;
      if (bytes > kMaxBytes) return false;
    }
    Result<std::vector<Tensor>> results = options_.evaluate(view, views);
    if (!results.ok()) return false;  // the plan says so, where the node is run at all
    for (size_t i = 0; i < node.outputs.size(); ++i) replace(node, i, (*results)[i]);
    return true;
  }

  void replace(const Node& node, size_t output, const Tensor& tensor) {
    const std::string name = node.outputs.size() == 1 || node.name.empty()
                                 ? node.name
                                 : node.name + "." + std::to_string(output);
    Constant constant;
    constant.pieces.push_back({name, tensor.view(), tensor.owner});
    rewriter_.replace(node.outputs[output], rewriter_.add_constant(std::move(constant)));
  }

  const Graph& graph_;
  const PassOptions& options_;
  Rewriter rewriter_;
};

}  // namespace

Result<Graph> fold_constants(const Graph& graph, const PassOptions& options) {
  if (!options.evaluate) return graph;
  return Folder(graph, options).run();
}

}  // namespace lmn::graph
