// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def: activation functions. A NaN stays one.
#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

float exp_minus_one(float x) { return vector_math::exp_minus_one(x); }
double exp_minus_one(double x) { return std::expm1(x); }

template <typename T>
T positive(T x) {
  return x < T(0) ? T(0) : x;
}
template <typename T>
T negative(T x) {
  return x > T(0) ? T(0) : x;
}

float softplus(float x) { return vector_math::softplus(x); }
double softplus(double x) { return positive(x) + std::log1p(std::exp(-std::abs(x))); }

template <typename T>
T swish(T x, T alpha) {
  return x / (T(1) + math::exp(-alpha * x));
}

template <typename T>
T clamped_line(T x, T alpha, T beta) {
  const T y = alpha * x + beta;
  const T low = T(0) > y ? T(0) : y;
  return T(1) < low ? T(1) : low;
}

}  // namespace

Status bind_Relu(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_unary<T>(b, [](Computed<T> x) { return positive(x); });
    return {};
  });
}

Status bind_LeakyRelu(const Binding& b) {
  return bind_float_unary(b, [alpha = b.node.number("alpha", 0.01f)](auto x) {
    using T = decltype(x);
    const T scaled = static_cast<T>(alpha) * x;
    return x < T(0) ? scaled : x;
  });
}
Status bind_Elu(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kElu, b.node.number("alpha", 1.0f))) return {};
  return bind_float_unary(b, [alpha = b.node.number("alpha", 1.0f)](auto x) {
    using T = decltype(x);
    const T below = static_cast<T>(alpha) * exp_minus_one(negative(x));
    return x > T(0) ? x : below;
  });
}
Status bind_Selu(const Binding& b) {
  const float alpha = b.node.number("alpha", 1.67326319217681884765625f);
  const float gamma = b.node.number("gamma", 1.05070102214813232421875f);
  return bind_float_unary(b, [alpha, gamma](auto x) {
    using T = decltype(x);
    const T below = static_cast<T>(alpha) * exp_minus_one(negative(x));
    return static_cast<T>(gamma) * (x > T(0) ? x : below);
  });
}
Status bind_Celu(const Binding& b) {
  return bind_float_unary(b, [alpha = b.node.number("alpha", 1.0f)](auto x) {
    using T = decltype(x);
    const T a = static_cast<T>(alpha);
    return positive(x) + negative(a * (math::exp(x / a) - T(1)));
  });
}
Status bind_ThresholdedRelu(const Binding& b) {
  return bind_float_unary(b, [alpha = b.node.number("alpha", 1.0f)](auto x) {
    using T = decltype(x);
    return x <= static_cast<T>(alpha) ? T(0) : x;
  });
}
Status bind_Softplus(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kSoftplus)) return {};
  return bind_float_unary(b, [](auto x) { return softplus(x); });
}
Status bind_Softsign(const Binding& b) {
  return bind_float_unary(b, [](auto x) { return x / (decltype(x)(1) + std::abs(x)); });
}
Status bind_Sigmoid(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kSigmoid)) return {};
  return bind_float_unary(b, [](auto x) { return math::sigmoid(x); });
}
Status bind_HardSigmoid(const Binding& b) {
  const float alpha = b.node.number("alpha", 0.2f), beta = b.node.number("beta", 0.5f);
  return bind_float_unary(b, [alpha, beta](auto x) {
    using T = decltype(x);
    return clamped_line(x, static_cast<T>(alpha), static_cast<T>(beta));
  });
}
Status bind_HardSwish(const Binding& b) {
  return bind_float_unary(b, [](auto x) {
    using T = decltype(x);
    return x * clamped_line(x, T(1) / T(6), T(0.5));
  });
}
Status bind_Mish(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kMish)) return {};
  return bind_float_unary(b, [](auto x) { return x * math::tanh(softplus(x)); });
}
Status bind_Swish(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kSwish, b.node.number("alpha", 1.0f))) return {};
  return bind_float_unary(b, [alpha = b.node.number("alpha", 1.0f)](auto x) {
    return swish(x, static_cast<decltype(x)>(alpha));
  });
}

Status bind_Gelu(const Binding& b) {
  const bool by_tanh = b.node.text("approximate", "none") == "tanh";
  if (bind_float_step(b, by_tanh ? ops::ChainOp::kGeluTanh : ops::ChainOp::kGelu)) return {};
  if (by_tanh) return bind_float_unary(b, [](auto x) { return math::gelu_tanh(x); });
  return bind_float_unary(b, [](auto x) { return math::gelu(x); });
}
Status bind_MsGelu(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kGelu)) return {};
  return bind_float_unary(b, [](auto x) { return math::gelu(x); });
}
Status bind_QuickGelu(const Binding& b) {
  if (bind_float_step(b, ops::ChainOp::kSwish, b.node.number("alpha", 1.702f))) return {};
  return bind_float_unary(b, [alpha = b.node.number("alpha", 1.702f)](auto x) {
    return swish(x, static_cast<decltype(x)>(alpha));
  });
}

namespace {
template <typename F>
Status bind_float_binary(const Binding& b, F f) {
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_binary<typename decltype(tag)::type>(b, f);
    return {};
  });
}
}  // namespace

Status bind_FastGelu(const Binding& b) {
  if (!b.node.has(1)) {
    return bind_float_unary(b, [](auto x) { return math::gelu_tanh(x); });
  }
  return bind_float_binary(b, [](auto x, auto bias) { return math::gelu_tanh(x + bias); });
}
Status bind_BiasGelu(const Binding& b) {
  return bind_float_binary(b, [](auto x, auto bias) { return math::gelu(x + bias); });
}
Status bind_SwiGLU(const Binding& b) {
  return bind_float_binary(b, [alpha = b.node.number("alpha", 1.0f)](auto x, auto y) {
    return swish(x, static_cast<decltype(x)>(alpha)) * y;
  });
}

Status bind_PRelu(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using C = Computed<T>;
    bind_binary<T>(b, [](C x, C slope) -> C {
      if constexpr (std::is_signed_v<C> && std::is_integral_v<C>) {
        using U = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;
        return x < 0 ? static_cast<C>(static_cast<U>(x) * static_cast<U>(slope)) : x;
      } else if constexpr (std::is_integral_v<C>) {
        return x;
      } else {
        const C scaled = x * slope;
        return x < C(0) ? scaled : x;
      }
    });
    return {};
  });
}

// x + bias below -lambd, x - bias above lambd, 0 between them.
Status bind_Shrink(const Binding& b) {
  const float lambd = b.node.number("lambd", 0.5f), bias = b.node.number("bias", 0.0f);
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using C = Computed<T>;
    bind_unary<T>(b, [lambd, bias](C x) -> C {
      // Integers are computed in double, and what leaves their range is cut to it.
      using F = std::conditional_t<std::is_floating_point_v<C>, C, double>;
      const F value = static_cast<F>(x), shift = static_cast<F>(bias);
      const F limit = static_cast<F>(lambd);
      const F shrunk = value < -limit ? value + shift : value > limit ? value - shift : F(0);
      const F result = value != value ? value : shrunk;
      if constexpr (std::is_integral_v<C>) {
        constexpr F kLow = static_cast<F>(std::numeric_limits<C>::min());
        constexpr F kEnd = static_cast<F>(std::numeric_limits<C>::max() / 2 + 1) * 2;
        if (!(result > kLow)) return std::numeric_limits<C>::min();
        return result >= kEnd ? std::numeric_limits<C>::max() : static_cast<C>(result);
      } else {
        return result;
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
