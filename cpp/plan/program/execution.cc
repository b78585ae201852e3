// SPDX-License-Identifier: Apache-2.0
//
// How a specialisation runs: stages on the team, late stages one by one, outputs at the end.
#include <algorithm>

#include "graph/tensor_types.h"
#include "ops/kernel.h"
#include "plan/program/program.h"
#include "plan/program/run_context.h"
#include "plan/program/schedule.h"
#include "plan/program/specialization.h"

namespace lmn::plan {
namespace {

using ops::RuntimeValue;
using ops::ValueKind;

}  // namespace

Status Program::execute(const Specialization& s, Frame& frame, std::span<RuntimeValue> outputs,
                        const RunContext& context) const {
  if (s.device != nullptr) LMN_RETURN_IF_ERROR(execute_on_device(s, frame, context));
  for (size_t begin = 0; begin < s.stages.size() && s.device == nullptr;) {
    size_t end = begin;
    while (end < s.stages.size() && !s.stages[end].late) ++end;
    LMN_RETURN_IF_ERROR(run_stages(s, frame, begin, end, context));
    if (end < s.stages.size()) {
      LMN_RETURN_IF_ERROR(context.check());
      LMN_RETURN_IF_ERROR(run_late(s, frame, s.stages[end].node, context));
      ++end;
    }
    begin = end;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!s.output_is_direct[i])
      LMN_RETURN_IF_ERROR(finish_output(s, frame, i, &outputs[i], *context.allocate));
  }
  return {};
}

// An output that is no stage's own: late, known, an input, or also another output.
Status Program::finish_output(const Specialization& s, Frame& frame, size_t i, RuntimeValue* output,
                              const AllocateFn& allocate) const {
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
      LMN_ASSIGN_OR_RETURN(output->tensor, allocate(late.tensor.dtype, late.tensor.shape));
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

Status Program::run_stages(const Specialization& s, Frame& frame, size_t begin, size_t end,
                           const RunContext& context) const {
  if (begin == end) return {};
  parallel::ThreadTeam* const team = context.team;
  const bool limited = context.is_limited();
  double cost = 0;
  for (size_t i = begin; i < end; ++i) cost += s.stages[i].cost;
  const int workers = team != nullptr && cost >= kTeamNs ? team->size() : 1;
  const auto run_stage = [&](size_t i, int worker, int part, int parts) {
    if (limited) {
      if (!frame.stopped.load(std::memory_order_relaxed) && context.should_stop())
        frame.stopped.store(true, std::memory_order_relaxed);
      if (frame.stopped.load(std::memory_order_relaxed)) return;
    }
    const ProgramStage& stage = s.stages[i];
    const int32_t* operands = s.operands.data() + stage.operands;
    const auto inputs = static_cast<size_t>(s.operand_counts[i]);
    const ops::Operands io{frame.table.data(),
                           {operands, inputs},
                           {operands + inputs, graph_.node(stage.node).outputs.size()},
                           &frame.failure};
    std::byte* scratch = frame.arena.data() + s.arena_bytes + worker * s.scratch_bytes;
    stage.kernel.run(stage.kernel.state.get(), io, {worker, part, parts, scratch, nullptr});
  };
  const auto walk = [&](int index) {
    for (size_t i = begin; i < end; ++i) {
      if (s.stages[i].barrier_before && workers > 1 && i > begin) team->barrier(index);
      if (s.stages[i].kernel.splits) {
        run_stage(i, index, index, workers);
      } else if (static_cast<int>(i % static_cast<size_t>(workers)) == index) {
        run_stage(i, index, 0, 1);
      }
    }
  };
  if (workers == 1) {
    walk(0);
  } else if (s.tasks != nullptr) {
    frame.tasks->run(*team, [&](int32_t task, int part, int parts, int worker) {
      run_stage(static_cast<size_t>(task), worker, part, parts);
    });
  } else {
    team->run(walk);
  }
  if (frame.stopped.load(std::memory_order_relaxed)) return context.stopped();
  if (const char* what = frame.failure.load(std::memory_order_relaxed); what != nullptr)
    return error(Code::kInvalidArgument, "%s", what);
  return {};
}

Status Program::run_late(const Specialization& s, Frame& frame, graph::NodeId n,
                         const RunContext& context) const {
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
                           (*context.allocate)(inputs[i]->tensor.dtype, inputs[i]->tensor.shape));
      copy_elements(inputs[i]->tensor, copy.tensor);
      placed[i] = std::move(copy);
      inputs[i] = &placed[i];
    }
    operands[i].present = true;
    operands[i].type = type_of(*inputs[i]);
    if (inputs[i]->kind == ValueKind::kTensor) operands[i].data = inputs[i]->tensor.data;
  }
  std::vector<RuntimeValue> outputs(node.outputs.size());
  LMN_ASSIGN_OR_RETURN(const void* ready, prepared(n));
  const ops::TensorNode view(op, node.attributes, node.name, operands,
                             static_cast<int>(outputs.size()), ready);
  if (ops::op_class(op) == ops::OpClass::kControl) {
    LMN_RETURN_IF_ERROR(run_control(n, inputs, outputs, context));
  } else if (keeps_bytes(op)) {
    std::vector<ops::TensorType> types(1);
    LMN_RETURN_IF_ERROR(ops::infer(view, types));
    outputs[0] = *inputs[0];
    if (outputs[0].kind == ValueKind::kTensor) outputs[0].tensor.shape = types[0].shape;
  } else {
    LMN_RETURN_IF_ERROR(
        compute_now(device_->kernels().tensor, view, inputs, outputs, *context.allocate));
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    frame.late[static_cast<size_t>(node.outputs[i])] = std::move(outputs[i]);
  return {};
}

}  // namespace lmn::plan
