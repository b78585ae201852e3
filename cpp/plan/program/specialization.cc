// SPDX-License-Identifier: Apache-2.0
#include "plan/program/specialization.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "core/check.h"
#include "ops/bound_operands.h"
#include "ops/kernel.h"
#include "plan/arena.h"
#include "plan/program/device_part.h"
#include "plan/program/schedule.h"

namespace lmn::plan {
namespace {

using graph::kNone;
using graph::Node;
using graph::ValueId;
using ops::Operand;
using ops::TensorType;

// Results up to so many bytes are kept with a specialisation; larger ones are computed in every run
// (what follows from constants alone was folded when the program was made).
constexpr int64_t kMaxFoldedBytes = 64 * 1024;
// Of user space on x86-64; so that sums of a program's tensors do not overflow.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 47;

class Specializer {
 public:
  Specializer(const graph::Graph& graph, const ops::TensorKernels& kernels,
              std::span<const std::shared_ptr<const void>> prepared, const AllocateFn& allocate,
              int workers, Runner runner, const Accelerator* accelerator, Specialization* out)
      : graph_(graph),
        kernels_(kernels),
        prepared_(prepared),
        allocate_(allocate),
        workers_(workers),
        runner_(runner),
        accelerator_(accelerator),
        s_(*out) {}

