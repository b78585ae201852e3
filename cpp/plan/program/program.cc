// SPDX-License-Identifier: Apache-2.0
#include "plan/program/program.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "core/check.h"
#include "graph/tensor_types.h"
#include "ops/kernel.h"
#include "plan/arena.h"
#include "plan/program/specialization.h"

namespace lmn::plan {
namespace {

using ops::RuntimeValue;
using ops::ValueKind;

// Below so much work, waking a team costs more than it saves.
constexpr double kTeamNs = 30'000;

ops::TensorType type_of(const RuntimeValue& value) {
  ops::TensorType type;
  type.dtype = value.tensor.dtype;
  type.kind = value.kind;
  if (value.kind == ValueKind::kTensor) type.shape = value.tensor.shape;
  if (!value.items.empty() && value.kind != ValueKind::kMap) type.item = value.items[0].kind;
  return type;
}

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

bool same_type(const ops::TensorType& a, const ops::TensorType& b) {
  return a.dtype == b.dtype && a.kind == b.kind && a.shape == b.shape;
}

std::string type_text(const ops::TensorType& type) {
  constexpr std::string_view kKinds[] = {"", "sequence ", "optional ", "map "};
  std::string out(kKinds[static_cast<int>(type.kind)]);
  out += info(type.dtype).name;
  return type.kind == ValueKind::kTensor ? out + type.shape.to_string() : out;
}

}  // namespace

Program::Program(graph::Graph graph, std::shared_ptr<Device> device, const ProgramOptions& options)
    : graph_(std::move(graph)), device_(std::move(device)), options_(options) {
  allocate_ = allocator(device_);
}

Program::~Program() = default;

Result<std::unique_ptr<Program>> Program::create(graph::Graph graph, std::shared_ptr<Device> device,
                                                 const ProgramOptions& options) {
  if (device->kernels().tensor.bind == nullptr) {
    return error(Code::kUnsupported, "device %s has no kernels for general tensors",
                 device->name().c_str());
  }
  std::unique_ptr<Program> program(new Program(std::move(graph), device, options));
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
      LMN_ASSIGN_OR_RETURN(std::unique_ptr<Program> child, create(**subgraph, device, options));
      children.push_back(std::move(child));
    }
  }
  LMN_RETURN_IF_ERROR(program->prepare());
  return program;
}

Status Program::prepare() {
  prepared_.resize(graph_.nodes.size());
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const graph::Node& node = graph_.nodes[n];
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
    LMN_RETURN_IF_ERROR(device_->kernels().tensor.prepare(view, &prepared_[n]));
  }
  return {};
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
  LMN_ASSIGN_OR_RETURN(std::shared_ptr<const Specialization> made,
                       make_specialization(graph_, device_->kernels().tensor, prepared_,
                                           std::move(types), allocate_));
  if (options_.max_arena_bytes > 0 && made->arena_bytes > options_.max_arena_bytes) {
    return error(Code::kUnsupported,
                 "inputs of these shapes need %" PRId64
                 " bytes of intermediate values; the limit is "
                 "%" PRId64,
                 made->arena_bytes, options_.max_arena_bytes);
  }
  const std::lock_guard lock(mutex_);
  specializations_.insert(specializations_.begin(), made);
  if (static_cast<int64_t>(specializations_.size()) > options_.max_specializations)
    specializations_.pop_back();
  return made;
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
  if (frame != nullptr && frame->workers >= workers) return frame;
  frame = std::make_unique<Frame>();
  frame->workers = workers;
  frame->table = s.table;
  LMN_ASSIGN_OR_RETURN(
      frame->arena,
      DeviceBlock::create_uninitialized(
          *device_, static_cast<size_t>(s.arena_bytes + workers * s.scratch_bytes + 64)));
  for (const Specialization::Placement& p : s.placements)
    frame->table[static_cast<size_t>(p.root)] = frame->arena.data() + p.offset;
  if (s.has_late) frame->late.resize(graph_.values.size());
  return frame;
}

Status Program::run(std::span<const RuntimeValue> inputs, std::span<RuntimeValue> outputs,
                    parallel::ThreadTeam* team) const {
  if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size()) {
    return error(Code::kInvalidArgument, "%zu inputs and %zu outputs, expected %zu and %zu",
                 inputs.size(), outputs.size(), inputs_.size(), outputs_.size());
  }
  LMN_ASSIGN_OR_RETURN(const std::shared_ptr<const Specialization> s, specialize(inputs));
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<Frame> frame,
                       take_frame(*s, team == nullptr ? 1 : team->size()));
  Status status = set_operands(*s, *frame, inputs, outputs);
  if (status.ok()) status = execute(*s, *frame, outputs, team);
  if (s->has_late) std::fill(frame->late.begin(), frame->late.end(), RuntimeValue{});
  frame->failure.store(nullptr, std::memory_order_relaxed);
  const std::lock_guard lock(s->mutex);
  s->frames.push_back(std::move(frame));
  return status;
}

