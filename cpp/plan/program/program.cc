// SPDX-License-Identifier: Apache-2.0
#include "plan/program/program.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "core/check.h"
#include "graph/tensor_types.h"
#include "ops/kernel.h"
#include "plan/arena.h"
#include "plan/program/device_part.h"
#include "plan/program/run_context.h"
#include "plan/program/specialization.h"

namespace lmn::plan {
namespace {

using ops::RuntimeValue;
using ops::ValueKind;

// Memory of the device, which keeps the device.
struct OwnedBlock {
  std::shared_ptr<Device> device;
  DeviceBlock block;  // goes first
};

AllocateFn allocator(std::shared_ptr<Device> device) {
  return [device = std::move(device)](DType dtype, const Shape& shape) -> Result<Tensor> {
    Tensor tensor;
    tensor.dtype = dtype;
    tensor.shape = shape;
    LMN_ASSIGN_OR_RETURN(const int64_t bytes, tensor_bytes(dtype, shape));
    if (dtype == DType::kString) {
      auto strings = std::make_shared<std::vector<std::string>>(
          static_cast<size_t>(shape.elements()) + 1);  // never empty: data is not null
      tensor.data = reinterpret_cast<std::byte*>(strings->data());
      tensor.owner = std::move(strings);
      return tensor;
    }
    LMN_ASSIGN_OR_RETURN(DeviceBlock block,
                         DeviceBlock::create_uninitialized(
                             *device, static_cast<size_t>(std::max<int64_t>(bytes, 1))));
    auto owner = std::make_shared<OwnedBlock>(OwnedBlock{device, std::move(block)});
    tensor.data = owner->block.data();
    tensor.owner = std::move(owner);
    return tensor;
  };
}

// What is allocated holds its bytes of the budget, and some for what holds it.
AllocateFn limited_allocator(const AllocateFn& allocate, std::shared_ptr<MemoryBudget> budget) {
  struct Owner {
    std::shared_ptr<void> memory;
    BudgetShare share;
  };
  return
      [&allocate, budget = std::move(budget)](DType dtype, const Shape& shape) -> Result<Tensor> {
        LMN_ASSIGN_OR_RETURN(const int64_t bytes, tensor_bytes(dtype, shape));
        LMN_ASSIGN_OR_RETURN(BudgetShare share,
                             BudgetShare::take(budget, bytes + int64_t{sizeof(OwnedBlock)} +
                                                           int64_t{sizeof(RuntimeValue)}));
        LMN_ASSIGN_OR_RETURN(Tensor tensor, allocate(dtype, shape));
        tensor.owner = std::make_shared<Owner>(Owner{std::move(tensor.owner), std::move(share)});
        return tensor;
      };
}

}  // namespace

Program::Program(graph::Graph graph, std::shared_ptr<Device> device, const ProgramOptions& options,
                 std::shared_ptr<FrameCache> cache)
    : graph_(std::move(graph)),
      device_(std::move(device)),
      options_(options),
      cache_(std::move(cache)) {
  allocate_ = allocator(device_);
  prepared_.resize(graph_.nodes.size());
  is_prepared_.resize(graph_.nodes.size());
}

Program::~Program() = default;

Result<std::unique_ptr<Program>> Program::create(graph::Graph graph, std::shared_ptr<Device> device,
                                                 const ProgramOptions& options) {
  return create(std::move(graph), std::move(device), options,
                std::make_shared<FrameCache>(options.max_arena_bytes));
}

Result<std::unique_ptr<Program>> Program::create(graph::Graph graph, std::shared_ptr<Device> device,
                                                 const ProgramOptions& options,
                                                 std::shared_ptr<FrameCache> cache) {
  if (device->kernels().tensor.bind == nullptr) {
    return error(Code::kUnsupported, "device %s has no kernels for general tensors",
                 device->name().c_str());
  }
  std::unique_ptr<Program> program(new Program(std::move(graph), device, options, cache));
  ProgramOptions on_host = options;  // of subgraphs
  on_host.accelerator = nullptr;
  for (graph::ValueId id : program->graph_.inputs)
    program->inputs_.push_back({program->graph_.value(id).name, program->graph_.value(id).type});
  for (const graph::Output& output : program->graph_.outputs)
    program->outputs_.push_back({output.name, program->graph_.value(output.value).type});
  for (const graph::Node& node : program->graph_.nodes) {
    if (!is_tensor_op(node.op)) {
      return error(Code::kUnsupported, "%s '%s' is an operator of language models only",
                   std::string(name(node.op)).c_str(), node.name.c_str());
    }
    std::vector<std::unique_ptr<Program>>& children = program->children_.emplace_back();
    for (const auto& [key, value] : node.attributes.entries()) {
      const auto* subgraph = std::get_if<std::shared_ptr<const graph::Graph>>(&value);
      if (subgraph == nullptr) continue;
      LMN_ASSIGN_OR_RETURN(std::unique_ptr<Program> child,
                           create(**subgraph, device, on_host, cache));
      children.push_back(std::move(child));
    }
  }
  if (options.accelerator == nullptr) {
    LMN_RETURN_IF_ERROR(program->prepare_all());
  } else {
    Program* const self = program.get();
    self->constants_ =
        std::make_unique<DeviceConstants>(options.accelerator, self->graph_.values.size());
    self->accelerator_ = std::make_unique<const Accelerator>(
        Accelerator{options.accelerator, self->constants_.get(),
                    [self](graph::NodeId n) { return self->prepared(n); }});
  }
  return program;
}

Status Program::prepare_all() const {
  for (size_t n = 0; n < graph_.nodes.size(); ++n)
    LMN_RETURN_IF_ERROR(prepared(static_cast<graph::NodeId>(n)).status());
  return {};
}

Result<const void*> Program::prepared(graph::NodeId n) const {
  const auto at = static_cast<size_t>(n);
  const std::lock_guard lock(prepare_mutex_);
  if (is_prepared_[at]) return prepared_[at].get();
  const graph::Node& node = graph_.nodes[at];
  graph::TypeTranslator translator;
  std::vector<ops::Operand> operands(node.inputs.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (node.inputs[i] == graph::kNone) continue;
    const graph::Value& value = graph_.value(node.inputs[i]);
    operands[i].present = true;
    operands[i].type = translator.to_ops(value.type);
    if (value.constant != nullptr) operands[i].data = value.constant->pieces[0].view.data;
  }
  const ops::TensorNode view(tensor_op(node.op), node.attributes, node.name, operands,
                             static_cast<int>(node.outputs.size()));
  LMN_RETURN_IF_ERROR(device_->kernels().tensor.prepare(view, &prepared_[at]));
  is_prepared_[at] = true;
  return prepared_[at].get();
}

Status Program::check_input(size_t i, const RuntimeValue& value,
                            std::vector<std::pair<std::string, int64_t>>* symbols) const {
  const ProgramPort& port = inputs_[i];
  graph::TypeTranslator translator;
  const ops::TensorType want = translator.to_ops(port.type), have = type_of(value);
  const auto fail = [&](const std::string& why) {
    return error(Code::kInvalidArgument, "input '%s' is %s, expected %s%s", port.name.c_str(),
                 type_text(have).c_str(), port.type.to_string().c_str(), why.c_str());
  };
  if (have.kind != want.kind || have.dtype != want.dtype) return fail("");
  if (have.kind != ValueKind::kTensor || !port.type.ranked) return {};
  if (static_cast<size_t>(have.shape.rank) != port.type.dims.size()) return fail("");
  for (int d = 0; d < have.shape.rank; ++d) {
    const graph::Dim& dim = port.type.dims[static_cast<size_t>(d)];
    if (dim.is_constant()) {
      if (dim.size != have.shape[d]) return fail("");
      continue;
    }
    if (dim.symbol == "?") continue;
    const auto known = std::find_if(symbols->begin(), symbols->end(),
                                    [&](const auto& entry) { return entry.first == dim.symbol; });
    if (known == symbols->end()) {
      symbols->emplace_back(dim.symbol, have.shape[d]);
    } else if (known->second != have.shape[d]) {
      return fail(", where " + dim.symbol + " is " + std::to_string(known->second) +
                  " in another input");
    }
  }
  return {};
}

Result<std::shared_ptr<const Specialization>> Program::specialize(
    std::span<const RuntimeValue> inputs) const {
  const auto matches = [&](const Specialization& s) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const RuntimeValue& value = inputs[i];
      const ops::TensorType& type = s.input_types[i];
      if (value.tensor.dtype != type.dtype || value.kind != type.kind) return false;
      if (value.kind == ValueKind::kTensor && value.tensor.shape != type.shape) return false;
    }
    return true;
  };
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < specializations_.size(); ++i) {
      if (!matches(*specializations_[i])) continue;
      const auto begin = specializations_.begin();
      if (i > 0)
        std::rotate(begin, begin + static_cast<ptrdiff_t>(i),
                    begin + static_cast<ptrdiff_t>(i) + 1);
      return specializations_[0];
    }
  }
  std::vector<std::pair<std::string, int64_t>> symbols;
  std::vector<ops::TensorType> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    LMN_RETURN_IF_ERROR(check_input(i, inputs[i], &symbols));
    types.push_back(type_of(inputs[i]));
  }
  AllocateFn limited;
  const RunContext context = make_context({}, &limited);  // a budget of its own
  LMN_ASSIGN_OR_RETURN(std::shared_ptr<const Specialization> made,
                       make_specialization(graph_, device_->kernels().tensor, prepared_,
                                           std::move(types), *context.allocate, cache_,
                                           options_.workers, options_.runner, accelerator_.get()));
  const std::lock_guard lock(mutex_);
  specializations_.insert(specializations_.begin(), made);
  while (static_cast<int64_t>(specializations_.size()) > options_.max_specializations ||
         (specializations_.size() > 1 && !cache_->fits(0))) {
    specializations_.pop_back();
  }
  return made;
}

