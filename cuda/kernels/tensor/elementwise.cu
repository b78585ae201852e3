// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/element_program.h"
#include "cuda/kernels/tensor/elementwise.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "cuda/kernels/tensor/walk.h"

namespace lmn::cuda::tensor {
namespace {

using ops::TensorOp;

bool is_whole(DType type) {
  switch (type) {
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
      return true;
    default:
      return false;
  }
}

// Integers of the same size, for operators that only move elements; u64 is moved as i64.
Status type_of_size(const ops::TensorNode& node, DType type, DType* moved) {
  if (type != DType::kString) {
    switch (info(type).block_bytes) {
      case 1:
        return *moved = DType::kU8, Status();
      case 2:
        return *moved = DType::kU16, Status();
      case 4:
        return *moved = DType::kU32, Status();
      case 8:
        return *moved = DType::kI64, Status();
      default:
        break;
    }
  }
  return unsupported_type(node, type);
}

Status set_types(const Binding& b, const ElementProgram& program, StepsParams* p, bool* as_float) {
  const ops::TensorNode& node = b.node;
  p->output_type = b.outputs[0].dtype;
  *as_float = false;
  for (size_t i = 0; i < program.inputs.size(); ++i) p->types[i] = node.dtype(program.inputs[i]);
  const bool same = p->types[0] == p->output_type;
  if (program.moves || (same && program.steps[0].op == ElementOp::kIdentity)) {
    const size_t first = program.inputs.size() - (program.moves ? 2 : 1);
    LMN_RETURN_IF_ERROR(type_of_size(node, p->output_type, &p->output_type));
    for (size_t i = first; i < program.inputs.size(); ++i) p->types[i] = p->output_type;
    if (program.moves) p->types[0] = DType::kBool;
    return {};
  }
  *as_float = is_float(p->types[0]);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const DType type = p->types[i];
    const bool fits = *as_float ? is_float(type) : program.takes_integers && is_whole(type);
    if (!fits) return unsupported_type(node, type);
  }
  if (!is_float(p->output_type) && !is_whole(p->output_type)) {
    return node.unsupported("no kernel that gives %s on a GPU",
                            std::string(info(p->output_type).name).c_str());
  }
  return {};
}

void set_layouts(const Binding& b, const ElementProgram& program, StepsParams* p) {
  const Shape& out = b.outputs[0].shape;
  std::vector<const Shape*> strided;
  std::vector<size_t> which;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Shape& shape = b.node.shape(program.inputs[i]);
    const int64_t elements = shape.elements();
    p->layouts[i] = elements == out.elements() ? Layout::kDense
                    : elements == 1            ? Layout::kScalar
                                               : Layout::kStrided;
    if (p->layouts[i] != Layout::kStrided) continue;
    strided.push_back(&shape);
    which.push_back(i);
  }
  const Walk walk = broadcast_walk(out, strided);
  for (const Dimension& d : walk.dimensions()) {
    p->sizes[p->rank] = static_cast<uint32_t>(d.size);
    for (size_t i = 0; i < which.size(); ++i)
      p->strides[which[i]][p->rank] = static_cast<uint32_t>(d.strides[i]);
    ++p->rank;
  }
}

template <typename C>
void run(const StepsParams& params, const std::vector<int>& inputs, uint32_t shared,
         const ops::Operands& io, const ops::Worker& worker) {
  StepsParams p = params;
  for (size_t i = 0; i < inputs.size(); ++i) p.inputs[i] = io.input<std::byte>(inputs[i]);
  p.output = io.output<std::byte>(0);
  p.failure = reinterpret_cast<uint64_t*>(io.failure);
  simt::launch<element_steps<C>>(
      *worker.queue,
      {blocks(simt::div_up(p.count, kStepThreads * kElementsOfThread)), 1, 1, kStepThreads, shared},
      p);
}

}  // namespace

Status bind_elementwise(const Binding& b) {
  ElementProgram program;
  LMN_RETURN_IF_ERROR(make_program(b.node, &program));
  StepsParams p{};
  bool as_float;
  LMN_RETURN_IF_ERROR(set_types(b, program, &p, &as_float));
  p.count = static_cast<uint32_t>(b.outputs[0].shape.elements());
  set_layouts(b, program, &p);
  p.step_count = static_cast<int32_t>(program.steps.size());
  std::copy(program.steps.begin(), program.steps.end(), p.steps);
  static constexpr const char* kRefusals[] = {"Div: an integer is divided by zero",
                                              "Mod: an integer is divided by zero"};
  p.refusal = reinterpret_cast<uint64_t>(kRefusals[b.node.op() == TensorOp::kMod ? 1 : 0]);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const int input = program.inputs[i];
    if (b.kernel.in_place < 0 && p.layouts[i] == Layout::kDense &&
        b.node.dtype(input) == b.outputs[0].dtype && b.node.shape(input) == b.outputs[0].shape)
      b.kernel.in_place = input;
  }
  // Integers have no chains, and no more than one buffer.
  static_assert(kMostSteps * sizeof(float) * kStepThreads * kElementsOfThread <= kMostSharedBytes);
  const size_t element = as_float ? sizeof(float) : sizeof(int64_t);
  const auto shared = static_cast<uint32_t>(static_cast<size_t>(program.buffers) * element *
                                            kStepThreads * kElementsOfThread);
  b.kernel.set([=, inputs = program.inputs](const ops::Operands& io, const ops::Worker& worker) {
    if (as_float) {
      run<float>(p, inputs, shared, io, worker);
    } else {
      run<int64_t>(p, inputs, shared, io, worker);
    }
  });
  return {};
}

}  // namespace lmn::cuda::tensor
