// SPDX-License-Identifier: Apache-2.0
//
// Applies a named activation (ops/infer/activation.h) to a run of float or double values.
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/tensor/float_math.h"
#include "ops/infer/activation.h"

namespace lmn::cpu {

template <typename S>
void activate(const ops::Activation& activation, S* x, int64_t count) {
  using Kind = ops::ActivationKind;
  const S alpha = static_cast<S>(activation.alpha), beta = static_cast<S>(activation.beta);
  const auto each = [x, count](auto f) {
    for (int64_t i = 0; i < count; ++i) x[i] = f(x[i]);
  };
  switch (activation.kind) {
    case Kind::kNone:
      return;
    case Kind::kRelu:
      return each([](S v) { return v < S(0) ? S(0) : v; });
    case Kind::kTanh:
      return each([](S v) { return fast_tanh(v); });
    case Kind::kSigmoid:
      return each([](S v) { return fast_sigmoid(v); });
    case Kind::kAffine:
      return each([=](S v) { return alpha * v + beta; });
    case Kind::kLeakyRelu:
      return each([=](S v) { return v < S(0) ? alpha * v : v; });
    case Kind::kThresholdedRelu:
      return each([=](S v) { return v >= alpha ? v : S(0); });
    case Kind::kScaledTanh:
      return each([=](S v) { return alpha * fast_tanh(beta * v); });
    case Kind::kHardSigmoid:
      return each([=](S v) {
        const S y = alpha * v + beta;
        return y < S(0) ? S(0) : y > S(1) ? S(1) : y;
      });
    case Kind::kElu:
      return each([=](S v) { return v < S(0) ? alpha * std::expm1(v) : v; });
    case Kind::kSoftsign:
      return each([](S v) { return v / (S(1) + std::abs(v)); });
    case Kind::kSoftplus:
      return each([](S v) { return (v > S(0) ? v : S(0)) + std::log1p(std::exp(-std::abs(v))); });
    case Kind::kClip:
      return each([=](S v) { return v < alpha ? alpha : v > beta ? beta : v; });
    case Kind::kSilu:
      return each([](S v) { return v * fast_sigmoid(v); });
    case Kind::kGelu:
      return each([](S v) { return v * S(0.5) * (S(1) + std::erf(v * S(0.70710678118654752))); });
  }
}

}  // namespace lmn::cpu
