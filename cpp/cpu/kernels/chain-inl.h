// SPDX-License-Identifier: Apache-2.0
//
// One step of a chain of element-wise operators over a block (ops/elementwise_chain.h). Every
// function is the one that its operator by itself computes, in the same order and without fused
// multiply-adds: the same bits, only more of them at a time.

namespace chain {

#include "cpu/tensor/vector_math-inl.h"

template <typename Function>
LMN_INLINE void unary(const ChainTask& t, const Function& f) {
  const float* a = t.a;
  float* y = t.y;
  if (t.a_stride == 0) {
    const float value = f(*a);
    for (int64_t i = 0; i < t.count; ++i) y[i] = value;
    return;
  }
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < t.count; ++i) y[i] = f(a[i]);
}

template <typename Function>
LMN_INLINE void binary(const ChainTask& t, const Function& f) {
  const float *a = t.a, *b = t.b;
  float* y = t.y;
  if (t.b_stride == 0) {
    const float value = *b;
    unary(t, [&](float x) { return f(x, value); });
  } else if (t.a_stride == 0) {
    const float value = *a;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < t.count; ++i) y[i] = f(value, b[i]);
  } else {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < t.count; ++i) y[i] = f(a[i], b[i]);
  }
}

void run_step(const ChainTask& t) {
  using Op = ops::ChainOp;
  const float alpha = t.numbers[0], beta = t.numbers[1];
  switch (t.op) {
    case Op::kAdd:
      return binary(t, [](float x, float y) { return x + y; });
    case Op::kSub:
      return binary(t, [](float x, float y) { return x - y; });
    case Op::kMul:
      return binary(t, [](float x, float y) { return x * y; });
    case Op::kDiv:
      return binary(t, [](float x, float y) { return x / y; });
    case Op::kMin:  // a NaN stays one
      return binary(t, [](float x, float y) { return x < y || x != x ? x : y; });
    case Op::kMax:
      return binary(t, [](float x, float y) { return x > y || x != x ? x : y; });
    case Op::kPRelu:
      return binary(t, [](float x, float slope) {
        const float scaled = x * slope;
        return x < 0.0f ? scaled : x;
      });
    case Op::kAbs:
      return unary(t, [](float x) { return absolute(x); });
    case Op::kCeil:
      return unary(t, [](float x) { return round_up(x); });
    case Op::kClip:
      return unary(t, [=](float x) { return clamp(x, alpha, beta); });
    case Op::kElu:
      return unary(t, [=](float x) {
        const float below = alpha * exp_minus_one(negative(x));
        return x > 0.0f ? x : below;
      });
    case Op::kErf:
      return unary(t, [](float x) { return erf(x); });
    case Op::kExp:
      return unary(t, [](float x) { return exp(x); });
    case Op::kFloor:
      return unary(t, [](float x) { return round_down(x); });
    case Op::kGelu:
      return unary(t, [](float x) { return gelu(x); });
    case Op::kGeluTanh:
      return unary(t, [](float x) { return gelu_tanh(x); });
    case Op::kHardSigmoid:
      return unary(t, [=](float x) { return clamped_line(x, alpha, beta); });
    case Op::kHardSwish:
      return unary(t, [](float x) { return x * clamped_line(x, 1.0f / 6.0f, 0.5f); });
    case Op::kLeakyRelu:
      return unary(t, [=](float x) {
        const float scaled = alpha * x;
        return x < 0.0f ? scaled : x;
      });
    case Op::kLog:
      return unary(t, [](float x) { return log(x); });
    case Op::kMish:
      return unary(t, [](float x) { return x * tanh(softplus(x)); });
    case Op::kNeg:
      return unary(t, [](float x) { return -x; });
    case Op::kReciprocal:
      return unary(t, [](float x) { return 1.0f / x; });
    case Op::kRelu:
      return unary(t, [](float x) { return positive(x); });
    case Op::kRound:
      return unary(t, [](float x) { return round_even(x); });
    case Op::kSigmoid:
      return unary(t, [](float x) { return sigmoid(x); });
    case Op::kSoftplus:
      return unary(t, [](float x) { return softplus(x); });
    case Op::kSoftsign:
      return unary(t, [](float x) { return x / (1.0f + absolute(x)); });
    case Op::kSqrt:
      return unary(t, [](float x) { return __builtin_sqrtf(x); });
    case Op::kSwish:
      return unary(t, [=](float x) { return swish(x, alpha); });
    case Op::kTanh:
      return unary(t, [](float x) { return tanh(x); });
  }
}

}  // namespace chain
