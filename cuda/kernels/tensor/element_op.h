// SPDX-License-Identifier: Apache-2.0
//
// What the element-wise kernel computes: steps over its inputs and over results of earlier steps,
// as in ops/elementwise_chain.h, whose operators come first. x, y, z are the operands.
#pragma once

#include <cstdint>

#include "ops/elementwise_chain.h"

namespace lmn::cuda::tensor {

enum class ElementOp : uint8_t {
#define LMN_CHAIN_ENUMERATOR(e, name, operands, numbers) e,
  LMN_CHAIN_OPS(LMN_CHAIN_ENUMERATOR)
#undef LMN_CHAIN_ENUMERATOR
      kIdentity,
  kSelu,             // alpha, gamma
  kCelu,             // alpha
  kThresholdedRelu,  // alpha
  kShrink,           // lambda, bias
  kSign,
  kSin,
  kCos,
  kPow,
  kMod,       // alpha not 0: the remainder has the sign of x
  kDivideBy,  // x / alpha
  kEqual,     // from here on the result is 0 or 1
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kAnd,
  kOr,
  kXor,
  kNot,
  kIsNaN,
  kIsInf,  // alpha: of positive ones, beta: of negative ones
  kWhere,  // x is not 0 ? y : z
};

// An operand: the number of an input, or ~ that of a buffer.
struct ElementStep {
  ElementOp op = ElementOp::kIdentity;
  int8_t operands[3] = {0, 0, 0};
  int8_t operand_count = 1;
  int8_t to = -1;  // a buffer; -1: the output
  float numbers[2] = {0, 0};
};

inline constexpr int kMostInputs = ops::kMaxChainInputs, kMostSteps = ops::kMaxChainSteps;

}  // namespace lmn::cuda::tensor