  Status run() {
    start();
    for (size_t n = 0; n < graph_.nodes.size(); ++n) LMN_RETURN_IF_ERROR(infer(n));
    find_needed();
    LMN_RETURN_IF_ERROR(bind_stages());
    LMN_RETURN_IF_ERROR(keep_islands_on_host());
    has_device_ = std::any_of(s_.stages.begin(), s_.stages.end(),
                              [](const ProgramStage& stage) { return stage.on_device; });
    has_tasks_ = !has_device_ && prefers_task_graph(s_, stage_edges(graph_, s_), workers_, runner_);
    LMN_RETURN_IF_ERROR(place());
    find_barriers();
    return {};
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  // For the host's kernels.
  Result<const void*> prepared(graph::NodeId n) const {
    if (accelerator_ != nullptr) return accelerator_->prepare(n);
    return prepared_.empty() ? nullptr : prepared_[at(n)].get();
  }
  const Node& node_of(const ProgramStage& stage) const { return graph_.nodes[at(stage.node)]; }

  void start() {
    const size_t count = graph_.values.size();
    s_.values.resize(count);
    s_.states.assign(count, ValueState::kUnused);
    s_.roots.resize(count);
    for (size_t i = 0; i < count; ++i) s_.roots[i] = static_cast<int32_t>(i);
    s_.table.assign(count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      const graph::Value& value = graph_.values[i];
      if (value.constant == nullptr) continue;
      const TensorView& view = value.constant->pieces[0].view;
      set_known(i, view.dtype, view.shape, const_cast<std::byte*>(view.data));
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const size_t id = at(graph_.inputs[i]);
      s_.values[id].present = true;
      s_.values[id].type = s_.input_types[i];
      s_.states[id] = s_.input_types[i].is_known() ? ValueState::kPlaced : ValueState::kLate;
      s_.has_late |= s_.states[id] == ValueState::kLate;
    }
    is_folded_.assign(graph_.nodes.size(), false);
  }

  void set_known(size_t id, DType dtype, const Shape& shape, std::byte* data) {
    Operand& value = s_.values[id];
    value.present = true;
    value.type.dtype = dtype;
    value.type.shape = shape;
    value.data = data;
    s_.states[id] = ValueState::kKnown;
    s_.table[id] = data;
  }

  std::vector<Operand> operands_of(const Node& node) const {
    std::vector<Operand> operands(node.inputs.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (node.inputs[i] != kNone) operands[i] = s_.values[at(node.inputs[i])];
    }
    return operands;
  }

  // Types of a node's outputs, and their elements where they follow from what is known.
  Status infer(size_t n) {
    const Node& node = graph_.nodes[n];
    LMN_CHECK(is_tensor_op(node.op));
    const ops::TensorOp op = tensor_op(node.op);
    bool all_known = true, any_late = false;
    for (ValueId id : node.inputs) {
      if (id == kNone) continue;
      all_known &= s_.states[at(id)] == ValueState::kKnown;
      any_late |= s_.states[at(id)] == ValueState::kLate;
    }
    const std::vector<Operand> operands = operands_of(node);
    const ops::TensorNode view(op, node.attributes, node.name, operands,
                               static_cast<int>(node.outputs.size()));
    std::vector<TensorType> types(node.outputs.size());
    const bool is_value = ops::op_class(op) == ops::OpClass::kValue;
    bool placed = !any_late && ops::op_class(op) == ops::OpClass::kKernel;
    if (placed || (is_value && all_known)) LMN_RETURN_IF_ERROR(ops::infer(view, types));
    placed = placed && ops::can_bind(view);
    for (const TensorType& type : types) placed &= type.is_known();
    for (const TensorType& type : types) {
      if (placed) LMN_RETURN_IF_ERROR(tensor_bytes(type.dtype, type.shape).status());
    }

    const bool from_shape = name(op) == "Shape" || name(op) == "Size";
    if ((all_known || (from_shape && !any_late)) && (placed || is_value) && !ops::is_random(op)) {
      bool small = true;
      for (const TensorType& type : types) {
        if (!placed) break;
        LMN_ASSIGN_OR_RETURN(const int64_t bytes, tensor_bytes(type.dtype, type.shape));
        small &= bytes <= kMaxFoldedBytes;
      }
      if (small) {
        LMN_ASSIGN_OR_RETURN(const void* ready, prepared(static_cast<graph::NodeId>(n)));
        LMN_ASSIGN_OR_RETURN(const bool folded, fold({op, node.attributes, node.name, operands,
                                                      static_cast<int>(node.outputs.size()), ready},
                                                     node));
        is_folded_[n] = folded;
        if (folded) return {};
      }
    }
    for (size_t i = 0; i < types.size(); ++i) {
      const size_t id = at(node.outputs[i]);
      s_.values[id].present = true;
      s_.values[id].type = placed ? types[i] : TensorType{};
      s_.states[id] = placed ? ValueState::kPlaced : ValueState::kLate;
    }
    return {};
  }

  // False: an output is no tensor.
  Result<bool> fold(const ops::TensorNode& view, const Node& node) {
    std::vector<ops::RuntimeValue> inputs(node.inputs.size()), outputs(node.outputs.size());
    std::vector<const ops::RuntimeValue*> pointers(inputs.size(), nullptr);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const Operand& operand = s_.values[at(node.inputs[i])];
      inputs[i].tensor.dtype = operand.type.dtype;
      inputs[i].tensor.shape = operand.type.shape;
      inputs[i].tensor.data = const_cast<std::byte*>(operand.data);
      pointers[i] = &inputs[i];
    }
    LMN_RETURN_IF_ERROR(compute_now(kernels_, view, pointers, outputs, allocate_));
    for (const ops::RuntimeValue& output : outputs) {
      if (output.kind != ops::ValueKind::kTensor) return false;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& tensor = outputs[i].tensor;
      s_.owned.push_back(tensor);
      s_.owned_bytes += tensor.shape.elements() * element_bytes(tensor.dtype);
      set_known(at(node.outputs[i]), tensor.dtype, tensor.shape, tensor.data);
    }
    return true;
  }

  void find_needed() {
    needed_.assign(graph_.values.size(), false);
    for (const graph::Output& output : graph_.outputs) needed_[at(output.value)] = true;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (is_folded_[n] || !is_needed(graph_.nodes[n])) continue;
      for (ValueId id : graph_.nodes[n].inputs) {
        if (id != kNone) needed_[at(id)] = true;
      }
    }
  }
  bool is_needed(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [this](ValueId id) { return needed_[at(id)]; });
  }

