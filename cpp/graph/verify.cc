// SPDX-License-Identifier: Apache-2.0
//
// verify(): whether a graph is one. What holds after it is what plans and passes build on.
#include "graph/schema.h"

namespace lmn::graph {
namespace {

bool in_range(const Graph& graph, ValueId id) {
  return id >= 0 && id < static_cast<ValueId>(graph.values.size());
}

Status check_constant(const Value& value) {
  const char* name = value.name.c_str();
  const std::vector<Piece>& pieces = value.constant->pieces;
  if (pieces.empty()) return error(Code::kInvalidArgument, "constant '%s' has no pieces", name);
  int64_t rows = 0;
  for (const Piece& piece : pieces) {
    const TensorView& view = piece.view;
    if (view.data == nullptr)
      return error(Code::kInvalidArgument, "constant '%s' has no data", piece.name.c_str());
    // A single piece may be any tensor; what is merged, or quantised, is a vector or a matrix.
    const bool plain = pieces.size() == 1 && !is_block_quantized(view.dtype);
    const bool matrix = view.shape.rank >= 1 && view.shape.rank <= 2 && view.shape.elements() > 0;
    if ((!plain && !matrix) || view.shape.last() % info(view.dtype).block_elements != 0) {
      return error(Code::kInvalidArgument,
                   "constant '%s' is %s%s, expected a vector or a matrix of whole blocks",
                   piece.name.c_str(), std::string(info(view.dtype).name).c_str(),
                   view.shape.to_string().c_str());
    }
    if (plain) {
      Dims want;
      for (int i = 0; i < view.shape.rank; ++i) want.emplace_back(view.shape[i]);
      if (value.type == tensor(view.dtype, want)) return {};
      return error(Code::kInvalidArgument, "constant '%s' is declared as %s and is not", name,
                   value.type.to_string().c_str());
    }
    const bool same_rows_only = view.shape.rank == 2 && view.shape[1] == pieces[0].view.shape[1];
    const bool same_vectors = view.shape.rank == 1 && view.dtype == pieces[0].view.dtype;
    if (view.shape.rank != pieces[0].view.shape.rank || (!same_rows_only && !same_vectors)) {
      return error(Code::kInvalidArgument,
                   "constant '%s': piece '%s' is %s and does not merge with %s", name,
                   piece.name.c_str(), view.shape.to_string().c_str(),
                   pieces[0].view.shape.to_string().c_str());
    }
    rows += view.shape[0];
  }
  Dims want{rows};
  if (pieces[0].view.shape.rank == 2) want.emplace_back(pieces[0].view.shape[1]);
  if (value.type.kind != Kind::kTensor || value.type.dims != want ||
      value.type.dtype != pieces[0].view.dtype) {
    return error(Code::kInvalidArgument, "constant '%s' is declared as %s and is not", name,
                 value.type.to_string().c_str());
  }
  return {};
}

Status check_node(const Graph& graph, NodeId n, std::vector<bool>* defined) {
  const Node& node = graph.node(n);
  std::vector<ValueType> types(is_tensor_op(node.op) ? node.outputs.size() : 0);
  LMN_RETURN_IF_ERROR(infer(graph, node, &types));
  const std::string where = std::string(name(node.op)) + " '" + node.name + "'";
  for (ValueId id : node.inputs) {
    if (id != kNone && !(*defined)[static_cast<size_t>(id)]) {
      return error(Code::kInvalidArgument, "%s reads %%%d before it is defined", where.c_str(), id);
    }
  }
  if (types.size() != node.outputs.size()) {
    return error(Code::kInvalidArgument, "%s has %zu outputs, expected %zu", where.c_str(),
                 node.outputs.size(), types.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (!in_range(graph, id) || graph.value(id).producer != n ||
        graph.value(id).constant != nullptr || (*defined)[static_cast<size_t>(id)]) {
      return error(Code::kInvalidArgument, "%s: output %zu is %%%d, which is not its own",
                   where.c_str(), i, id);
    }
    if (graph.value(id).type != types[i]) {
      return error(Code::kInvalidArgument, "%s: %%%d is declared as %s and is %s", where.c_str(),
                   id, graph.value(id).type.to_string().c_str(), types[i].to_string().c_str());
    }
    (*defined)[static_cast<size_t>(id)] = true;
  }
  return {};
}

}  // namespace

Status verify(const Graph& graph) {
  std::vector<bool> defined(graph.values.size(), false);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.constant == nullptr) continue;
    if (value.producer != kNone) {
      return error(Code::kInvalidArgument, "constant '%s' has a producer", value.name.c_str());
    }
    LMN_RETURN_IF_ERROR(check_constant(value));
    defined[i] = true;
  }
  for (ValueId id : graph.inputs) {
    if (!in_range(graph, id) || defined[static_cast<size_t>(id)] ||
        graph.value(id).producer != kNone) {
      return error(Code::kInvalidArgument, "input %%%d is not an input, or is listed twice", id);
    }
    if (graph.value(id).name.empty())
      return error(Code::kInvalidArgument, "input %%%d has no name", id);
    defined[static_cast<size_t>(id)] = true;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    LMN_RETURN_IF_ERROR(check_node(graph, static_cast<NodeId>(n), &defined));
  }
  for (const Output& output : graph.outputs) {
    if (!in_range(graph, output.value) || !defined[static_cast<size_t>(output.value)]) {
      return error(Code::kInvalidArgument, "output '%s' is %%%d, which is not defined",
                   output.name.c_str(), output.value);
    }
  }
  return {};
}

}  // namespace lmn::graph
