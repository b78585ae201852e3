// SPDX-License-Identifier: Apache-2.0
//
// Types of a tensor operator's outputs in a graph: translates between named sizes and the numbers
// that ops::infer knows, and gives it the elements of constants.
#include <algorithm>

#include "graph/schema.h"
#include "graph/tensor_types.h"

namespace lmn::graph {
namespace {

ops::ValueKind to_ops(Kind kind) {
  return kind == Kind::kSequence   ? ops::ValueKind::kSequence
         : kind == Kind::kOptional ? ops::ValueKind::kOptional
         : kind == Kind::kMap      ? ops::ValueKind::kMap
                                   : ops::ValueKind::kTensor;
}
Kind to_graph(ops::ValueKind kind) {
  switch (kind) {
    case ops::ValueKind::kTensor:
      break;
    case ops::ValueKind::kSequence:
      return Kind::kSequence;
    case ops::ValueKind::kOptional:
      return Kind::kOptional;
    case ops::ValueKind::kMap:
      return Kind::kMap;
  }
  return Kind::kTensor;
}

}  // namespace

ops::TensorType TypeTranslator::to_ops(const ValueType& type) {
  ops::TensorType out;
  out.dtype = type.dtype;
  out.kind = graph::to_ops(type.kind);
  out.item = graph::to_ops(type.item);
  if (!type.ranked || out.kind != ops::ValueKind::kTensor || type.dims.size() > kMaxRank)
    return out;
  out.shape.rank = 0;
  for (const Dim& dim : type.dims) {
    int64_t size = dim.size;
    if (!dim.is_constant()) {
      size = ops::kUnknownSize;
      if (dim.symbol != "?") {
        const auto at = std::find(symbols_.begin(), symbols_.end(), dim.symbol);
        size = ops::kUnknownSize - 1 - (at - symbols_.begin());
        if (at == symbols_.end()) symbols_.push_back(dim.symbol);
      }
    }
    out.shape[out.shape.rank++] = size;
  }
  return out;
}

ValueType TypeTranslator::to_graph(const ops::TensorType& type) const {
  ValueType out;
  out.dtype = type.dtype;
  out.kind = graph::to_graph(type.kind);
  out.item = graph::to_graph(type.item);
  if (out.kind != Kind::kTensor) return out;
  out.ranked = type.ranked();
  for (int i = 0; i < type.shape.rank; ++i) {
    const int64_t size = type.shape[i];
    if (size >= 0) {
      out.dims.emplace_back(size);
    } else if (size == ops::kUnknownSize) {
      out.dims.emplace_back("?");
    } else {
      out.dims.emplace_back(symbols_[static_cast<size_t>(ops::kUnknownSize - 1 - size)]);
    }
  }
  return out;
}

Status TypeTranslator::named(Status status) const {
  if (status.ok()) return status;
  const std::string_view message = status.message();
  std::string out;
  for (size_t i = 0; i < message.size(); ++i) {
    const bool starts = message[i] == '-' && i > 0 &&
                        (message[i - 1] == '[' || message.substr(i < 2 ? 0 : i - 2, 2) == ", ");
    size_t end = i + 1, number = 0;
    while (starts && end < message.size() && end < i + 6 && message[end] >= '0' &&
           message[end] <= '9')
      number = number * 10 + static_cast<size_t>(message[end++] - '0');
    const bool ends = end < message.size() && (message[end] == ']' || message[end] == ',');
    if (starts && ends && number >= 2 && number - 2 < symbols_.size()) {
      out += symbols_[number - 2];
      i = end - 1;
    } else {
      out += message[i];
    }
  }
  return error(status.code(), "%s", out.c_str());
}

Status infer_tensor_op(const Graph& graph, const Node& node, std::vector<ValueType>* outputs) {
  const ops::TensorOp op = tensor_op(node.op);
  LMN_RETURN_IF_ERROR(ops::check_attributes(op, node.attributes, node.name));
  TypeTranslator translator;
  std::vector<ops::Operand> operands(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNone) continue;
    if (id < 0 || id >= static_cast<ValueId>(graph.values.size())) {
      return error(Code::kInvalidArgument, "%s '%s': input %zu is value %d of %zu",
                   std::string(name(node.op)).c_str(), node.name.c_str(), i, id,
                   graph.values.size());
    }
    const Value& value = graph.value(id);
    operands[i].present = true;
    operands[i].type = translator.to_ops(value.type);
    if (value.constant != nullptr && value.constant->pieces.size() == 1)
      operands[i].data = value.constant->pieces[0].view.data;
  }
  if (ops::op_class(op) == ops::OpClass::kControl) return infer_control_op(graph, node, outputs);
  std::vector<ops::TensorType> types(outputs->size());
  const ops::TensorNode view(op, node.attributes, node.name, operands,
                             static_cast<int>(outputs->size()));
  constexpr DType kNoOutput = DType::kQ4_0;  // which no general tensor is of
  for (ops::TensorType& type : types) type.dtype = kNoOutput;
  LMN_RETURN_IF_ERROR(translator.named(ops::infer(view, types)));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].dtype == kNoOutput) {
      return error(Code::kInvalidArgument, "%s '%s': it has no output %zu",
                   std::string(name(node.op)).c_str(), node.name.c_str(), i);
    }
    (*outputs)[i] = translator.to_graph(types[i]);
  }
  return {};
}

}  // namespace lmn::graph
