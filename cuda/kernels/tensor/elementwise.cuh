// SPDX-License-Identifier: Apache-2.0
//
// Steps over elements, in one loop: a thread computes kElementsOfThread elements of the output,
// each step for all of them before the next, so that a step's decoding is paid once. What is
// between steps lies in shared memory, a column for each thread, which no other touches.
#pragma once

#include "cuda/kernels/tensor/element_op.h"
#include "cuda/kernels/tensor/values.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kStepThreads = 128, kElementsOfThread = 4;
inline constexpr int kStepRank = 8;

enum class Layout : uint8_t { kScalar, kDense, kStrided };

struct StepsParams {
  const void* inputs[kMostInputs];
  void* output;
  uint64_t* failure;
  uint64_t refusal;  // the text of a division by zero
  uint32_t count;
  int32_t step_count, rank;
  uint32_t sizes[kStepRank];
  uint32_t strides[kMostInputs][kStepRank];
  Layout layouts[kMostInputs];
  DType types[kMostInputs];
  DType output_type;
  ElementStep steps[kMostSteps];
};

LMN_DEVICE uint32_t input_offset(const StepsParams& p, int input, uint32_t i) {
  if (p.layouts[input] == Layout::kDense) return i;
  if (p.layouts[input] == Layout::kScalar) return 0;
  uint32_t offset = 0;
  for (int d = p.rank - 1; d > 0; --d) {
    const uint32_t rest = i / p.sizes[d];
    offset += (i - rest * p.sizes[d]) * p.strides[input][d];
    i = rest;
  }
  return offset + i * p.strides[input][0];
}

// x of every element; out of range it is 1, for divisions.
template <typename C>
LMN_DEVICE void read_operand(const StepsParams& p, int operand, const C* buffers, uint32_t first,
                             C (&x)[kElementsOfThread]) {
  for (int e = 0; e < kElementsOfThread; ++e) {
    const uint32_t i = first + static_cast<uint32_t>(e * kStepThreads);
    if (operand < 0) {
      x[e] = buffers[(~operand * kElementsOfThread + e) * kStepThreads + simt::thread_index()];
    } else {
      x[e] = i < p.count ? load<C>(p.inputs[operand], p.types[operand], input_offset(p, operand, i))
                         : C(1);
    }
  }
}

#define LMN_EACH(expression)                       \
  for (int e = 0; e < kElementsOfThread; ++e) {    \
    const C x = xs[e];                             \
    [[maybe_unused]] const C y = ys[e], z = zs[e]; \
    r[e] = static_cast<C>(expression);             \
  }                                                \
  return

// Those that exist for any type.
template <typename C>
LMN_DEVICE void common_step(ElementOp op, const C (&xs)[kElementsOfThread],
                            const C (&ys)[kElementsOfThread], const C (&zs)[kElementsOfThread],
                            C (&r)[kElementsOfThread]) {
  switch (op) {
    case ElementOp::kMin:  // a NaN stays one
      LMN_EACH(x < y || x != x ? x : y);
    case ElementOp::kMax:
      LMN_EACH(x > y || x != x ? x : y);
    case ElementOp::kRelu:
      LMN_EACH(x < 0 ? C(0) : x);
    case ElementOp::kSign:
      LMN_EACH(x != x ? x : C((x > 0 ? 1 : 0) - (x < 0 ? 1 : 0)));
    case ElementOp::kEqual:
      LMN_EACH(x == y);
    case ElementOp::kLess:
      LMN_EACH(x < y);
    case ElementOp::kLessOrEqual:
      LMN_EACH(x <= y);
    case ElementOp::kGreater:
      LMN_EACH(x > y);
    case ElementOp::kGreaterOrEqual:
      LMN_EACH(x >= y);
    case ElementOp::kAnd:
      LMN_EACH(x != 0 && y != 0);
    case ElementOp::kOr:
      LMN_EACH(x != 0 || y != 0);
    case ElementOp::kXor:
      LMN_EACH((x != 0) != (y != 0));
    case ElementOp::kNot:
      LMN_EACH(x == 0);
    case ElementOp::kWhere:
      LMN_EACH(x != 0 ? y : z);
    default:
      LMN_EACH(x);
  }
}

