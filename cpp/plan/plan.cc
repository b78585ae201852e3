// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cinttypes>

#include "graph/schema.h"
#include "ops/validate.h"
#include "plan/barriers.h"
#include "plan/plan_impl.h"

namespace lmn::plan {

Status PlanImpl::read_bounds(const PlanOptions& options) {
  bounds_ = {options.max_tokens, options.max_outputs, options.max_sequences,
             options.max_pages_per_sequence};
  max_context_ = options.max_context;
  if (!device_.is_host() && max_context_ < 1) {
    return error(Code::kInvalidArgument, "a plan on device %s needs max_context",
                 device_.name().c_str());
  }
  for (size_t s = 0; s < bounds_.size(); ++s) {
    if (bounds_[s] >= 1 && bounds_[s] <= INT32_MAX) continue;
    return error(Code::kInvalidArgument,
                 "a plan for at most %" PRId64 " %s: expected 1 to 2147483647", bounds_[s],
                 std::string(kSymbols[s]).c_str());
  }
  return {};
}

Status PlanImpl::check_kernels(const graph::Graph& graph) {
  for (const graph::Node& node : graph.nodes) {
    const std::optional<ops::Op> op = graph::kernel_of(node.op);
    if (!op || device_.kernels().run[static_cast<int>(*op)] != nullptr) continue;
    return error(Code::kUnsupported, "device %s (%s) has no kernel for %s, which '%s' needs",
                 device_.name().c_str(), device_.target().c_str(),
                 std::string(ops::name(*op)).c_str(), node.name.c_str());
  }
  return {};
}

Status PlanImpl::read_caches(const graph::Graph& graph) {
  for (graph::ValueId id : graph.inputs) {
    const graph::ValueType& type = graph.value(id).type;
    if (type.kind != graph::Kind::kKvCache) continue;
    if (type.dims[0].size > INT32_MAX || type.dims[1].size > INT32_MAX) {
      return error(Code::kUnsupported, "cache '%s' is %s", graph.value(id).name.c_str(),
                   type.to_string().c_str());
    }
    ops::KvLayer layer;
    layer.kv_heads = static_cast<int32_t>(type.dims[0].size);
    layer.head_dim = static_cast<int32_t>(type.dims[1].size);
    if (!kv_.empty() &&
        (layer.kv_heads != kv_.front().kv_heads || layer.head_dim != kv_.front().head_dim)) {
      return error(
          Code::kUnsupported,
          "cache '%s' is %s and differs from the first layer's; plans have caches of one shape",
          graph.value(id).name.c_str(), type.to_string().c_str());
    }
    kv_.push_back(layer);
  }
  return {};
}

Status PlanImpl::find_ports(const graph::Graph& graph) {
  const auto port = [&](const std::string& name, graph::ValueId id) {
    const Buffer& buffer = layout_.buffer_of(id);
    const DType dtype = graph.value(id).type.dtype;
    const int64_t offset =
        buffer.interval.offset + layout_.place(id).column * info(dtype).block_bytes;
    return Port{name,   dtype,  buffer.symbol, buffer.max_rows, row_bytes(dtype, buffer.columns),
                offset, nullptr};
  };
  for (graph::ValueId id : graph.inputs) {
    if (layout_.place(id).buffer >= 0) inputs_.push_back(port(graph.value(id).name, id));
  }
  for (const graph::Output& output : graph.outputs) {
    const Place& place = layout_.place(output.value);
    if (place.buffer < 0 || graph.value(output.value).type.dtype != DType::kF32 ||
        place.columns != layout_.buffer_of(output.value).columns) {
      return error(Code::kUnsupported, "output '%s' is not a matrix of f32 with rows of its own",
                   output.name.c_str());
    }
    outputs_.push_back(port(output.name, output.value));
  }
  return {};
}

// Of the arena in all; sets what lies where behind the intermediate values.
int64_t PlanImpl::arena_bytes(const graph::Graph& graph) {
  int64_t group = 1, columns = 0;
  for (const graph::Node& node : graph.nodes) {
    if (node.op == graph::Op::kLinear) {
      const graph::Constant& weight = *graph.value(node.inputs[1]).constant;
      columns = std::max(columns, weight.pieces.front().view.shape.last());
    }
    if (node.op != graph::Op::kPagedAttention) continue;
    const int64_t kv_heads = graph.value(node.inputs[1]).type.dims[0].size;
    group = std::max(group, node.attributes.get<int64_t>("heads") / kv_heads);
  }
  const ops::KernelTable& table = device_.kernels();
  scratch_bytes_ = align_up(static_cast<int64_t>(table.scratch_bytes(head_dim(), group, columns)));
  const auto shared_bytes = static_cast<int64_t>(table.shared_bytes(head_dim(), group, workers_));
  return layout_.arena_bytes + workers_ * scratch_bytes_ + align_up(shared_bytes);
}

// What kernels on a device that is not the host need beside the arena.
int64_t PlanImpl::workspace_bytes(const graph::Graph& graph) const {
  if (device_.is_host()) return 0;
  ops::WorkspaceRequest request{bounds_[0], 0, head_dim(), max_context_};
  for (const graph::Node& node : graph.nodes) {
    if (node.op == graph::Op::kPagedAttention)
      request.heads = std::max(request.heads, node.attributes.get<int64_t>("heads"));
  }
  return static_cast<int64_t>(device_.kernels().workspace_bytes(request));
}

int64_t PlanImpl::output_bytes() const {
  int64_t bytes = 0;
  for (const Port& port : outputs_) bytes += align_up(port.rows * port.row_bytes);
  return bytes;
}

Status PlanImpl::allocate(const graph::Graph& graph, const PlanOptions& options) {
  const int64_t arena = arena_bytes(graph), workspace = workspace_bytes(graph);
  memory_ = {weights_.bytes(), arena + workspace, 0};
  if (!device_.is_host()) {
    memory_.pinned = layout_.input_bytes + output_bytes();
    if (find(outputs_, "logits") != nullptr) {
      const PlanSampler::Bytes bytes =
          PlanSampler::bytes(device_.kernels(), bounds_[1], columns("logits"));
      memory_.arena += bytes.device;
      memory_.pinned += bytes.pinned;
    }
  }
  if (options.before_allocation) LMN_RETURN_IF_ERROR(options.before_allocation(memory_));
  Result<DeviceBlock> block = DeviceBlock::create(device_, static_cast<size_t>(arena));
  if (!block.ok()) return std::move(block).status().with_context("arena of intermediate values");
  arena_ = std::move(block).value();  // zeroed, as the workers' shared memory has to be
  for (std::vector<Port>* ports : {&inputs_, &outputs_}) {
    for (Port& port : *ports) port.host = arena_.data() + port.offset;
  }
  return device_.is_host() ? Status() : create_queue(workspace);
}

// Its page-locked memory is where the caller then writes inputs and reads outputs.
Status PlanImpl::create_queue(int64_t workspace_bytes) {
  LMN_ASSIGN_OR_RETURN(
      queue_, PlanQueue::create(device_, layout_.input_bytes, output_bytes(), workspace_bytes));
  if (find(outputs_, "logits") != nullptr) {
    LMN_ASSIGN_OR_RETURN(sampler_, PlanSampler::create(device_, bounds_[1], columns("logits")));
  }
  for (Port& port : inputs_) port.host = queue_.inputs() + port.offset;
  int64_t at = 0;
  for (Port& port : outputs_) {
    port.host = queue_.outputs() + at;
    at += align_up(port.rows * port.row_bytes);
  }
  return {};
}

Status PlanImpl::bind(Binder* binder) {
  LMN_ASSIGN_OR_RETURN(bound_, binder->bind(arena_.data()));
  // Caches come later; for the check, any memory stands for theirs.
  for (ops::KvLayer& layer : kv_) {
    layer.k = layer.v = arena_.data();
    layer.page_tokens = 16;
  }
  for (const BoundStage& stage : bound_.stages) {
    Status valid = ops::validate(stage.op, stage.args);
    if (!valid.ok()) return std::move(valid).with_context(stage.name);
    stages_.push_back(
        {device_.kernels().run[static_cast<int>(stage.op)], stage.args, false, false});
  }
  for (ops::KvLayer& layer : kv_) layer.k = layer.v = nullptr;
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (!layout_.fused[i]) continue;
    const auto& quantize = *static_cast<const ops::QuantizeArgs*>(bound_.stages[i].args);
    const auto quantize_in = [&](auto* before) {
      before->y_quantized = quantize.y.base;
      before->y_quantized_type = quantize.y_type;
    };
    const BoundStage& before = bound_.stages[i - 1];
    if (before.op == ops::Op::kLinear) {
      quantize_in(static_cast<ops::LinearArgs*>(before.args));
    } else {
      quantize_in(static_cast<ops::AttentionArgs*>(before.args));
    }
    stages_[i].kernel = nullptr;
  }
  return {};
}

