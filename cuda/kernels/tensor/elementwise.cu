// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/elementwise.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "cuda/kernels/tensor/walk.h"
#include "ops/infer/elementwise_chain.h"

namespace lmn::cuda::tensor {
namespace {

using ops::TensorOp;

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}
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
  return node.unsupported("no kernel for %s", std::string(info(type).name).c_str());
}

// Operators that are one step, in which numbers are attributes.
struct PlainOp {
  TensorOp op;
  ElementOp step;
  int operands;
  bool takes_integers;
  const char* alpha = nullptr;
  float alpha_default = 0;
  const char* beta = nullptr;
  float beta_default = 0;
};
constexpr PlainOp kPlainOps[] = {
    {TensorOp::kAbs, ElementOp::kAbs, 1, true},
    {TensorOp::kAdd, ElementOp::kAdd, 2, true},
    {TensorOp::kAnd, ElementOp::kAnd, 2, true},
    {TensorOp::kCeil, ElementOp::kCeil, 1, false},
    {TensorOp::kCelu, ElementOp::kCelu, 1, false, "alpha", 1.0f},
    {TensorOp::kCos, ElementOp::kCos, 1, false},
    {TensorOp::kDiv, ElementOp::kDiv, 2, true},
    {TensorOp::kElu, ElementOp::kElu, 1, false, "alpha", 1.0f},
    {TensorOp::kEqual, ElementOp::kEqual, 2, true},
    {TensorOp::kErf, ElementOp::kErf, 1, false},
    {TensorOp::kExp, ElementOp::kExp, 1, false},
    {TensorOp::kFloor, ElementOp::kFloor, 1, false},
    {TensorOp::kGreater, ElementOp::kGreater, 2, true},
    {TensorOp::kGreaterOrEqual, ElementOp::kGreaterOrEqual, 2, true},
    {TensorOp::kHardSigmoid, ElementOp::kHardSigmoid, 1, false, "alpha", 0.2f, "beta", 0.5f},
    {TensorOp::kHardSwish, ElementOp::kHardSwish, 1, false},
    {TensorOp::kIsNaN, ElementOp::kIsNaN, 1, false},
    {TensorOp::kIsInf, ElementOp::kIsInf, 1, false},
    {TensorOp::kLeakyRelu, ElementOp::kLeakyRelu, 1, false, "alpha", 0.01f},
    {TensorOp::kLess, ElementOp::kLess, 2, true},
    {TensorOp::kLessOrEqual, ElementOp::kLessOrEqual, 2, true},
    {TensorOp::kLog, ElementOp::kLog, 1, false},
    {TensorOp::kMish, ElementOp::kMish, 1, false},
    {TensorOp::kMod, ElementOp::kMod, 2, true},
    {TensorOp::kMsGelu, ElementOp::kGelu, 1, false},
    {TensorOp::kMul, ElementOp::kMul, 2, true},
    {TensorOp::kNeg, ElementOp::kNeg, 1, true},
    {TensorOp::kNot, ElementOp::kNot, 1, true},
    {TensorOp::kOr, ElementOp::kOr, 2, true},
    {TensorOp::kPRelu, ElementOp::kPRelu, 2, false},
    {TensorOp::kPow, ElementOp::kPow, 2, false},
    {TensorOp::kQuickGelu, ElementOp::kSwish, 1, false, "alpha", 1.702f},
    {TensorOp::kReciprocal, ElementOp::kReciprocal, 1, false},
    {TensorOp::kRelu, ElementOp::kRelu, 1, true},
    {TensorOp::kRound, ElementOp::kRound, 1, false},
    {TensorOp::kSelu, ElementOp::kSelu, 1, false, "alpha", 1.67326319217681884765625f, "gamma",
     1.05070102214813232421875f},
    {TensorOp::kShrink, ElementOp::kShrink, 1, false, "lambd", 0.5f, "bias", 0.0f},
    {TensorOp::kSigmoid, ElementOp::kSigmoid, 1, false},
    {TensorOp::kSign, ElementOp::kSign, 1, true},
    {TensorOp::kSin, ElementOp::kSin, 1, false},
    {TensorOp::kSoftplus, ElementOp::kSoftplus, 1, false},
    {TensorOp::kSoftsign, ElementOp::kSoftsign, 1, false},
    {TensorOp::kSqrt, ElementOp::kSqrt, 1, false},
    {TensorOp::kSub, ElementOp::kSub, 2, true},
    {TensorOp::kSwish, ElementOp::kSwish, 1, false, "alpha", 1.0f},
    {TensorOp::kTanh, ElementOp::kTanh, 1, false},
    {TensorOp::kThresholdedRelu, ElementOp::kThresholdedRelu, 1, false, "alpha", 1.0f},
    {TensorOp::kXor, ElementOp::kXor, 2, true},
};

