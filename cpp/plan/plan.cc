// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cinttypes>

#include "core/check.h"
#include "graph/schema.h"
#include "ops/kernel.h"
#include "ops/validate.h"
#include "parallel/clock.h"
#include "plan/barriers.h"
#include "plan/binder.h"
#include "plan/device_block.h"
#include "plan/layout.h"
#include "plan/plan_queue.h"
#include "plan/plan_sampler.h"
#include "plan/stage_profile.h"
#include "plan/weights.h"

namespace lmn::plan {
namespace {

struct Stage {
  ops::KernelFn kernel;  // null: the stage before does its work
  const void* args;
  bool whole;          // every worker does all of it, into its own copy
  bool barrier_after;  // before the next stage
};

struct Port {
  std::string name;
  DType dtype;
  int symbol;         // of its rows; -1: `rows` of them
  int64_t rows;       // at most
  int64_t row_bytes;  // from one row to the next
  int64_t offset;     // in the arena
  std::byte* host;    // where the caller writes or reads it: in the arena, where the host has it
};

class PlanImpl final : public Plan {
 public:
  PlanImpl(Device& device, int workers)
      : device_(device),
        workers_(device.is_host() ? workers : 1),
        weights_(device, device.kernels()) {}

  Status build(const graph::Graph& graph, parallel::ThreadTeam& team, const PlanOptions& options);

  const float* output(std::string_view name) const override {
    const Port* port = find(outputs_, name);
    return port == nullptr ? nullptr : reinterpret_cast<const float*>(port->host);
  }
  int64_t columns(std::string_view name) const override {
    const Port* port = find(inputs_, name);
    if (port == nullptr) port = find(outputs_, name);
    return port == nullptr ? 0 : port->row_bytes / info(port->dtype).block_bytes;
  }
  const float* device_output(std::string_view name) const override {
    const Port* port = find(outputs_, name);
    return port == nullptr ? nullptr : reinterpret_cast<const float*>(arena_.data() + port->offset);
  }

  void set_symbol(std::string_view name, int64_t value) override {
    const int s = symbol_index(name);
    LMN_CHECK(s >= 0 && name != "pages");
    LMN_CHECK(value >= 0 && value <= bounds_[static_cast<size_t>(s)]);
    set(static_cast<size_t>(s), value);
  }

  Status bind_kv(std::span<const ops::KvLayer> layers) override;

  Status run(parallel::ThreadTeam& team, const StepHints& hints) override {
    LMN_CHECK(kv_bound_ || kv_.empty());
    if (queue_.exists()) return run_queued(hints);
    LMN_CHECK(team.size() == workers_);
    if (!profiles_.empty()) {
      run_profiled(team);
    } else {
      team.run([&](int index) { walk(team, index); });
    }
    return {};
  }

  Stream* stream() override { return queue_.exists() ? &queue_.stream() : nullptr; }
  ops::LaunchQueue& queue() override { return queue_.launches(); }
  Status enqueue(const StepHints& hints) override;
  Status fetch(std::string_view name, int64_t begin, int64_t count) override;
  std::span<SampleRow> samples() override { return sampler_.samples(); }
  std::span<const SampleChoice> choices() const override { return sampler_.choices(); }
  Status enqueue_sampling(int64_t count, bool greedy) override {
    return sampler_.enqueue(queue_, device_output("logits"), count, greedy);
  }

  int32_t kv_layers() const override { return static_cast<int32_t>(kv_.size()); }
  int32_t kv_heads() const override { return kv_.empty() ? 0 : kv_.front().kv_heads; }
  int32_t head_dim() const override { return kv_.empty() ? 0 : kv_.front().head_dim; }
  int64_t packed_bytes() const override { return weights_.bytes(); }
  int64_t arena_bytes() const override {
    return static_cast<int64_t>(arena_.bytes()) + workspace_bytes_;
  }
  int barriers() const override {
    return static_cast<int>(std::count_if(stages_.begin(), stages_.end(),
                                          [](const Stage& stage) { return stage.barrier_after; }));
  }

