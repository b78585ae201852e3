// SPDX-License-Identifier: Apache-2.0
//
// The activations of FloatActivation over vectors.

// 1 / (1 + e^-x)
LMN_INLINE F sigmoid(F x) { return div(set1(1.0f), add(set1(1.0f), exponential(sub(zero(), x)))); }

LMN_INLINE F absolute(F x) { return max(x, sub(zero(), x)); }

// As in tensor/vector_math.h: a polynomial near zero, 1 - 2 / (e^2|x| + 1) elsewhere.
LMN_INLINE F tanh(F x) {
  const F magnitude = absolute(x), z = mul(x, x);
  F p = set1(-5.7147618821e-03f);
  p = fma(p, z, set1(2.0648635584e-02f));
  p = fma(p, z, set1(-5.3742930407e-02f));
  p = fma(p, z, set1(1.3331484886e-01f));
  p = fma(p, z, set1(-3.3333283706e-01f));
  const F small = fma(x, mul(z, p), x);
  const F powers = add(exponential(add(magnitude, magnitude)), set1(1.0f));
  const F large = sub(set1(1.0f), div(set1(2.0f), powers));
  const F with_sign = select_less(x, zero(), sub(zero(), large), large);
  return select_less(magnitude, set1(0.625f), small, with_sign);
}

// x times the normal distribution function: max(x, 0) - |x| Q(|x|), where Q(a) = e^(-a^2 / 2) u
// P(u) with u = 1 / (1 + a / (2 sqrt 2)); P is a minimax fit of this project for a up to 17,
// relative error 2.9e-8. Relative error of the whole at most 1e-6 above x = -12.5 (4e-6 where fma
// rounds twice); nothing cancels where the result is tiny.
LMN_INLINE F gelu(F x) {
  const F a = min(set1(16.0f), absolute(x)), square = mul(a, a);
  const F rest = fma(a, a, sub(zero(), square));  // of the rounding of the square, where fma has it
  const F u = div(set1(1.0f), fma(a, set1(0.353553390593f), set1(1.0f)));
  F p = set1(3.4657295328e-03f);
  p = fma(p, u, set1(-4.7538548708e-02f));
  p = fma(p, u, set1(1.8251009285e-01f));
  p = fma(p, u, set1(-2.9415428638e-01f));
  p = fma(p, u, set1(1.7828746140e-01f));
  p = fma(p, u, set1(-3.2766785473e-02f));
  p = fma(p, u, set1(1.0747398436e-01f));
  p = fma(p, u, set1(1.2037143111e-01f));
  p = fma(p, u, set1(1.4131332934e-01f));
  p = fma(p, u, set1(1.4103758335e-01f));
  F power = exponential(mul(square, set1(-0.5f)));
  power = fma(mul(power, rest), set1(-0.5f), power);
  return fma(sub(zero(), a), mul(mul(u, p), power), max(zero(), x));
}

// x (1 + tanh z) / 2 = x / (1 + e^-2z), z = sqrt(2 / pi) (x + 0.044715 x^3)
LMN_INLINE F gelu_tanh(F x) {
  const F z = fma(mul(mul(x, x), x), set1(0.044715f), x);
  return div(x, add(set1(1.0f), exponential(mul(z, set1(-1.5957691216f)))));
}

template <FloatActivation kKind>
LMN_INLINE F activated(F x) {
  if constexpr (kKind == FloatActivation::kRelu) return max(zero(), x);  // a NaN stays one
  if constexpr (kKind == FloatActivation::kGelu) return gelu(x);
  if constexpr (kKind == FloatActivation::kGeluTanh) return gelu_tanh(x);
  if constexpr (kKind == FloatActivation::kSilu) return silu(x);
  if constexpr (kKind == FloatActivation::kTanh) return tanh(x);
  if constexpr (kKind == FloatActivation::kSigmoid) return sigmoid(x);
  return x;
}

template <FloatActivation kKind>
struct ActivationTag {
  static LMN_INLINE F apply(F x) { return activated<kKind>(x); }
};

// f(ActivationTag) for the activation.
template <typename Body>
LMN_INLINE void with_activation(FloatActivation activation, const Body& f) {
  switch (activation) {
    case FloatActivation::kNone:
      return f(ActivationTag<FloatActivation::kNone>{});
    case FloatActivation::kRelu:
      return f(ActivationTag<FloatActivation::kRelu>{});
    case FloatActivation::kGelu:
      return f(ActivationTag<FloatActivation::kGelu>{});
    case FloatActivation::kGeluTanh:
      return f(ActivationTag<FloatActivation::kGeluTanh>{});
    case FloatActivation::kSilu:
      return f(ActivationTag<FloatActivation::kSilu>{});
    case FloatActivation::kTanh:
      return f(ActivationTag<FloatActivation::kTanh>{});
    case FloatActivation::kSigmoid:
      return f(ActivationTag<FloatActivation::kSigmoid>{});
  }
}