LMN_DEVICE float remainder_of(float x, float y, bool truncates) {
  const float rest = fmodf(x, y);
  if (truncates) return rest;
  if (rest == 0) return copysignf(rest, y);
  return (rest < 0) != (y < 0) ? rest + y : rest;
}

LMN_DEVICE void run_step(const StepsParams&, const ElementStep& step,
                         const float (&xs)[kElementsOfThread], const float (&ys)[kElementsOfThread],
                         const float (&zs)[kElementsOfThread], float (&r)[kElementsOfThread]) {
  using C = float;
  const float alpha = step.numbers[0], beta = step.numbers[1];
  switch (step.op) {
    case ElementOp::kAdd:
      LMN_EACH(x + y);
    case ElementOp::kSub:
      LMN_EACH(x - y);
    case ElementOp::kMul:
      LMN_EACH(x * y);
    case ElementOp::kDiv:
      LMN_EACH(x / y);
    case ElementOp::kPRelu:
      LMN_EACH(x < 0 ? x * y : x);
    case ElementOp::kAbs:
      LMN_EACH(fabsf(x));
    case ElementOp::kCeil:
      LMN_EACH(ceilf(x));
    case ElementOp::kClip:
      LMN_EACH(beta < (alpha > x ? alpha : x) ? beta : (alpha > x ? alpha : x));
    case ElementOp::kElu:
      LMN_EACH(x > 0 ? x : alpha * expm1f(x));
    case ElementOp::kErf:
      LMN_EACH(erff(x));
    case ElementOp::kExp:
      LMN_EACH(expf(x));
    case ElementOp::kFloor:
      LMN_EACH(floorf(x));
    case ElementOp::kGelu:
      LMN_EACH(functions::gelu(x));
    case ElementOp::kGeluTanh:
      LMN_EACH(functions::gelu_tanh(x));
    case ElementOp::kHardSigmoid:
      LMN_EACH(functions::clamped_line(x, alpha, beta));
    case ElementOp::kHardSwish:
      LMN_EACH(x * functions::clamped_line(x, 1.0f / 6.0f, 0.5f));
    case ElementOp::kLeakyRelu:
      LMN_EACH(x < 0 ? alpha * x : x);
    case ElementOp::kLog:
      LMN_EACH(logf(x));
    case ElementOp::kMish:
      LMN_EACH(x * tanhf(functions::softplus(x)));
    case ElementOp::kNeg:
      LMN_EACH(-x);
    case ElementOp::kReciprocal:
      LMN_EACH(1.0f / x);
    case ElementOp::kRound:
      LMN_EACH(simt::round_even(x));
    case ElementOp::kSigmoid:
      LMN_EACH(functions::sigmoid(x));
    case ElementOp::kSoftplus:
      LMN_EACH(functions::softplus(x));
    case ElementOp::kSoftsign:
      LMN_EACH(x / (1.0f + fabsf(x)));
    case ElementOp::kSqrt:
      LMN_EACH(simt::square_root(x));
    case ElementOp::kSwish:
      LMN_EACH(functions::swish(x, alpha));
    case ElementOp::kTanh:
      LMN_EACH(tanhf(x));
    case ElementOp::kSelu:
      LMN_EACH(beta * (x > 0 ? x : alpha * expm1f(x)));
    case ElementOp::kCelu:
      LMN_EACH(x > 0 ? x : alpha * expm1f(x / alpha));
    case ElementOp::kThresholdedRelu:
      LMN_EACH(x <= alpha ? 0.0f : x);
    case ElementOp::kShrink:
      LMN_EACH(x < -alpha ? x + beta : x > alpha ? x - beta : x != x ? x : 0.0f);
    case ElementOp::kSin:
      LMN_EACH(sinf(x));
    case ElementOp::kCos:
      LMN_EACH(cosf(x));
    case ElementOp::kPow:
      LMN_EACH(powf(x, y));
    case ElementOp::kMod:
      LMN_EACH(remainder_of(x, y, alpha != 0));
    case ElementOp::kDivideBy:
      LMN_EACH(x / alpha);
    case ElementOp::kIsNaN:
      LMN_EACH(x != x);
    case ElementOp::kIsInf:
      LMN_EACH((alpha != 0 && x == HUGE_VALF) || (beta != 0 && x == -HUGE_VALF));
    default:
      return common_step(step.op, xs, ys, zs, r);
  }
}