  void set_profiles(int count) override {
    profiles_.clear();
    for (int i = 0; i < count; ++i)
      profiles_.push_back(std::make_unique<StageProfile>(bound_.stages));
    selected_ = 0;
  }
  void select_profile(int index) override {
    LMN_CHECK(index == 0 || static_cast<size_t>(index) < profiles_.size());
    selected_ = static_cast<size_t>(index);
  }
  std::vector<ProfileEntry> profile(int index) const override {
    LMN_CHECK(static_cast<size_t>(index) < profiles_.size());
    return profiles_[static_cast<size_t>(index)]->entries();
  }

  std::string dump() const override;

 protected:
  void* input_data(std::string_view name, DType dtype) override {
    const Port* port = find(inputs_, name);
    return port == nullptr || port->dtype != dtype ? nullptr : port->host;
  }

 private:
  Status read_bounds(const PlanOptions& options);
  Status check_kernels(const graph::Graph& graph);
  Status read_caches(const graph::Graph& graph);
  int64_t attention_workspace(const graph::Graph& graph, const PlanOptions& options) const;
  int64_t workspace_bytes(const graph::Graph& graph, const PlanOptions& options) const;
  Status allocate(const graph::Graph& graph, const PlanOptions& options);
  Status bind(Binder* binder);
  Status find_ports(const graph::Graph& graph);
  Status create_queue(const graph::Graph& graph, const PlanOptions& options);
  Status run_queued(const StepHints& hints);
  Status send_inputs(int64_t context);
  // Queues a stage; with a profile, waits for it and counts its time.
  Status enqueue_stage(size_t stage, StageProfile* profile);

  static const Port* find(const std::vector<Port>& ports, std::string_view name) {
    for (const Port& port : ports) {
      if (port.name == name) return &port;
    }
    return nullptr;
  }
  int64_t rows_of(const Port& port) const {
    return port.symbol < 0 ? port.rows : values_[static_cast<size_t>(port.symbol)];
  }
  void find_barriers(const graph::Graph& graph, const std::vector<int>& kv_layer);

  // One member's way through the stages. `profile`: null, or of member 0; *last then becomes when
  // it was through.
  void walk(parallel::ThreadTeam& team, int index) { walk<false>(team, index, nullptr, nullptr); }
  template <bool kProfile>
  void walk(parallel::ThreadTeam& team, int index, [[maybe_unused]] StageProfile* profile,
            [[maybe_unused]] int64_t* last) {
    std::byte* scratch = arena_.data() + layout_.arena_bytes + index * scratch_bytes_;
    std::byte* shared = arena_.data() + layout_.arena_bytes + workers_ * scratch_bytes_;
    const ops::Worker share{index, index, workers_, scratch, shared};
    const ops::Worker alone{index, 0, 1, scratch, nullptr};
    for (const Stage& stage : stages_) {
      stage.kernel(stage.args, stage.whole ? alone : share);
      [[maybe_unused]] int64_t ran = 0;
      if constexpr (kProfile) ran = parallel::now_ns();
      if (stage.barrier_after) team.barrier(index);
      if constexpr (kProfile) {
        const int64_t now = stage.barrier_after ? parallel::now_ns() : ran;
        profile->add(static_cast<size_t>(&stage - stages_.data()), ran - *last, now - ran);
        *last = now;
      }
    }
  }

  void run_profiled(parallel::ThreadTeam& team) {
    StageProfile& profile = *profiles_[selected_];
    int64_t last = parallel::now_ns();
    team.run([&](int index) {
      if (index != 0) return walk(team, index);
      const int64_t now = parallel::now_ns();
      profile.add_start(now - last);
      last = now;
      walk<true>(team, index, &profile, &last);
    });
    profile.end_run(parallel::now_ns() - last);
  }

  void set(size_t symbol, int64_t value) {
    if (values_[symbol] == value) return;
    values_[symbol] = value;
    for (int64_t* rows : bound_.rows[symbol]) *rows = value;
    const bool few = value <= kReplicateRows;
    if (few != few_[symbol]) set_few(symbol, few);
  }