  Status bind_stages() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (is_folded_[n] || !is_needed(node)) continue;
      ProgramStage stage;
      stage.node = static_cast<graph::NodeId>(n);
      stage.late = s_.states[at(node.outputs[0])] == ValueState::kLate;
      const ops::TensorOp op = tensor_op(node.op);
      if (!stage.late && keeps_bytes(op)) {  // another view of the same bytes
        s_.roots[at(node.outputs[0])] = s_.roots[at(node.inputs[0])];
        continue;
      }
      if (stage.late) {
        s_.has_late = true;
        stage.barrier_before = true;
      } else {
        LMN_RETURN_IF_ERROR(bind(node, op, &stage));
      }
      s_.stages.push_back(std::move(stage));
    }
    return {};
  }

  Status bind(const Node& node, ops::TensorOp op, ProgramStage* stage) {
    const std::vector<Operand> operands = operands_of(node);
    std::vector<TensorType> types;
    double bytes = 0;
    for (ValueId id : node.outputs) types.push_back(s_.values[at(id)].type);
    if (accelerator_ != nullptr) {
      LMN_ASSIGN_OR_RETURN(stage->on_device, bind_on_device(node, op, operands, types, stage));
      if (stage->on_device) return {};
    }
    LMN_ASSIGN_OR_RETURN(const void* ready, prepared(stage->node));
    const ops::TensorNode view(op, node.attributes, node.name, operands,
                               static_cast<int>(node.outputs.size()), ready);
    LMN_RETURN_IF_ERROR(kernels_.bind(view, types, {}, &stage->kernel));
    for (const Operand& operand : operands) {
      if (operand.present && operand.type.ranked()) {
        bytes +=
            static_cast<double>(operand.type.shape.elements() * element_bytes(operand.type.dtype));
      }
    }
    for (const TensorType& type : types)
      bytes += static_cast<double>(type.shape.elements() * element_bytes(type.dtype));
    stage->cost = stage->kernel.cost > 0 ? stage->kernel.cost : 20 + bytes / 8;
    s_.scratch_bytes = std::max<int64_t>(
        s_.scratch_bytes, align_up(static_cast<int64_t>(stage->kernel.scratch_bytes)));
    return {};
  }

  // False: the device has no kernel for it.
  Result<bool> bind_on_device(const Node& node, ops::TensorOp op,
                              const std::vector<Operand>& operands,
                              std::span<const TensorType> types, ProgramStage* stage) const {
    if (keep_on_host_.contains(stage->node)) return false;
    Device& device = *accelerator_->device;
    const ops::TensorNode view(op, node.attributes, node.name, operands,
                               static_cast<int>(node.outputs.size()), nullptr,
                               has_fixed_sizes(node) ? device.dense_products() : nullptr);
    Status status =
        device.kernels().tensor.bind(view, types, {device.multiprocessors()}, &stage->kernel);
    if (status.ok()) return true;
    stage->kernel = {};
    if (status.code() != Code::kUnsupported) return status;
    return false;
  }

  // Whether the graph itself says the sizes of all tensors of the node: they are those of every
  // run, and of runs that were joined (batching.h).
  bool has_fixed_sizes(const Node& node) const {
    const auto is_fixed = [this](ValueId id) {
      if (id == kNone) return true;
      const graph::ValueType& type = graph_.value(id).type;
      return type.ranked && std::all_of(type.dims.begin(), type.dims.end(),
                                        [](const graph::Dim& dim) { return dim.is_constant(); });
    };
    return std::all_of(node.inputs.begin(), node.inputs.end(), is_fixed) &&
           std::all_of(node.outputs.begin(), node.outputs.end(), is_fixed);
  }

  // What only moves or maps elements between stages of the host is not worth the way to the device
  // and back. Products are (their kernels tell a cost).
  Status keep_islands_on_host() {
    if (accelerator_ == nullptr) return {};
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<int> writer(graph_.values.size(), -1);
      for (size_t i = 0; i < s_.stages.size(); ++i) {
        for (ValueId id : node_of(s_.stages[i]).outputs) writer[root(id)] = static_cast<int>(i);
      }
      std::vector<bool> by_host(s_.stages.size()), by_device(s_.stages.size());
      for (size_t i = 0; i < s_.stages.size(); ++i) {
        for (ValueId id : node_of(s_.stages[i]).inputs) {
          if (id == kNone || writer[root(id)] < 0) continue;
          const auto from = static_cast<size_t>(writer[root(id)]);
          (s_.stages[from].on_device ? by_device : by_host)[i] = true;
          (s_.stages[i].on_device ? by_device : by_host)[from] = true;
        }
      }
      for (size_t i = 0; i < s_.stages.size(); ++i) {
        ProgramStage& stage = s_.stages[i];
        if (!stage.on_device || stage.kernel.cost > 0 || by_device[i] || !by_host[i]) continue;
        keep_on_host_.insert(stage.node);
        stage.on_device = false;
        stage.kernel = {};
        LMN_RETURN_IF_ERROR(bind(node_of(stage), tensor_op(node_of(stage).op), &stage));
        changed = true;
      }
    }
    return {};
  }

  // Whose bytes a value has: of a placed value that no input and no constant is, the arena's.
  bool is_computed(int32_t root) const { return graph_.value(root).producer != kNone; }

  // Lifetimes, buffers that are taken over, outputs that are written where the caller wants them.
  Status place() {
    const int end = static_cast<int>(s_.stages.size());
    std::vector<int> first(graph_.values.size(), -1), last(graph_.values.size(), -1);
    for (int i = 0; i < end; ++i) {
      const Node& node = node_of(s_.stages[static_cast<size_t>(i)]);
      for (ValueId id : node.inputs) {
        if (id != kNone) last[root(id)] = i;
      }
      for (ValueId id : node.outputs) {
        first[root(id)] = i;
        last[root(id)] = std::max(last[root(id)], i);
      }
    }
    std::vector<bool> claimed(graph_.values.size(), false);
    for (const graph::Output& output : graph_.outputs) {
      const auto id = static_cast<int32_t>(root(output.value));
      const bool direct = s_.states[at(output.value)] == ValueState::kPlaced && is_computed(id) &&
                          s_.states[at(id)] == ValueState::kPlaced && !claimed[at(id)];
      s_.output_is_direct.push_back(direct);
      if (direct) claimed[at(id)] = true;
      last[at(id)] = end;
    }
    for (int i = 0; i < end; ++i) take_over(i, claimed, &first, &last);

    const Sides sides = sides_of(graph_, s_);
    std::vector<Interval> intervals;
    std::vector<int32_t> ids;
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      const bool own = s_.roots[id] == static_cast<int32_t>(id) &&
                       s_.states[id] == ValueState::kPlaced && first[id] >= 0 && !claimed[id];
      if (!own || (has_device_ && !sides.host[id])) continue;
      const TensorType& type = s_.values[id].type;
      intervals.push_back(
          {type.shape.elements() * element_bytes(type.dtype), first[id], last[id], 0});
      ids.push_back(static_cast<int32_t>(id));
    }
    s_.arena_bytes = has_tasks_ ? place_tasks(ids, intervals) : assign_offsets(intervals);
    for (size_t i = 0; i < ids.size(); ++i)
      s_.placements.push_back({ids[i], intervals[i].offset, intervals[i].bytes});
    for (ProgramStage& stage : s_.stages) {
      const Node& node = node_of(stage);
      stage.operands = s_.operands.size();
      s_.operand_counts.push_back(static_cast<int32_t>(node.inputs.size()));
      for (ValueId id : node.inputs)
        s_.operands.push_back(id == kNone ? -1 : static_cast<int32_t>(root(id)));
      for (ValueId id : node.outputs) s_.operands.push_back(static_cast<int32_t>(root(id)));
    }
    if (has_device_) {
      LMN_ASSIGN_OR_RETURN(s_.device,
                           make_device_part(graph_, s_, *accelerator_, sides, first, last));
    }
    return {};
  }

  // For any order in which the tasks may run.
  int64_t place_tasks(const std::vector<int32_t>& ids, std::span<Interval> intervals) {
    const auto stages = static_cast<int32_t>(s_.stages.size());
    const std::vector<StageEdge> edges = stage_edges(graph_, s_);
    std::vector<int32_t> parts, interval_of(graph_.values.size(), -1);
    for (const ProgramStage& stage : s_.stages) parts.push_back(most_parts(stage, workers_));
    for (size_t i = 0; i < ids.size(); ++i) interval_of[at(ids[i])] = static_cast<int32_t>(i);
    std::vector<std::vector<int32_t>> touched(ids.size());
    for (int32_t i = 0; i < stages; ++i) {
      const Node& node = node_of(s_.stages[at(i)]);
      const auto touch = [&](ValueId id) {
        if (id != kNone && interval_of[root(id)] >= 0)
          touched[at(interval_of[root(id)])].push_back(i);
      };
      for (ValueId id : node.outputs) touch(id);
      for (ValueId id : node.inputs) touch(id);
    }
    s_.tasks = std::make_unique<const parallel::TaskGraph>(std::move(parts), edges);
    return assign_unordered_offsets(intervals, touched, stages, edges);
  }

  // Output 0 of stage i in the buffer of an operand that nobody reads afterwards.
  void take_over(int i, const std::vector<bool>& claimed, std::vector<int>* first,
                 std::vector<int>* last) {
    const ProgramStage& stage = s_.stages[static_cast<size_t>(i)];
    if (stage.late || stage.kernel.in_place < 0) return;
    const Node& node = node_of(stage);
    const auto from = static_cast<int32_t>(root(node.inputs[at(stage.kernel.in_place)]));
    const auto to = static_cast<int32_t>(root(node.outputs[0]));
    if (!is_computed(from) || s_.states[at(from)] != ValueState::kPlaced || claimed[at(from)] ||
        claimed[at(to)] || (*last)[at(from)] != i || to != node.outputs[0]) {
      return;
    }
    for (int32_t& r : s_.roots) {
      if (r == to) r = from;
    }
    (*last)[at(from)] = (*last)[at(to)];
    (*first)[at(to)] = -1;
  }

  size_t root(ValueId id) const { return at(s_.roots[at(id)]); }

  // Stages between two barriers touch no bytes that one of them writes.
  void find_barriers() {
    struct Range {
      int64_t begin, end;
      bool write;
    };
    std::vector<Range> ranges;
    std::vector<Specialization::Placement> of_root(graph_.values.size(), {-1, 0, 0});
    for (const Specialization::Placement& p : s_.placements) of_root[at(p.root)] = p;
    // Outputs lie outside of the arena, each in a space of its own past its end.
    int64_t outside = s_.arena_bytes;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (!s_.output_is_direct[i]) continue;
      const auto id = static_cast<int32_t>(root(graph_.outputs[i].value));
      of_root[at(id)] = {id, outside, 1};
      outside += 1;
    }
    for (ProgramStage& stage : s_.stages) {
      const Node& node = node_of(stage);
      std::vector<Range> own;
      const auto add = [&](ValueId id, bool write) {
        if (id == kNone) return;
        const auto& p = of_root[root(id)];
        if (p.root >= 0) own.push_back({p.offset, p.offset + std::max<int64_t>(p.bytes, 1), write});
      };
      for (ValueId id : node.inputs) add(id, false);
      for (ValueId id : node.outputs) add(id, true);
      bool conflict = stage.late;
      for (const Range& a : own) {
        for (const Range& b : ranges)
          conflict |= (a.write || b.write) && a.begin < b.end && b.begin < a.end;
      }
      if (conflict) ranges.clear();
      stage.barrier_before = conflict;
      ranges.insert(ranges.end(), own.begin(), own.end());
    }
  }

  const graph::Graph& graph_;
  const ops::TensorKernels& kernels_;
  const std::span<const std::shared_ptr<const void>> prepared_;
  const AllocateFn& allocate_;
  const int workers_;
  const Runner runner_;
  const Accelerator* const accelerator_;
  bool has_tasks_ = false, has_device_ = false;
  std::unordered_set<graph::NodeId> keep_on_host_;
  Specialization& s_;
  std::vector<bool> is_folded_, needed_;
};

}  // namespace

