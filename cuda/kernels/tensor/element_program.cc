// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/tensor/element_program.h"

#include <algorithm>

#include "ops/infer/elementwise_chain.h"

namespace lmn::cuda::tensor {
namespace {

using ops::TensorOp;

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

// Each result gets a buffer that no later step still reads from.
Status read_steps(const ops::TensorNode& node, ElementProgram* program) {
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

Status join(const ops::TensorNode& node, ElementOp op, ElementProgram* program) {
  if (node.inputs() > kMostSteps) return node.unsupported("%d operands", node.inputs());
  program->takes_integers = true;
  if (node.inputs() == 1) {
    program->add(ElementOp::kIdentity, {0});
    return {};
  }
  program->add(op, {0, 1});
  for (int i = 2; i < node.inputs(); ++i) program->then(op, {i});
  return {};
}

}  // namespace

Status make_program(const ops::TensorNode& node, ElementProgram* program) {
  ElementProgram& p = *program;
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
      if (node.has(1)) {
        p.add(ElementOp::kAdd, {0, 1});
        p.then(ElementOp::kGeluTanh, {});
      } else {
        p.add(ElementOp::kGeluTanh, {0});
      }
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
      return {};
    default:
      return node.unsupported("no kernel on a GPU");
  }
}

}  // namespace lmn::cuda::tensor