Program::RunnerCounts Program::runner_counts() const {
  RunnerCounts counts;
  const std::lock_guard lock(mutex_);
  for (const auto& s : specializations_)
    ++(s->tasks != nullptr ? counts.task_graph : counts.lockstep);
  return counts;
}

Program::PlaceCounts Program::place_counts() const {
  PlaceCounts counts;
  const std::lock_guard lock(mutex_);
  if (specializations_.empty()) return counts;
  for (const ProgramStage& stage : specializations_[0]->stages) {
    ++(stage.on_device ? counts.device : counts.host);
    counts.library += stage.kernel.by_library ? 1 : 0;
  }
  return counts;
}

int64_t Program::frame_bytes(const Specialization& s, int workers) const {
  return s.arena_bytes + workers * s.scratch_bytes + kAlignment +
         (s.device == nullptr ? 0 : DeviceFrame::bytes(*s.device));
}

Result<std::unique_ptr<Frame>> Program::take_frame(const Specialization& s, int workers) const {
  std::unique_ptr<Frame> frame;
  {
    const std::lock_guard lock(s.mutex);
    if (!s.frames.empty()) {
      frame = std::move(s.frames.back());
      s.frames.pop_back();
    }
  }
  if (frame != nullptr) {
    cache_->add(-frame->bytes());
    if (frame->workers >= workers) return frame;
  }
  frame = std::make_unique<Frame>();
  frame->workers = workers;
  frame->table = s.table;
  LMN_ASSIGN_OR_RETURN(
      frame->arena,
      DeviceBlock::create_uninitialized(
          *device_, static_cast<size_t>(s.arena_bytes + workers * s.scratch_bytes + kAlignment)));
  if (s.device != nullptr) {
    LMN_ASSIGN_OR_RETURN(frame->device, DeviceFrame::create(*s.device));
  }
  for (const Specialization::Placement& p : s.placements)
    frame->table[static_cast<size_t>(p.root)] = frame->arena.data() + p.offset;
  if (s.has_late) frame->late.resize(graph_.values.size());
  if (s.tasks != nullptr && workers > 1)
    frame->tasks = std::make_unique<parallel::TaskGraphRun>(*s.tasks, workers);
  return frame;
}