void PlanImpl::find_barriers(const graph::Graph& graph, const std::vector<int>& kv_layer) {
  const auto accesses = find_accesses(graph, layout_, kv_layer);
  size_t relevant = 0;  // symbols some of whose activations have own copies
  for (const Buffer& buffer : layout_.buffers) {
    if (buffer.copy_bytes > 0 && buffer.symbol >= 0) relevant |= size_t{1} << buffer.symbol;
  }
  for (size_t regime = 0; regime < barriers_.size(); ++regime) {
    if (regime != (regime & relevant)) {
      barriers_[regime] = barriers_[regime & relevant];
      continue;
    }
    std::vector<bool> own_copy;
    for (const Buffer& buffer : layout_.buffers) {
      own_copy.push_back(buffer.copy_bytes > 0 && buffer.symbol >= 0 &&
                         ((regime >> buffer.symbol) & 1) != 0);
    }
    barriers_[regime] = place_barriers(layout_, accesses, own_copy);
  }
}

Status PlanImpl::build(const graph::Graph& graph, parallel::ThreadTeam& team,
                       const PlanOptions& options) {
  LMN_RETURN_IF_ERROR(graph::verify(graph));
  LMN_RETURN_IF_ERROR(read_bounds(options));
  LMN_RETURN_IF_ERROR(check_kernels(graph));
  LMN_RETURN_IF_ERROR(read_caches(graph));
  LMN_ASSIGN_OR_RETURN(layout_,
                       make_layout(graph, bounds_, workers_, device_.kernels().fuses_quantize));
  const std::vector<int> kv_layer = kv_layers_of(graph);
  Binder binder(graph, layout_, kv_layer, &weights_, kv_.data());
  LMN_RETURN_IF_ERROR(binder.register_weights());
  LMN_RETURN_IF_ERROR(find_ports(graph));
  LMN_RETURN_IF_ERROR(allocate(graph, options));
  LMN_RETURN_IF_ERROR(weights_.load(team, options));
  LMN_RETURN_IF_ERROR(bind(&binder));
  find_barriers(graph, kv_layer);
  operands_ = describe_operands(graph, layout_, kv_layer);
  values_ = bounds_;
  for (size_t s = 0; s < values_.size(); ++s) {
    set_few(s, bounds_[s] <= kReplicateRows);
    if (kSymbols[s] != "pages") set(s, 0);
  }
  return {};
}

