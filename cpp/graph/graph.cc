// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <algorithm>

#include "graph/schema.h"

namespace lmn::graph {
namespace {

constexpr std::string_view kOpNames[] = {
#define LMN_OP(e, name, args, text) name,
#include "ops/ops.def"
#undef LMN_OP
    "columns",
#define LMN_TENSOR_OP(e, name, attributes) name,
#include "ops/tensor_ops.def"
#undef LMN_TENSOR_OP
};
static_assert(std::size(kOpNames) == kOpCount);

// "blk.0.attn_q.weight", "blk.0.attn_k.weight" -> "blk.0.attn_{q,k}.weight"
std::string merged_name(const std::vector<Piece>& pieces) {
  if (pieces.empty()) return "";
  const std::string& first = pieces.front().name;
  if (pieces.size() == 1) return first;
  size_t shortest = first.size(), prefix = first.size(), suffix = first.size();
  for (const Piece& piece : pieces) {
    const std::string_view other = piece.name;
    shortest = std::min(shortest, other.size());
    prefix = std::min(prefix, shortest);
    while (first.compare(0, prefix, other.substr(0, prefix)) != 0) --prefix;
    suffix = std::min(suffix, shortest);
    while (first.compare(first.size() - suffix, suffix, other.substr(other.size() - suffix)) != 0)
      --suffix;
  }
  suffix = std::min(suffix, shortest - prefix);
  std::string out = first.substr(0, prefix) + "{";
  for (const Piece& piece : pieces) {
    if (&piece != &pieces.front()) out += ",";
    out += piece.name.substr(prefix, piece.name.size() - prefix - suffix);
  }
  return out + "}" + first.substr(first.size() - suffix);
}

}  // namespace

std::string_view name(Op op) { return kOpNames[static_cast<int>(op)]; }

std::string ValueType::to_string() const {
  constexpr std::string_view kKinds[] = {"", "kv", "sequence ", "optional ", "map "};
  std::string out(kKinds[static_cast<int>(kind)]);
  if (kind != Kind::kKvCache) out += info(dtype).name;
  if (kind > Kind::kKvCache) return out;
  if (!ranked) return out + "[...]";
  out += "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ", ";
    out += dims[i].is_constant() ? std::to_string(dims[i].size) : dims[i].symbol;
  }
  return out + "]";
}

Constant owned_constant(std::string name, std::vector<float> values) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  TensorView view;
  view.dtype = DType::kF32;
  view.shape = Shape{static_cast<int64_t>(owner->size())};
  view.data = reinterpret_cast<const std::byte*>(owner->data());
  Constant constant;
  constant.pieces.push_back({std::move(name), view, std::move(owner)});
  return constant;
}

ValueId Graph::add_input(std::string name, ValueType type) {
  const auto id = static_cast<ValueId>(values.size());
  values.push_back({std::move(name), std::move(type), kNone, nullptr});
  inputs.push_back(id);
  return id;
}

ValueId Graph::add_constant(Constant constant) {
  Value value;
  value.name = merged_name(constant.pieces);
  if (!constant.pieces.empty()) {
    const TensorView& first = constant.pieces.front().view;
    value.type.dtype = first.dtype;
    for (int i = 0; i < first.shape.rank; ++i) value.type.dims.emplace_back(first.shape[i]);
    if (!value.type.dims.empty()) {
      for (size_t p = 1; p < constant.pieces.size(); ++p) {
        value.type.dims[0].size += constant.pieces[p].view.shape[0];
      }
    }
  }
  value.constant = std::make_shared<const Constant>(std::move(constant));
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string name, const Tensor& tensor) {
  Constant constant;
  constant.pieces.push_back({std::move(name), tensor.view(), tensor.owner});
  return add_constant(std::move(constant));
}

Result<NodeId> Graph::add(Op op, std::vector<ValueId> operands, Attributes attributes,
                          std::string name, int output_count) {
  Node node{op, std::move(operands), {}, std::move(attributes), std::move(name)};
  std::vector<ValueType> types(is_tensor_op(op) ? static_cast<size_t>(output_count) : 0);
  LMN_RETURN_IF_ERROR(infer(*this, node, &types));
  const auto id = static_cast<NodeId>(nodes.size());
  for (ValueType& type : types) {
    node.outputs.push_back(static_cast<ValueId>(values.size()));
    values.push_back({"", std::move(type), id, nullptr});
  }
  nodes.push_back(std::move(node));
  return id;
}

std::vector<std::vector<NodeId>> users_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> users(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId id : graph.nodes[n].inputs) {
      if (id != kNone) users[static_cast<size_t>(id)].push_back(static_cast<NodeId>(n));
    }
  }
  return users;
}

}  // namespace lmn::graph