Frame::Frame() = default;
Frame::~Frame() = default;
int64_t Frame::bytes() const {
  return static_cast<int64_t>(arena.bytes() + (device == nullptr ? 0 : device->arena.bytes()));
}

Specialization::Specialization() = default;
Specialization::~Specialization() {
  if (cache == nullptr) return;
  int64_t bytes = owned_bytes;
  for (const std::unique_ptr<Frame>& frame : frames) bytes += frame->bytes();
  cache->add(-bytes);
}

Result<int64_t> tensor_bytes(DType dtype, const Shape& shape) {
  int64_t bytes = element_bytes(dtype);
  bool empty = false, overflow = false;
  for (int i = 0; i < shape.rank; ++i) {
    empty |= shape[i] == 0;
    overflow |= __builtin_mul_overflow(bytes, shape[i], &bytes);
  }
  if (empty) return int64_t{0};
  if (overflow || bytes > kMaxTensorBytes) {
    return error(Code::kUnsupported, "a tensor of shape %s has more bytes than an address space",
                 shape.to_string().c_str());
  }
  return bytes;
}

ops::TensorType type_of(const ops::RuntimeValue& value) {
  ops::TensorType type;
  type.dtype = value.tensor.dtype;
  type.kind = value.kind;
  if (value.kind == ops::ValueKind::kTensor) type.shape = value.tensor.shape;
  if (!value.items.empty() && value.kind != ops::ValueKind::kMap) type.item = value.items[0].kind;
  return type;
}