// Steps of a node over its inputs, and what they are computed in.
struct Program {
  std::vector<ElementStep> steps;
  int buffers = 0;
  bool takes_integers = false;
  bool moves = false;       // elements are not looked at, but the condition of Where
  std::vector<int> inputs;  // operands of the node

  // `alpha` of the last one's numbers.
  void add(ElementOp op, std::initializer_list<int> operands, float alpha = 0, float beta = 0) {
    ElementStep step;
    step.op = op;
    step.operand_count = 0;
    for (const int operand : operands)
      step.operands[step.operand_count++] = static_cast<int8_t>(operand);
    step.numbers[0] = alpha;
    step.numbers[1] = beta;
    steps.push_back(step);
  }
  // The last step's result is the first operand of the next.
  void then(ElementOp op, std::initializer_list<int> more, float alpha = 0, float beta = 0) {
    steps.back().to = 0;
    buffers = 1;
    add(op, {~0}, alpha, beta);
    for (const int operand : more)
      steps.back().operands[steps.back().operand_count++] = static_cast<int8_t>(operand);
  }
};

// Each result gets a buffer that no later step still reads from.
Status read_steps(const ops::TensorNode& node, Program* program) {
  std::vector<ops::ChainStep> chain;
  LMN_RETURN_IF_ERROR(ops::read_chain(node, &chain));
  std::vector<int> last_reader(chain.size(), -1), buffer_of(chain.size(), -1), owner;
  for (size_t s = 0; s < chain.size(); ++s) {
    for (int i = 0; i < ops::info(chain[s].op).operands; ++i) {
      const ops::ChainOperand& operand = chain[s].operands[i];
      if (!operand.is_input) last_reader[static_cast<size_t>(operand.index)] = static_cast<int>(s);
    }
  }
  for (size_t s = 0; s < chain.size(); ++s) {
    ElementStep step;
    step.op = static_cast<ElementOp>(chain[s].op);
    step.operand_count = static_cast<int8_t>(ops::info(chain[s].op).operands);
    for (int i = 0; i < step.operand_count; ++i) {
      const ops::ChainOperand& operand = chain[s].operands[i];
      const auto index = static_cast<size_t>(operand.index);
      step.operands[i] = static_cast<int8_t>(operand.is_input ? operand.index : ~buffer_of[index]);
    }
    std::copy_n(chain[s].numbers, 2, step.numbers);
    if (s + 1 < chain.size()) {
      size_t buffer = 0;
      while (buffer < owner.size() &&
             last_reader[static_cast<size_t>(owner[buffer])] > static_cast<int>(s))
        ++buffer;
      if (buffer == owner.size()) owner.push_back(0);
      owner[buffer] = static_cast<int>(s);
      buffer_of[s] = static_cast<int>(buffer);
      step.to = static_cast<int8_t>(buffer);
    }
    program->steps.push_back(step);
  }
  program->buffers = static_cast<int>(owner.size());
  return {};
}

Status join(const ops::TensorNode& node, ElementOp op, Program* program) {
  if (node.inputs() > kMostSteps) return node.unsupported("%d operands", node.inputs());
  program->takes_integers = true;
  if (node.inputs() == 1) return program->add(ElementOp::kIdentity, {0}), Status();
  program->add(op, {0, 1});
  for (int i = 2; i < node.inputs(); ++i) program->then(op, {i});
  return {};
}

