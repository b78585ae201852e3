// SPDX-License-Identifier: Apache-2.0
//
// The steps of lmnative.ElementwiseChain: plain data that inference, passes and kernels share. Text
// of a step: the operator, its operands (x0 is input 0, t0 the result of step 0), its numbers:
// "Mul x0 t1", "Clip t2 0 6". The last step gives the output.
#pragma once

#include <cstdint>

namespace lmn::ops {

// enumerator, name in the text, operands, numbers
#define LMN_CHAIN_OPS(X)               \
  X(kAdd, "Add", 2, 0)                 \
  X(kSub, "Sub", 2, 0)                 \
  X(kMul, "Mul", 2, 0)                 \
  X(kDiv, "Div", 2, 0)                 \
  X(kMin, "Min", 2, 0)                 \
  X(kMax, "Max", 2, 0)                 \
  X(kPRelu, "PRelu", 2, 0)             \
  X(kAbs, "Abs", 1, 0)                 \
  X(kCeil, "Ceil", 1, 0)               \
  X(kClip, "Clip", 1, 2)               \
  X(kElu, "Elu", 1, 1)                 \
  X(kErf, "Erf", 1, 0)                 \
  X(kExp, "Exp", 1, 0)                 \
  X(kFloor, "Floor", 1, 0)             \
  X(kGelu, "Gelu", 1, 0)               \
  X(kGeluTanh, "GeluTanh", 1, 0)       \
  X(kHardSigmoid, "HardSigmoid", 1, 2) \
  X(kHardSwish, "HardSwish", 1, 0)     \
  X(kLeakyRelu, "LeakyRelu", 1, 1)     \
  X(kLog, "Log", 1, 0)                 \
  X(kMish, "Mish", 1, 0)               \
  X(kNeg, "Neg", 1, 0)                 \
  X(kReciprocal, "Reciprocal", 1, 0)   \
  X(kRelu, "Relu", 1, 0)               \
  X(kRound, "Round", 1, 0)             \
  X(kSigmoid, "Sigmoid", 1, 0)         \
  X(kSoftplus, "Softplus", 1, 0)       \
  X(kSoftsign, "Softsign", 1, 0)       \
  X(kSqrt, "Sqrt", 1, 0)               \
  X(kSwish, "Swish", 1, 1)             \
  X(kTanh, "Tanh", 1, 0)

enum class ChainOp : uint8_t {
#define LMN_CHAIN_ENUMERATOR(e, name, operands, numbers) e,
  LMN_CHAIN_OPS(LMN_CHAIN_ENUMERATOR)
#undef LMN_CHAIN_ENUMERATOR
};

struct ChainOperand {
  bool is_input = true;
  int32_t index = 0;  // of an input, or of an earlier step
};

struct ChainStep {
  ChainOp op = ChainOp::kAdd;
  ChainOperand operands[2];
  float numbers[2] = {0, 0};
};

inline constexpr int kMaxChainSteps = 32, kMaxChainInputs = 33;

}  // namespace lmn::ops
