// SPDX-License-Identifier: Apache-2.0
//
// What passes ask of a graph when they look for a pattern: who reads a value, and what a device
// wants to read.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/float16.h"
#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {

class Uses {
 public:
  explicit Uses(const Graph& graph) : users_(users_of(graph)), output_(graph.values.size(), false) {
    for (const Output& output : graph.outputs) output_[static_cast<size_t>(output.value)] = true;
  }

  // The nodes that read `id`, in order.
  std::span<const NodeId> of(ValueId id) const { return users_[static_cast<size_t>(id)]; }
  bool is_output(ValueId id) const { return output_[static_cast<size_t>(id)]; }
  // Exactly one operand of one node reads it, and it is no output: the two may be fused.
  bool only_one(ValueId id) const { return of(id).size() == 1 && !is_output(id); }

 private:
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> output_;
};

// The graph with what was found, at[n], written where node n was, by write(*at[n], node,
// &rewriter). What only the nodes before it were for is dead then.
template <typename Match, typename Write>
Result<Graph> with_matches(const Graph& graph, const std::vector<std::optional<Match>>& at,
                           const Write& write) {
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    LMN_RETURN_IF_ERROR(at[n] ? write(*at[n], node, &rewriter) : rewriter.copy(node));
  }
  return rewriter.finish();
}

// A constant vector in the new graph, as shapes are.
inline ValueId add_integers(Rewriter* rewriter, std::vector<int64_t> values,
                            std::string name = "") {
  auto memory = std::make_shared<std::vector<int64_t>>(std::move(values));
  const Tensor tensor{DType::kI64, Shape{static_cast<int64_t>(memory->size())},
                      reinterpret_cast<std::byte*>(memory->data()), memory};
  Constant constant;
  constant.pieces.push_back({std::move(name), tensor.view(), tensor.owner});
  return rewriter->add_constant(std::move(constant));
}

// The only piece of a constant; null: `id` is absent, no constant, or merged of several.
inline const TensorView* constant_of(const Graph& graph, ValueId id) {
  if (id == kNone || graph.value(id).constant == nullptr) return nullptr;
  const std::vector<Piece>& pieces = graph.value(id).constant->pieces;
  return pieces.size() == 1 ? &pieces[0].view : nullptr;
}

// A constant of one number, of whatever float type.
inline std::optional<double> number_of(const Graph& graph, ValueId id) {
  const TensorView* view = constant_of(graph, id);
  if (view == nullptr || view->shape.elements() != 1) return std::nullopt;
  switch (view->dtype) {
    case DType::kF32:
      return *view->as<float>();
    case DType::kF64:
      return *view->as<double>();
    case DType::kF16:
      return f16_to_f32(*view->as<uint16_t>());
    case DType::kBF16:
      return bf16_to_f32(*view->as<uint16_t>());
    default:
      return std::nullopt;
  }
}

inline bool is_number(const Graph& graph, ValueId id, double wanted) {
  const std::optional<double> number = number_of(graph, id);
  return number && *number == wanted;
}

// The name of an operator that products take along as their activation, there; "": it is none.
inline std::string activation_of(const Node& node) {
  if (!is_tensor_op(node.op)) return "";
  const std::string_view op = name(node.op);
  if (op == "Relu" || op == "Tanh" || op == "Sigmoid") return std::string(op);
  if (op == "Gelu" || op == "com.microsoft.Gelu") {
    const auto* approximate = node.attributes.find_as<std::string>("approximate");
    return approximate != nullptr && *approximate == "tanh" ? "GeluTanh" : "Gelu";
  }
  return "";
}

// A Linear that is nothing but a product, and perhaps a bias: no residual, not interleaved, not
// lowered.
inline bool is_plain_linear(const Graph& graph, const Node& node) {
  return node.op == Op::kLinear && node.input(3) == kNone &&
         node.attributes.find("interleaved") == nullptr &&
         graph.value(node.inputs[0]).type.dtype == DType::kF32;
}

inline bool is_precise(const Node& linear) {
  return linear.attributes.get_or<int64_t>("precise", 0) != 0;
}

// One input type that suits two weights, if there is one: of the two integer formats, the finer
// suits both.
inline std::optional<DType> common_input_type(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kF32 || b == DType::kF32) return std::nullopt;
  return DType::kQA16;
}

// What the device wants a Linear to read, for all pieces of its weight together; none where they do
// not go together.
inline Result<std::optional<DType>> linear_input_type(const Graph& graph, const Node& linear,
                                                      const PassOptions& options) {
  std::optional<DType> common;
  for (const Piece& piece : graph.value(linear.inputs[1]).constant->pieces) {
    Result<DType> wanted =
        options.linear_input_type(piece.view.dtype, piece.view.shape.last(), is_precise(linear));
    if (!wanted.ok()) return std::move(wanted).status().with_context(piece.name);
    common = common_input_type(common.value_or(*wanted), *wanted);
    if (!common) break;
  }
  return common;
}

}  // namespace lmn::graph
