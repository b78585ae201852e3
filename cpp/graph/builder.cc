// SPDX-License-Identifier: Apache-2.0
#include "graph/builder.h"

#include "graph/schema.h"

namespace lmn::graph {

ValueId Builder::constant(Piece piece) {
  Constant constant;
  constant.pieces.push_back(std::move(piece));
  return graph_.add_constant(std::move(constant));
}

void Builder::output(ValueId id, std::string name) {
  if (status_.ok()) graph_.add_output(id, std::move(name));
}

ValueId Builder::node(Op op, std::vector<ValueId> inputs, Attributes attributes, std::string name) {
  if (!status_.ok()) return kNone;
  Result<NodeId> added = graph_.add(op, std::move(inputs), std::move(attributes), std::move(name));
  if (!added.ok()) {
    status_ = std::move(added).status();
    return kNone;
  }
  return graph_.node(*added).outputs.front();
}

ValueId Builder::embedding(ValueId ids, ValueId table, std::string name) {
  return node(Op::kEmbedding, {ids, table}, {}, std::move(name));
}

ValueId Builder::rms_norm(ValueId x, ValueId weight, float eps, std::string name) {
  return node(Op::kRmsNorm, {x, weight}, {{"eps", eps}}, std::move(name));
}

ValueId Builder::linear(ValueId x, ValueId weight, ValueId bias, bool precise, std::string name) {
  std::vector<ValueId> inputs{x, weight};
  if (bias != kNone) inputs.push_back(bias);
  Attributes attributes;
  if (precise) attributes.set("precise", int64_t{1});
  return node(Op::kLinear, std::move(inputs), std::move(attributes), std::move(name));
}

ValueId Builder::rope_table(ValueId positions, ValueId inv_freq, float magnitude,
                            std::string name) {
  return node(Op::kRopeTable, {positions, inv_freq}, {{"magnitude", magnitude}}, std::move(name));
}

ValueId Builder::rope(ValueId x, ValueId cos_sin, int64_t heads, std::string_view style,
                      std::string name) {
  return node(Op::kRope, {x, cos_sin}, {{"heads", heads}, {"style", std::string(style)}},
              std::move(name));
}

ValueId Builder::kv_write(ValueId k, ValueId v, ValueId slots, ValueId kv, std::string name) {
  return node(Op::kKvWrite, {k, v, slots, kv}, {}, std::move(name));
}

ValueId Builder::attention(ValueId q, ValueId kv, ValueId positions, ValueId sequence_index,
                           ValueId block_tables, int64_t heads, float scale, std::string name) {
  return node(Op::kPagedAttention, {q, kv, positions, sequence_index, block_tables},
              {{"heads", heads}, {"scale", scale}}, std::move(name));
}

ValueId Builder::silu_mul(ValueId gate, ValueId up, std::string name) {
  return node(Op::kSiluMul, {gate, up}, {}, std::move(name));
}

ValueId Builder::add(ValueId a, ValueId b, std::string name) {
  return node(Op::kResidualAdd, {a, b}, {}, std::move(name));
}

ValueId Builder::gather_rows(ValueId x, ValueId indices, std::string name) {
  return node(Op::kGatherRows, {x, indices}, {}, std::move(name));
}

void Builder::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Result<Graph> Builder::finish() {
  LMN_RETURN_IF_ERROR(std::exchange(status_, Status()));
  Graph graph = std::exchange(graph_, Graph());
  LMN_RETURN_IF_ERROR(verify(graph));
  return graph;
}

}  // namespace lmn::graph