void Program::keep_frame(const Specialization& s, std::unique_ptr<Frame> frame) const {
  if (s.has_late) std::fill(frame->late.begin(), frame->late.end(), RuntimeValue{});
  frame->failure.store(nullptr, std::memory_order_relaxed);
  frame->stopped.store(false, std::memory_order_relaxed);
  const int64_t bytes = frame->bytes();
  const std::lock_guard lock(s.mutex);
  if (!cache_->fits(bytes)) return;
  cache_->add(bytes);
  s.frames.push_back(std::move(frame));
}

RunContext Program::make_context(const RunOptions& options, AllocateFn* limited,
                                 std::shared_ptr<MemoryBudget> budget) const {
  RunContext context;
  context.team = options.team;
  context.cancelled = options.cancelled;
  context.allocate = &allocate_;
  if (options_.max_run_ns > 0) {
    context.max_run_ns = options_.max_run_ns;
    context.deadline_ns = parallel::deadline_after(options_.max_run_ns);
  }
  if (options_.max_arena_bytes > 0) {
    context.budget = budget != nullptr ? std::move(budget)
                                       : std::make_shared<MemoryBudget>(options_.max_arena_bytes);
    *limited = limited_allocator(allocate_, context.budget);
    context.allocate = limited;
  }
  return context;
}