Status Program::set_operands(const Specialization& s, Frame& frame,
                             std::span<const RuntimeValue> inputs,
                             std::span<RuntimeValue> outputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto id = static_cast<size_t>(graph_.inputs[i]);
    frame.table[id] = inputs[i].tensor.data;
    if (s.states[id] == ValueState::kLate) frame.late[id] = inputs[i];
  }
  return bind_outputs(s, frame, outputs);
}

Status Program::execute(const Specialization& s, Frame& frame, std::span<RuntimeValue> outputs,
                        parallel::ThreadTeam* team) const {
  for (size_t begin = 0; begin < s.stages.size();) {
    size_t end = begin;
    while (end < s.stages.size() && !s.stages[end].late) ++end;
    run_stages(s, frame, begin, end, team);
    if (const char* what = frame.failure.load(std::memory_order_relaxed); what != nullptr)
      return error(Code::kInvalidArgument, "%s", what);
    if (end < s.stages.size()) {
      LMN_RETURN_IF_ERROR(run_late(s, frame, s.stages[end].node, team));
      ++end;
    }
    begin = end;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!s.output_is_direct[i]) LMN_RETURN_IF_ERROR(finish_output(s, frame, i, &outputs[i]));
  }
  return {};
}

Status Program::bind_outputs(const Specialization& s, Frame& frame,
                             std::span<RuntimeValue> outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto id = static_cast<size_t>(graph_.outputs[i].value);
    if (s.states[id] == ValueState::kLate) continue;  // its type is known at the end
    RuntimeValue& output = outputs[i];
    const ops::TensorType& type = s.values[id].type;
    if (output.tensor.data == nullptr) {
      LMN_ASSIGN_OR_RETURN(output.tensor, allocate_(type.dtype, type.shape));
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
  LMN_ASSIGN_OR_RETURN(bound->frame_, take_frame(*bound->specialization_, workers));
  LMN_RETURN_IF_ERROR(
      set_operands(*bound->specialization_, *bound->frame_, bound->inputs_, bound->outputs_));
  return bound;
}

BoundProgram::BoundProgram(const Program& program) : program_(program) {}
BoundProgram::~BoundProgram() = default;

Status BoundProgram::run(parallel::ThreadTeam* team) {
  const Specialization& s = *specialization_;
  if (s.has_late) {
    std::fill(frame_->late.begin(), frame_->late.end(), RuntimeValue{});
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto id = static_cast<size_t>(program_.graph_.inputs[i]);
      if (s.states[id] == ValueState::kLate) frame_->late[id] = inputs_[i];
    }
  }
  Status status = program_.execute(s, *frame_, outputs_, team);
  if (!status.ok()) frame_->failure.store(nullptr, std::memory_order_relaxed);
  return status;
}

namespace {

void copy_elements(const Tensor& from, const Tensor& to) {
  const int64_t count = from.shape.elements();
  if (from.dtype == DType::kString) {
    std::copy_n(from.as<std::string>(), count, to.as<std::string>());
  } else if (count > 0) {
    std::memcpy(to.data, from.data, static_cast<size_t>(count * element_bytes(from.dtype)));
  }
}

}  // namespace

// An output that is no stage's own: late, known, an input, or also another output.
Status Program::finish_output(const Specialization& s, Frame& frame, size_t i,
                              RuntimeValue* output) const {
  const auto id = static_cast<size_t>(graph_.outputs[i].value);
  if (s.states[id] != ValueState::kLate) {
    Tensor from;
    from.dtype = output->tensor.dtype;
    from.shape = output->tensor.shape;
    from.data = frame.table[static_cast<size_t>(s.roots[id])];
    copy_elements(from, output->tensor);
    return {};
  }
  const RuntimeValue& late = frame.late[id];
  if (output->tensor.data == nullptr) {
    // Tensors that somebody lent (an input that comes out again) are not ours to hand over.
    *output = late;
    if (late.kind == ValueKind::kTensor && late.tensor.owner == nullptr) {
      LMN_ASSIGN_OR_RETURN(output->tensor, allocate_(late.tensor.dtype, late.tensor.shape));
      copy_elements(late.tensor, output->tensor);
    }
    return {};
  }
  if (!same_type(type_of(*output), type_of(late))) {
    return error(Code::kInvalidArgument, "the buffer of output '%s' is %s, and the result is %s",
                 outputs_[i].name.c_str(), type_text(type_of(*output)).c_str(),
                 type_text(type_of(late)).c_str());
  }
  copy_elements(late.tensor, output->tensor);
  return {};
}