std::string PlanImpl::dump() const {
  std::string out = "plan on " + device_.name() + " (" + device_.target() +
                    "): " + std::to_string(stages_.size()) + " stages, " +
                    std::to_string(barriers()) + " barriers, " + std::to_string(workers_) +
                    " workers, " + std::to_string(memory_.packed) + " bytes of weights, " +
                    std::to_string(memory_.arena) + " bytes of arena\n";
  for (size_t s = 0; s < kSymbols.size(); ++s) {
    out += (s ? ", " : "") + std::string(kSymbols[s]) + " = " + std::to_string(values_[s]) +
           " of " + std::to_string(bounds_[s]);
  }
  out += "\n";
  for (size_t i = 0; i < stages_.size(); ++i) {
    out +=
        std::to_string(i) + " " + std::string(ops::name(bound_.stages[i].op)) + " " + operands_[i];
    if (stages_[i].whole) out += " by every worker";
    out += "  # " + bound_.stages[i].name + "\n";
    if (stages_[i].barrier_after) out += "---\n";
  }
  return out;
}

Result<std::unique_ptr<Plan>> Plan::build(graph::Graph graph, Device& device,
                                          parallel::ThreadTeam& team, const PlanOptions& options) {
  auto plan = std::make_unique<PlanImpl>(device, team.size());
  LMN_RETURN_IF_ERROR(plan->build(graph, team, options));
  return std::unique_ptr<Plan>(std::move(plan));
}

}  // namespace lmn::plan