Status Program::run(std::span<const RuntimeValue> inputs, std::span<RuntimeValue> outputs,
                    const RunOptions& options) const {
  AllocateFn limited;
  return run_in(inputs, outputs, make_context(options, &limited));
}

Status Program::run_in(std::span<const RuntimeValue> inputs, std::span<RuntimeValue> outputs,
                       const RunContext& context) const {
  if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size()) {
    return error(Code::kInvalidArgument, "%zu inputs and %zu outputs, expected %zu and %zu",
                 inputs.size(), outputs.size(), inputs_.size(), outputs_.size());
  }
  LMN_RETURN_IF_ERROR(context.check());
  LMN_ASSIGN_OR_RETURN(const std::shared_ptr<const Specialization> s, specialize(inputs));
  const int workers = context.team == nullptr ? 1 : context.team->size();
  LMN_ASSIGN_OR_RETURN(
      const BudgetShare memory,
      BudgetShare::take(context.budget, s->owned_bytes + frame_bytes(*s, workers)));
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<Frame> frame, take_frame(*s, workers));
  Status status = set_operands(*s, *frame, inputs, outputs, *context.allocate);
  if (status.ok()) status = execute(*s, *frame, outputs, context);
  keep_frame(*s, std::move(frame));
  return status;
}

Status Program::set_operands(const Specialization& s, Frame& frame,
                             std::span<const RuntimeValue> inputs, std::span<RuntimeValue> outputs,
                             const AllocateFn& allocate) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto id = static_cast<size_t>(graph_.inputs[i]);
    frame.table[id] = inputs[i].tensor.data;
    if (s.states[id] == ValueState::kLate) frame.late[id] = inputs[i];
  }
  return bind_outputs(s, frame, outputs, allocate);
}