void Program::run_stages(const Specialization& s, Frame& frame, size_t begin, size_t end,
                         parallel::ThreadTeam* team) const {
  if (begin == end) return;
  double cost = 0;
  for (size_t i = begin; i < end; ++i) cost += s.stages[i].cost;
  const int workers = team != nullptr && cost >= kTeamNs ? team->size() : 1;
  const auto walk = [&](int index) {
    std::byte* scratch = frame.arena.data() + s.arena_bytes + index * s.scratch_bytes;
    const ops::Worker share{index, index, workers, scratch, nullptr};
    const ops::Worker alone{index, 0, 1, scratch, nullptr};
    for (size_t i = begin; i < end; ++i) {
      const ProgramStage& stage = s.stages[i];
      if (stage.barrier_before && workers > 1 && i > begin) team->barrier(index);
      const int32_t* operands = s.operands.data() + stage.operands;
      const auto inputs = static_cast<size_t>(s.operand_counts[i]);
      const ops::Operands io{frame.table.data(),
                             {operands, inputs},
                             {operands + inputs, graph_.node(stage.node).outputs.size()},
                             &frame.failure};
      if (stage.kernel.splits) {
        stage.kernel.run(stage.kernel.state.get(), io, share);
      } else if (static_cast<int>(i % static_cast<size_t>(workers)) == index) {
        stage.kernel.run(stage.kernel.state.get(), io, alone);
      }
    }
  };
  if (workers == 1) {
    walk(0);
  } else {
    team->run(walk);
  }
}

Status Program::run_late(const Specialization& s, Frame& frame, graph::NodeId n,
                         parallel::ThreadTeam* team) const {
  const graph::Node& node = graph_.node(n);
  const ops::TensorOp op = tensor_op(node.op);
  std::vector<RuntimeValue> placed(node.inputs.size());
  std::vector<const RuntimeValue*> inputs(node.inputs.size(), nullptr);
  std::vector<ops::Operand> operands(node.inputs.size());
  const bool keeps = ops::op_class(op) != ops::OpClass::kKernel || keeps_bytes(op);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] == graph::kNone) continue;
    const auto id = static_cast<size_t>(node.inputs[i]);
    if (s.states[id] == ValueState::kLate) {
      inputs[i] = &frame.late[id];
    } else {
      Tensor& tensor = placed[i].tensor;
      tensor.dtype = s.values[id].type.dtype;
      tensor.shape = s.values[id].type.shape;
      tensor.data = frame.table[static_cast<size_t>(s.roots[id])];
      inputs[i] = &placed[i];
    }
    if (keeps && inputs[i]->kind == ValueKind::kTensor && inputs[i]->tensor.owner == nullptr) {
      // What comes out may hold what went in for longer than the arena does.
      RuntimeValue copy;
      LMN_ASSIGN_OR_RETURN(copy.tensor,
                           allocate_(inputs[i]->tensor.dtype, inputs[i]->tensor.shape));
      copy_elements(inputs[i]->tensor, copy.tensor);
      placed[i] = std::move(copy);
      inputs[i] = &placed[i];
    }
    operands[i].present = true;
    operands[i].type = type_of(*inputs[i]);
    if (inputs[i]->kind == ValueKind::kTensor) operands[i].data = inputs[i]->tensor.data;
  }
  std::vector<RuntimeValue> outputs(node.outputs.size());
  const ops::TensorNode view(op, node.attributes, node.name, operands,
                             static_cast<int>(outputs.size()),
                             prepared_[static_cast<size_t>(n)].get());
  if (ops::op_class(op) == ops::OpClass::kControl) {
    LMN_RETURN_IF_ERROR(run_control(n, inputs, outputs, team));
  } else if (keeps_bytes(op)) {
    std::vector<ops::TensorType> types(1);
    LMN_RETURN_IF_ERROR(ops::infer(view, types));
    outputs[0] = *inputs[0];
    if (outputs[0].kind == ValueKind::kTensor) outputs[0].tensor.shape = types[0].shape;
  } else {
    LMN_RETURN_IF_ERROR(compute_now(device_->kernels().tensor, view, inputs, outputs, allocate_));
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    frame.late[static_cast<size_t>(node.outputs[i])] = std::move(outputs[i]);
  return {};
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