Status make_program(const ops::TensorNode& node, Program* program) {
  Program& p = *program;
  for (int i = 0; i < node.inputs(); ++i) p.inputs.push_back(i);
  for (const PlainOp& plain : kPlainOps) {
    if (plain.op != node.op()) continue;
    p.takes_integers = plain.takes_integers;
    float alpha = plain.alpha == nullptr ? 0 : node.number(plain.alpha, plain.alpha_default);
    float beta = plain.beta == nullptr ? 0 : node.number(plain.beta, plain.beta_default);
    if (plain.op == TensorOp::kMod) alpha = node.integer("fmod", 0) != 0 ? 1 : 0;
    if (plain.op == TensorOp::kIsInf) {
      alpha = node.integer("detect_positive", 1) != 0 ? 1 : 0;
      beta = node.integer("detect_negative", 1) != 0 ? 1 : 0;
    }
    if (plain.operands == 2) {
      p.add(plain.step, {0, 1}, alpha, beta);
    } else {
      p.add(plain.step, {0}, alpha, beta);
    }
    return {};
  }
  switch (node.op()) {
    case TensorOp::kElementwiseChain:
      return read_steps(node, program);
    case TensorOp::kMin:
      return join(node, ElementOp::kMin, program);
    case TensorOp::kMax:
      return join(node, ElementOp::kMax, program);
    case TensorOp::kSum:
      return join(node, ElementOp::kAdd, program);
    case TensorOp::kMean:
      LMN_RETURN_IF_ERROR(join(node, ElementOp::kAdd, program));
      p.takes_integers = false;
      p.then(ElementOp::kDivideBy, {}, static_cast<float>(node.inputs()));
      return {};
    case TensorOp::kClip: {
      p.takes_integers = true;
      p.inputs = {0};
      const auto bound = [&](int i, ElementOp op) {
        if (!node.has(i)) return;
        p.inputs.push_back(i);
        const int operand = static_cast<int>(p.inputs.size()) - 1;
        if (p.steps.empty()) {
          p.add(op, {0, operand});
        } else {
          p.then(op, {operand});
        }
      };
      bound(1, ElementOp::kMax);
      bound(2, ElementOp::kMin);
      if (p.steps.empty()) p.add(ElementOp::kIdentity, {0});
      return {};
    }
    case TensorOp::kGelu:
      p.add(node.text("approximate", "none") == "tanh" ? ElementOp::kGeluTanh : ElementOp::kGelu,
            {0});
      return {};
    case TensorOp::kFastGelu:
      if (!node.has(1)) return p.add(ElementOp::kGeluTanh, {0}), Status();
      p.add(ElementOp::kAdd, {0, 1});
      p.then(ElementOp::kGeluTanh, {});
      return {};
    case TensorOp::kBiasGelu:
      p.add(ElementOp::kAdd, {0, 1});
      p.then(ElementOp::kGelu, {});
      return {};
    case TensorOp::kSwiGLU:
      p.add(ElementOp::kSwish, {0}, node.number("alpha", 1.0f));
      p.then(ElementOp::kMul, {1});
      return {};
    case TensorOp::kWhere:
      p.add(ElementOp::kWhere, {0, 1, 2});
      p.moves = true;
      return {};
    case TensorOp::kCast:
    case TensorOp::kCastLike:
      p.inputs = {0};
      p.add(ElementOp::kIdentity, {0});
      p.takes_integers = true;
      p.moves = false;
      return {};
    default:
      return node.unsupported("no kernel on a GPU");
  }
}

Status set_types(const Binding& b, const Program& program, StepsParams* p, bool* as_float) {
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
    if (!fits)
      return node.unsupported("no kernel for %s on a GPU", std::string(info(type).name).c_str());
  }
  if (!is_float(p->output_type) && !is_whole(p->output_type)) {
    return node.unsupported("no kernel that gives %s on a GPU",
                            std::string(info(p->output_type).name).c_str());
  }
  return {};
}

void set_layouts(const Binding& b, const Program& program, StepsParams* p) {
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
  Program program;
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