Status Program::bind_outputs(const Specialization& s, Frame& frame, std::span<RuntimeValue> outputs,
                             const AllocateFn& allocate) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto id = static_cast<size_t>(graph_.outputs[i].value);
    if (s.states[id] == ValueState::kLate) continue;  // its type is known at the end
    RuntimeValue& output = outputs[i];
    const ops::TensorType& type = s.values[id].type;
    if (output.tensor.data == nullptr) {
      LMN_ASSIGN_OR_RETURN(output.tensor, allocate(type.dtype, type.shape));
      output.kind = ValueKind::kTensor;
    } else if (!same_type(type_of(output), type)) {
      return error(Code::kInvalidArgument, "the buffer of output '%s' is %s, expected %s",
                   outputs_[i].name.c_str(), type_text(type_of(output)).c_str(),
                   type_text(type).c_str());
    }
    if (s.output_is_direct[i]) frame.table[static_cast<size_t>(s.roots[id])] = output.tensor.data;
  }
  return {};
}

Result<std::unique_ptr<BoundProgram>> Program::bind(std::vector<RuntimeValue> inputs,
                                                    std::vector<RuntimeValue> outputs,
                                                    int workers) const {
  if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size()) {
    return error(Code::kInvalidArgument, "%zu inputs and %zu outputs, expected %zu and %zu",
                 inputs.size(), outputs.size(), inputs_.size(), outputs_.size());
  }
  std::unique_ptr<BoundProgram> bound(new BoundProgram(*this));
  bound->inputs_ = std::move(inputs);
  bound->outputs_ = std::move(outputs);
  LMN_ASSIGN_OR_RETURN(bound->specialization_, specialize(bound->inputs_));
  const Specialization& s = *bound->specialization_;
  AllocateFn limited;
  const RunContext context = make_context({}, &limited);
  LMN_ASSIGN_OR_RETURN(BudgetShare memory,
                       BudgetShare::take(context.budget, s.owned_bytes + frame_bytes(s, workers)));
  bound->memory_ = std::make_unique<BudgetShare>(std::move(memory));
  bound->budget_ = context.budget;
  LMN_ASSIGN_OR_RETURN(bound->frame_, take_frame(s, workers));
  LMN_RETURN_IF_ERROR(
      set_operands(s, *bound->frame_, bound->inputs_, bound->outputs_, *context.allocate));
  return bound;
}

BoundProgram::BoundProgram(const Program& program) : program_(program) {}
BoundProgram::~BoundProgram() = default;

Status BoundProgram::run(const RunOptions& options) {
  const Specialization& s = *specialization_;
  if (s.has_late) {
    std::fill(frame_->late.begin(), frame_->late.end(), RuntimeValue{});
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto id = static_cast<size_t>(program_.graph_.inputs[i]);
      if (s.states[id] == ValueState::kLate) frame_->late[id] = inputs_[i];
    }
  }
  AllocateFn limited;
  RunContext context = program_.make_context(options, &limited, budget_);
  Status status = program_.execute(s, *frame_, outputs_, context);
  if (!status.ok()) {
    frame_->failure.store(nullptr, std::memory_order_relaxed);
    frame_->stopped.store(false, std::memory_order_relaxed);
  }
  return status;
}

Result<std::vector<Tensor>> evaluate(const std::shared_ptr<Device>& device,
                                     const ops::TensorNode& node,
                                     std::span<const TensorView> inputs) {
  std::vector<RuntimeValue> values(inputs.size()), outputs(static_cast<size_t>(node.outputs()));
  std::vector<const RuntimeValue*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!node.has(static_cast<int>(i))) continue;
    values[i].tensor = {inputs[i].dtype, inputs[i].shape, const_cast<std::byte*>(inputs[i].data),
                        nullptr};
    pointers[i] = &values[i];
  }
  std::vector<Tensor> out;
  const AllocateFn allocate = allocator(device);
  LMN_RETURN_IF_ERROR(compute_now(device->kernels().tensor, node, pointers, outputs, allocate));
  for (RuntimeValue& value : outputs) {
    if (value.kind != ValueKind::kTensor) return node.unsupported("its result is no tensor");
    out.push_back(std::move(value.tensor));
  }
  return out;
}

}  // namespace lmn::plan