LMN_DEVICE int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }

// Quotient or remainder of integers; 0 of a division by 0, which is noted.
LMN_DEVICE int64_t divide(const StepsParams& p, int64_t x, int64_t y, bool remainder,
                          bool truncates) {
  if (y == 0) {
    note_failure(p.failure, p.refusal);
    return 0;
  }
  if (y == -1) return remainder ? 0 : wrap(0 - static_cast<uint64_t>(x));
  if (!remainder) return x / y;
  const int64_t rest = x % y;
  return truncates || rest == 0 || (rest < 0) == (y < 0) ? rest : rest + y;
}

LMN_DEVICE void run_step(const StepsParams& p, const ElementStep& step,
                         const int64_t (&xs)[kElementsOfThread],
                         const int64_t (&ys)[kElementsOfThread],
                         const int64_t (&zs)[kElementsOfThread], int64_t (&r)[kElementsOfThread]) {
  using C = int64_t;
  switch (step.op) {
    case ElementOp::kAdd:
      LMN_EACH(wrap(static_cast<uint64_t>(x) + static_cast<uint64_t>(y)));
    case ElementOp::kSub:
      LMN_EACH(wrap(static_cast<uint64_t>(x) - static_cast<uint64_t>(y)));
    case ElementOp::kMul:
      LMN_EACH(wrap(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)));
    case ElementOp::kDiv:
      LMN_EACH(divide(p, x, y, false, false));
    case ElementOp::kMod:
      LMN_EACH(divide(p, x, y, true, step.numbers[0] != 0));
    case ElementOp::kAbs:
      LMN_EACH(x < 0 ? wrap(0 - static_cast<uint64_t>(x)) : x);
    case ElementOp::kNeg:
      LMN_EACH(wrap(0 - static_cast<uint64_t>(x)));
    default:
      return common_step(step.op, xs, ys, zs, r);
  }
}
#undef LMN_EACH

template <typename C>
LMN_KERNEL(kStepThreads, 4)
void element_steps(StepsParams p) {
  simt::wait_for_previous();
  C* buffers = reinterpret_cast<C*>(simt::shared_memory());
  const uint32_t first =
      static_cast<uint32_t>(simt::block_x()) * (kStepThreads * kElementsOfThread) +
      static_cast<uint32_t>(simt::thread_index());
  for (int s = 0; s < p.step_count; ++s) {
    const ElementStep& step = p.steps[s];
    C x[kElementsOfThread], y[kElementsOfThread] = {}, z[kElementsOfThread] = {},
                            r[kElementsOfThread];
    read_operand(p, step.operands[0], buffers, first, x);
    if (step.operand_count > 1) read_operand(p, step.operands[1], buffers, first, y);
    if (step.operand_count > 2) read_operand(p, step.operands[2], buffers, first, z);
    run_step(p, step, x, y, z, r);
    for (int e = 0; e < kElementsOfThread; ++e) {
      const uint32_t i = first + static_cast<uint32_t>(e * kStepThreads);
      if (step.to >= 0) {
        buffers[(step.to * kElementsOfThread + e) * kStepThreads + simt::thread_index()] = r[e];
      } else if (i < p.count) {
        store(p.output, p.output_type, i, r[e]);
      }
    }
  }
}

}  // namespace lmn::cuda::tensor