  // Whether workers keep own copies of activations with so many rows: changes strides, barriers and
  // shares.
  void set_few(size_t symbol, bool few) {
    few_[symbol] = few;
    for (const StridePatch& patch : bound_.strides[symbol])
      *patch.stride = few ? patch.copy_bytes : 0;
    size_t regime = 0;
    for (size_t s = 0; s < few_.size(); ++s) regime |= (few_[s] ? size_t{1} : 0) << s;
    const std::vector<bool>& barrier_before = barriers_[regime];
    for (size_t i = 0; i < stages_.size(); ++i) {
      const BoundStage& bound = bound_.stages[i];
      stages_[i].whole =
          bound.writes_own_copy && bound.symbol >= 0 && few_[static_cast<size_t>(bound.symbol)];
      stages_[i].barrier_after = i + 1 < stages_.size() && barrier_before[i + 1];
    }
  }

  Device& device_;
  const int workers_;
  Bounds bounds_{};
  Layout layout_;
  Weights weights_;
  DeviceBlock arena_;            // intermediate values, the workers' scratch, what they share
  int64_t scratch_bytes_ = 0;    // of one worker
  int64_t workspace_bytes_ = 0;  // of kernels on a device that is not the host
  int64_t max_context_ = 0;
  PlanSampler sampler_;
  PlanQueue queue_;              // goes before what its stream works in
  std::vector<ByteRange> sent_;  // scratch of enqueue()
  std::vector<ops::KvLayer> kv_;
  bool kv_bound_ = false;
  BoundStages bound_;
  std::vector<Stage> stages_;
  std::array<int64_t, kSymbols.size()> values_{};
  std::array<bool, kSymbols.size()> few_{};
  // For every regime (bit s: symbol s has few rows), before which stages the team waits. Regimes
  // that differ only in symbols without own copies are not told apart, and share the vector of the
  // regime without them.
  std::array<std::vector<bool>, size_t{1} << kSymbols.size()> barriers_;
  std::vector<Port> inputs_, outputs_;
  std::vector<std::string> operands_;  // of every stage, for dump()
  std::vector<std::unique_ptr<StageProfile>> profiles_;
  size_t selected_ = 0;
};

Status PlanImpl::read_bounds(const PlanOptions& options) {
  bounds_ = {options.max_tokens, options.max_outputs, options.max_sequences,
             options.max_pages_per_sequence};
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

Status PlanImpl::allocate(const graph::Graph& graph, const PlanOptions& options) {
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
  scratch_bytes_ =
      align_up(static_cast<int64_t>(device_.kernels().scratch_bytes(head_dim(), group, columns)));
  const auto shared_bytes =
      static_cast<int64_t>(device_.kernels().shared_bytes(head_dim(), group, workers_));
  const int64_t bytes = layout_.arena_bytes + workers_ * scratch_bytes_ + align_up(shared_bytes);
  if (options.before_allocation) {
    LMN_RETURN_IF_ERROR(
        options.before_allocation(weights_.bytes(), bytes + workspace_bytes(graph, options)));
  }
  Result<DeviceBlock> arena = DeviceBlock::create(device_, static_cast<size_t>(bytes));
  if (!arena.ok()) return std::move(arena).status().with_context("arena of intermediate values");
  arena_ = std::move(arena).value();  // zeroed, as the workers' shared memory has to be
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

Status PlanImpl::find_ports(const graph::Graph& graph) {
  const auto port = [&](const std::string& name, graph::ValueId id) {
    const Buffer& buffer = layout_.buffer_of(id);
    const DType dtype = graph.value(id).type.dtype;
    const int64_t offset =
        buffer.interval.offset + layout_.place(id).column * info(dtype).block_bytes;
    return Port{name,
                dtype,
                buffer.symbol,
                buffer.max_rows,
                row_bytes(dtype, buffer.columns),
                offset,
                arena_.data() + offset};
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
  LMN_RETURN_IF_ERROR(allocate(graph, options));
  LMN_RETURN_IF_ERROR(weights_.load(team, options));
  LMN_RETURN_IF_ERROR(bind(&binder));
  LMN_RETURN_IF_ERROR(find_ports(graph));
  LMN_RETURN_IF_ERROR(create_queue(graph, options));
  find_barriers(graph, kv_layer);
  operands_ = describe_operands(graph, layout_, kv_layer);
  values_ = bounds_;
  for (size_t s = 0; s < values_.size(); ++s) {
    set_few(s, bounds_[s] <= kReplicateRows);
    if (kSymbols[s] != "pages") set(s, 0);
  }
  return {};
}

Status PlanImpl::bind_kv(std::span<const ops::KvLayer> layers) {
  if (layers.size() != kv_.size()) {
    return error(Code::kInvalidArgument, "%zu KV caches for a model of %zu layers", layers.size(),
                 kv_.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const ops::KvLayer& layer = layers[i];
    const bool fits = layer.kv_heads == kv_[i].kv_heads && layer.head_dim == kv_[i].head_dim;
    const bool whole = layer.k != nullptr && layer.v != nullptr && layer.page_tokens > 0 &&
                       layer.page_tokens % 16 == 0 &&
                       (layer.dtype == DType::kF16 || layer.dtype == DType::kF32 ||
                        (layer.dtype == DType::kQ8_0 && layer.head_dim % 32 == 0));
    if (fits && whole) continue;
    return error(Code::kInvalidArgument,
                 "KV cache of layer %zu: %d heads of %d %s in pages of %d tokens; expected %d "
                 "heads of %d f16 or f32, or q8_0 where heads are a multiple of 32, in pages "
                 "of a multiple of 16 tokens",
                 i, layer.kv_heads, layer.head_dim, std::string(info(layer.dtype).name).c_str(),
                 layer.page_tokens, kv_[i].kv_heads, kv_[i].head_dim);
  }
  std::copy(layers.begin(), layers.end(), kv_.begin());
  kv_bound_ = true;
  return {};
}

// What kernels need on a device that is not the host: attention's, and all.
int64_t PlanImpl::attention_workspace(const graph::Graph& graph, const PlanOptions& options) const {
  if (device_.is_host()) return 0;
  ops::WorkspaceRequest request{options.max_tokens, 0, head_dim(), options.max_context};
  for (const graph::Node& node : graph.nodes) {
    if (node.op == graph::Op::kPagedAttention)
      request.heads = std::max(request.heads, node.attributes.get<int64_t>("heads"));
  }
  return static_cast<int64_t>(device_.kernels().workspace_bytes(request));
}

int64_t PlanImpl::workspace_bytes(const graph::Graph& graph, const PlanOptions& options) const {
  if (device_.is_host()) return 0;
  int64_t bytes = attention_workspace(graph, options);
  for (const graph::Output& output : graph.outputs) {
    if (output.name != "logits") continue;
    const graph::Dims& dims = graph.value(output.value).type.dims;
    bytes += PlanSampler::bytes(device_.kernels(), options.max_outputs, dims.back().size);
  }
  return bytes;
}

Status PlanImpl::create_queue(const graph::Graph& graph, const PlanOptions& options) {
  if (device_.is_host()) return {};
  if (options.max_context < 1) {
    return error(Code::kInvalidArgument, "a plan on device %s needs max_context",
                 device_.name().c_str());
  }
  max_context_ = options.max_context;
  workspace_bytes_ = workspace_bytes(graph, options);
  int64_t output_bytes = 0;
  for (const Port& port : outputs_) output_bytes += align_up(port.rows * port.row_bytes);
  LMN_ASSIGN_OR_RETURN(queue_, PlanQueue::create(device_, layout_.input_bytes, output_bytes,
                                                 attention_workspace(graph, options)));
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

// Of block tables the columns that rows of this context have, where that spares enough.
Status PlanImpl::send_inputs(int64_t context) {
  sent_.clear();
  for (const Port& port : inputs_) {
    const int64_t rows = rows_of(port);
    int64_t used = port.row_bytes;
    if (port.name == "block_tables" && !kv_.empty() && kv_.front().page_tokens > 0) {
      const int64_t page = kv_.front().page_tokens;
      used = std::min(used, (context + page - 1) / page * info(port.dtype).block_bytes);
    }
    if (rows * (port.row_bytes - used) > kCloseBytes) {
      LMN_RETURN_IF_ERROR(queue_.send_rows(arena_.data(), port.offset, port.row_bytes, used, rows));
    } else {
      sent_.push_back({port.offset, port.offset + rows * port.row_bytes});
    }
  }
  join_close(&sent_);
  return queue_.send(arena_.data(), sent_);
}

Status PlanImpl::enqueue(const StepHints& hints) {
  const EnteredStream entered(queue_.stream());
  ops::LaunchQueue& launches = queue_.launches();
  launches.context = hints.context > 0 ? std::min(hints.context, max_context_) : max_context_;
  launches.single_rows = hints.single_rows;
  LMN_RETURN_IF_ERROR(send_inputs(launches.context));
  if (profiles_.empty()) {
    for (size_t i = 0; i < stages_.size(); ++i) LMN_RETURN_IF_ERROR(enqueue_stage(i, nullptr));
    return queue_.take_launch_error();
  }
  StageProfile& profile = *profiles_[selected_];
  const int64_t begin = parallel::now_ns();
  LMN_RETURN_IF_ERROR(queue_.stream().synchronize());
  const int64_t sent = parallel::now_ns();
  profile.add_start(sent - begin);
  for (size_t i = 0; i < stages_.size(); ++i) LMN_RETURN_IF_ERROR(enqueue_stage(i, &profile));
  profile.end_run(0, static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(queue_.inputs()) -
                                            reinterpret_cast<uintptr_t>(arena_.data())));
  return {};
}

Status PlanImpl::enqueue_stage(size_t stage, StageProfile* profile) {
  if (stages_[stage].kernel == nullptr) return {};
  const int64_t begin = profile == nullptr ? 0 : parallel::now_ns();
  ops::Worker worker;
  worker.queue = &queue_.launches();
  queue_.stream().push_range(bound_.stages[stage].name.c_str());
  stages_[stage].kernel(stages_[stage].args, worker);
  queue_.stream().pop_range();
  if (profile == nullptr) return {};
  LMN_RETURN_IF_ERROR(queue_.take_launch_error());
  LMN_RETURN_IF_ERROR(queue_.stream().synchronize());
  profile->add(stage, parallel::now_ns() - begin, 0);
  return {};
}

Status PlanImpl::fetch(std::string_view name, int64_t begin, int64_t count) {
  const Port* port = find(outputs_, name);
  LMN_CHECK(port != nullptr && begin >= 0 && begin + count <= port->rows);
  return queue_.stream().copy_to_host(port->host + begin * port->row_bytes,
                                      arena_.data() + port->offset + begin * port->row_bytes,
                                      static_cast<size_t>(count * port->row_bytes));
}

Status PlanImpl::run_queued(const StepHints& hints) {
  LMN_RETURN_IF_ERROR(enqueue(hints));
  for (const Port& port : outputs_) LMN_RETURN_IF_ERROR(fetch(port.name, 0, rows_of(port)));
  return queue_.stream().synchronize();
}

std::string PlanImpl::dump() const {
  std::string out = "plan on " + device_.name() + " (" + device_.target() +
                    "): " + std::to_string(stages_.size()) + " stages, " +
                    std::to_string(barriers()) + " barriers, " + std::to_string(workers_) +
                    " workers, " + std::to_string(weights_.bytes()) + " bytes of weights, " +
                    std::to_string(arena_.bytes()) + " bytes of arena\n";
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

}  // namespace

Result<std::unique_ptr<Plan>> Plan::build(graph::Graph graph, Device& device,
                                          parallel::ThreadTeam& team, const PlanOptions& options) {
  auto plan = std::make_unique<PlanImpl>(device, team.size());
  LMN_RETURN_IF_ERROR(plan->build(graph, team, options));
  return std::unique_ptr<Plan>(std::move(plan));
}

}  // namespace lmn::plan