bool same_type(const ops::TensorType& a, const ops::TensorType& b) {
  return a.dtype == b.dtype && a.kind == b.kind && a.shape == b.shape;
}

std::string type_text(const ops::TensorType& type) {
  constexpr std::string_view kKinds[] = {"", "sequence ", "optional ", "map "};
  std::string out(kKinds[static_cast<int>(type.kind)]);
  out += info(type.dtype).name;
  return type.kind == ops::ValueKind::kTensor ? out + type.shape.to_string() : out;
}

void copy_elements(const Tensor& from, const Tensor& to) {
  const int64_t count = from.shape.elements();
  if (from.dtype == DType::kString) {
    std::copy_n(from.as<std::string>(), count, to.as<std::string>());
  } else if (count > 0) {
    std::memcpy(to.data, from.data, static_cast<size_t>(count * element_bytes(from.dtype)));
  }
}

bool keeps_bytes(ops::TensorOp op) {
  static const std::unordered_set<std::string_view> kOps = {"Identity", "Reshape", "Flatten",
                                                            "Squeeze", "Unsqueeze"};
  return kOps.contains(name(op));
}

Status compute_now(const ops::TensorKernels& kernels, const ops::TensorNode& node,
                   std::span<const ops::RuntimeValue* const> inputs,
                   std::span<ops::RuntimeValue> outputs, const AllocateFn& allocate) {
  if (ops::op_class(node.op()) == ops::OpClass::kValue)
    return kernels.evaluate(node, {inputs, outputs, allocate});
  std::vector<TensorType> types(outputs.size());
  LMN_RETURN_IF_ERROR(ops::infer(node, types));
  for (const TensorType& type : types) {
    if (!type.is_known())
      return node.fail("the shape of an output does not follow from its inputs");
  }
  ops::TensorKernel kernel;
  LMN_RETURN_IF_ERROR(kernels.bind(node, types, {}, &kernel));
  std::vector<std::byte*> table;
  std::vector<int32_t> in, out;
  for (const ops::RuntimeValue* value : inputs) {
    in.push_back(value == nullptr ? -1 : static_cast<int32_t>(table.size()));
    if (value != nullptr) table.push_back(value->tensor.data);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    LMN_ASSIGN_OR_RETURN(outputs[i].tensor, allocate(types[i].dtype, types[i].shape));
    outputs[i].kind = ops::ValueKind::kTensor;
    out.push_back(static_cast<int32_t>(table.size()));
    table.push_back(outputs[i].tensor.data);
  }
  Tensor scratch;
  if (kernel.scratch_bytes > 0) {
    LMN_ASSIGN_OR_RETURN(scratch,
                         allocate(DType::kU8, {static_cast<int64_t>(kernel.scratch_bytes)}));
  }
  std::atomic<const char*> failure{nullptr};
  kernel.run(kernel.state.get(), {table.data(), in, out, &failure},
             {0, 0, 1, scratch.data, nullptr});
  if (failure.load() != nullptr) return node.fail("%s", failure.load());
  return {};
}

Result<std::shared_ptr<const Specialization>> make_specialization(
    const graph::Graph& graph, const ops::TensorKernels& kernels,
    std::span<const std::shared_ptr<const void>> prepared, std::vector<ops::TensorType> input_types,
    const AllocateFn& allocate, std::shared_ptr<FrameCache> cache, int workers, Runner runner,
    const Accelerator* accelerator) {
  auto s = std::make_shared<Specialization>();
  s->input_types = std::move(input_types);
  LMN_RETURN_IF_ERROR(
      Specializer(graph, kernels, prepared, allocate, workers, runner, accelerator, s.get()).run());
  s->cache = std::move(cache);
  s->cache->add(s->owned_bytes);
  return std::shared_ptr<const Specialization>(std::move(s));
}

}  // namespace lmn::plan
