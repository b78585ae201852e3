// SPDX-License-Identifier: Apache-2.0
#include "plan/binder.h"

#include <cstddef>
#include <new>

#include "graph/schema.h"

namespace lmn::plan {
namespace {

using graph::kNone;
using graph::Node;
using graph::ValueId;

// `rows` is the first member of every argument struct: patched without knowing which.
#define LMN_OP(e, name, Args, text) \
  static_assert(offsetof(ops::Args, rows) == 0 && alignof(ops::Args) <= 16);
#include "ops/ops.def"
#undef LMN_OP

size_t args_bytes(ops::Op op) {
  switch (op) {
#define LMN_OP(e, name, Args, text) \
  case ops::Op::k##e:               \
    return (sizeof(ops::Args) + 15) / 16 * 16;
#include "ops/ops.def"
#undef LMN_OP
  }
  LMN_CHECK(!"an operator without arguments");
}

ops::RopeStyle rope_style(const Node& node) {
  return node.attributes.get<std::string>("style") == "halves" ? ops::RopeStyle::kHalves
                                                               : ops::RopeStyle::kInterleaved;
}

// The value whose rows are the rows of the node: its first output, or what goes into a cache.
ValueId value_of_rows(const graph::Graph& graph, const Node& node) {
  const ValueId out = node.outputs[0];
  return graph.value(out).type.kind == graph::Kind::kTensor ? out : node.inputs[0];
}

}  // namespace

std::vector<int> kv_layers_of(const graph::Graph& graph) {
  std::vector<int> layer(graph.values.size(), -1);
  int count = 0;
  for (ValueId id : graph.inputs) {
    if (graph.value(id).type.kind == graph::Kind::kKvCache)
      layer[static_cast<size_t>(id)] = count++;
  }
  for (const Node& node : graph.nodes) {
    for (ValueId out : node.outputs) {
      if (graph.value(out).type.kind != graph::Kind::kKvCache) continue;
      for (ValueId in : node.inputs) {
        if (in != kNone && layer[static_cast<size_t>(in)] >= 0) {
          layer[static_cast<size_t>(out)] = layer[static_cast<size_t>(in)];
        }
      }
    }
  }
  return layer;
}

Status Binder::register_weights() {
  matrices_.assign(graph_.nodes.size(), nullptr);
  vectors_.assign(graph_.values.size(), 0);
  std::vector<const Node*> lookups;
  for (graph::NodeId n : layout_.stages) {
    const Node& node = graph_.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNone || graph_.value(id).constant == nullptr) continue;
      if (node.op == graph::Op::kLinear && i == 1) {
        const bool interleaved = node.attributes.get_or<int64_t>("interleaved", 0) != 0;
        const DType input_type = graph_.value(node.inputs[0]).type.dtype;
        LMN_ASSIGN_OR_RETURN(matrix(node),
                             weights_->add_matrix(graph_.value(id), input_type, interleaved));
      } else if (node.op == graph::Op::kEmbedding && i == 1) {
        lookups.push_back(&node);
      } else if (graph_.value(id).type.dims.size() == 1) {
        vectors_[static_cast<size_t>(id)] = weights_->add_vector(graph_.value(id));
      } else {
        return error(Code::kUnsupported,
                     "%s '%s' has the constant operand '%s'; plans take constants as weights only",
                     std::string(graph::name(node.op)).c_str(), node.name.c_str(),
                     graph_.value(id).name.c_str());
      }
    }
  }
  for (const Node* node : lookups) {
    LMN_ASSIGN_OR_RETURN(matrix(*node), weights_->add_table(graph_.value(node->inputs[1])));
  }
  return {};
}

Result<BoundStages> Binder::bind(std::byte* arena) {
  arena_ = arena;
  size_t bytes = 0;
  for (graph::NodeId n : layout_.stages) bytes += args_bytes(*graph::kernel_of(graph_.node(n).op));
  out_.args = std::make_unique<std::byte[]>(bytes);
  std::byte* at = out_.args.get();
  for (graph::NodeId n : layout_.stages) {
    const Node& node = graph_.node(n);
    const ops::Op op = *graph::kernel_of(node.op);
    LMN_RETURN_IF_ERROR(check_views(node));
    switch (op) {
#define LMN_OP(e, name, Args, text)   \
  case ops::Op::k##e:                 \
    fill(node, new (at) ops::Args{}); \
    break;
#include "ops/ops.def"
#undef LMN_OP
    }
    const Buffer& rows = layout_.buffer_of(value_of_rows(graph_, node));
    auto* count = reinterpret_cast<int64_t*>(at);
    *count = rows.max_rows;
    if (rows.symbol >= 0) out_.rows[static_cast<size_t>(rows.symbol)].push_back(count);
    out_.stages.push_back({op, node.name, at, rows.symbol, rows.copy_bytes > 0});
    at += args_bytes(op);
  }
  return std::move(out_);
}

Status Binder::check_views(const Node& node) const {
  const graph::Schema& schema = graph::schema(node.op);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNone || layout_.place(id).buffer < 0 || schema.operands[i].strided) continue;
    if (columns(id) == stride(id)) continue;
    return error(Code::kUnsupported,
                 "%s '%s' reads whole rows, and its operand %s is a view of some columns",
                 std::string(graph::name(node.op)).c_str(), node.name.c_str(),
                 std::string(schema.operands[i].name).c_str());
  }
  return {};
}

template <typename T>
T* Binder::data(ValueId id) const {
  const Place& place = layout_.place(id);
  const Buffer& buffer = layout_.buffer_of(id);
  return reinterpret_cast<T*>(arena_ + buffer.interval.offset) + place.column;
}

const float* Binder::vector(ValueId id) const {
  return id == kNone ? nullptr : weights_->vector(vectors_[static_cast<size_t>(id)]);
}

void Binder::local(ValueId id, ops::WorkerLocal* out) {
  const Buffer& buffer = layout_.buffer_of(id);
  out->base = arena_ + buffer.interval.offset;
  if (buffer.copy_bytes > 0 && buffer.symbol >= 0) {
    out_.strides[static_cast<size_t>(buffer.symbol)].push_back(
        {&out->worker_stride, buffer.copy_bytes});
  }
}

void Binder::fill(const Node& node, ops::EmbeddingArgs* args) {
  args->table = matrix(node);
  args->ids = indices(node.inputs[0]);
  args->y = floats(node.outputs[0]);
  args->columns = columns(node.outputs[0]);
}

void Binder::fill(const Node& node, ops::RmsNormArgs* args) {
  args->x = floats(node.inputs[0]);
  args->weight = vector(node.inputs[1]);
  args->y = floats(node.outputs[0]);
  args->columns = columns(node.outputs[0]);
  args->eps = node.attributes.get<float>("eps");
}

void Binder::fill(const Node& node, ops::LinearArgs* args) {
  local(node.inputs[0], &args->x);
  args->weight = matrix(node);
  args->bias = vector(node.input(2));
  args->residual = node.input(3) == kNone ? nullptr : floats(node.input(3));
  args->y = floats(node.outputs[0]);
}

void Binder::fill(const Node& node, ops::RopeTableArgs* args) {
  args->positions = indices(node.inputs[0]);
  args->inv_freq = vector(node.inputs[1]);
  args->cos_sin = floats(node.outputs[0]);
  args->rot_dim = columns(node.outputs[0]);
  args->magnitude = node.attributes.get<float>("magnitude");
}

void Binder::fill(const Node& node, ops::RopeArgs* args) {
  args->x = floats(node.outputs[0]);
  args->cos_sin = floats(node.inputs[1]);
  args->x_stride = stride(node.outputs[0]);
  args->heads = node.attributes.get<int64_t>("heads");
  args->head_dim = columns(node.outputs[0]) / args->heads;
  args->rot_dim = columns(node.inputs[1]);
  args->style = rope_style(node);
}

void Binder::fill(const Node& node, ops::KvWriteArgs* args) {
  args->k = floats(node.inputs[0]);
  args->v = floats(node.inputs[1]);
  args->k_stride = stride(node.inputs[0]);
  args->v_stride = stride(node.inputs[1]);
  args->slots = indices(node.inputs[2]);
  args->kv = kv(node.inputs[3]);
}

void Binder::fill(const Node& node, ops::AttentionArgs* args) {
  args->q = floats(node.inputs[0]);
  args->q_stride = stride(node.inputs[0]);
  args->kv = kv(node.inputs[1]);
  args->positions = indices(node.inputs[2]);
  args->sequence_index = indices(node.inputs[3]);
  args->block_tables = indices(node.inputs[4]);
  args->table_stride = stride(node.inputs[4]);
  args->y = floats(node.outputs[0]);
  args->heads = node.attributes.get<int64_t>("heads");
  args->scale = node.attributes.get<float>("scale");
}

void Binder::fill(const Node& node, ops::SiluMulArgs* args) {
  args->gate = floats(node.inputs[0]);
  args->up = floats(node.inputs[1]);
  args->gate_stride = stride(node.inputs[0]);
  args->up_stride = stride(node.inputs[1]);
  args->y = floats(node.outputs[0]);
  args->columns = columns(node.outputs[0]);
}

void Binder::fill(const Node& node, ops::AddArgs* args) {
  args->a = floats(node.inputs[0]);
  args->b = floats(node.inputs[1]);
  args->y = floats(node.outputs[0]);
  args->columns = columns(node.outputs[0]);
}

void Binder::fill(const Node& node, ops::GatherRowsArgs* args) {
  args->x = floats(node.inputs[0]);
  args->indices = indices(node.inputs[1]);
  args->y = floats(node.outputs[0]);
  args->columns = columns(node.outputs[0]);
}

void Binder::fill(const Node& node, ops::QuantizeArgs* args) {
  args->x = floats(node.inputs[0]);
  local(node.outputs[0], &args->y);
  args->columns = columns(node.outputs[0]);
  args->y_type = graph_.value(node.outputs[0]).type.dtype;
}

void Binder::fill(const Node& node, ops::RmsNormQuantizeArgs* args) {
  args->x = floats(node.inputs[0]);
  args->weight = vector(node.inputs[1]);
  local(node.outputs[0], &args->y);
  args->columns = columns(node.outputs[0]);
  args->eps = node.attributes.get<float>("eps");
  args->y_type = graph_.value(node.outputs[0]).type.dtype;
}

void Binder::fill(const Node& node, ops::RopeKvWriteArgs* args) {
  args->qkv = floats(node.outputs[0]);
  args->cos_sin = floats(node.inputs[1]);
  args->slots = indices(node.inputs[2]);
  args->kv = kv(node.inputs[3]);
  args->heads = node.attributes.get<int64_t>("heads");
  args->rot_dim = columns(node.inputs[1]);
  args->style = rope_style(node);
}

}  // namespace lmn::plan
