// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def: functions of one number.
#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

struct Negate {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(x));
    } else {
      return -x;
    }
  }
};
struct Magnitude {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) return std::abs(x);
    if constexpr (std::is_signed_v<T>) return x < 0 ? Negate{}(x) : x;
    return x;
  }
};
struct SignOf {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T sign = x > 0 ? T(1) : T(0);
      return x < 0 ? T(-1) : x != x ? x : sign;
    }
    return static_cast<T>((x > T(0) ? 1 : 0) - (x < T(0) ? 1 : 0));
  }
};

template <typename F>
Status bind_number_unary(const Binding& b, F f) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_unary<typename decltype(tag)::type>(b, f);
    return {};
  });
}

// Rounding to whole numbers without a call, so that loops become vectors.
float round_even(float x) { return vector_math::round_even(x); }
double round_even(double x) { return std::nearbyint(x); }
float round_down(float x) { return vector_math::round_down(x); }
double round_down(double x) { return std::floor(x); }
float round_up(float x) { return vector_math::round_up(x); }
double round_up(double x) { return std::ceil(x); }

}  // namespace

Status bind_Neg(const Binding& b) { return bind_number_unary(b, Negate{}); }
Status bind_Abs(const Binding& b) { return bind_number_unary(b, Magnitude{}); }
Status bind_Sign(const Binding& b) { return bind_number_unary(b, SignOf{}); }

#define LMN_FLOAT_UNARY(op, expression)                                           \
  Status bind_##op(const Binding& b) {                                            \
    return bind_float_unary(b, [](auto x) -> decltype(x) { return expression; }); \
  }
// Those that chains of elements have as well.
#define LMN_FLOAT_STEP(op, expression)                                            \
  Status bind_##op(const Binding& b) {                                            \
    if (bind_float_step(b, ops::ChainOp::k##op)) return {};                       \
    return bind_float_unary(b, [](auto x) -> decltype(x) { return expression; }); \
  }
LMN_FLOAT_STEP(Sqrt, std::sqrt(x))
LMN_FLOAT_STEP(Exp, math::exp(x))
LMN_FLOAT_STEP(Log, math::log(x))
LMN_FLOAT_STEP(Tanh, math::tanh(x))
LMN_FLOAT_STEP(Erf, math::erf(x))
LMN_FLOAT_STEP(Reciprocal, decltype(x)(1) / x)
#undef LMN_FLOAT_STEP
LMN_FLOAT_UNARY(Sin, std::sin(x))
LMN_FLOAT_UNARY(Cos, std::cos(x))
LMN_FLOAT_UNARY(Tan, std::tan(x))
LMN_FLOAT_UNARY(Asin, std::asin(x))
LMN_FLOAT_UNARY(Acos, std::acos(x))
LMN_FLOAT_UNARY(Atan, std::atan(x))
LMN_FLOAT_UNARY(Sinh, std::sinh(x))
LMN_FLOAT_UNARY(Cosh, std::cosh(x))
LMN_FLOAT_UNARY(Asinh, std::asinh(x))
LMN_FLOAT_UNARY(Acosh, std::acosh(x))
LMN_FLOAT_UNARY(Atanh, std::atanh(x))
LMN_FLOAT_UNARY(Floor, round_down(x))
LMN_FLOAT_UNARY(Ceil, round_up(x))
LMN_FLOAT_UNARY(Round, round_even(x))
#undef LMN_FLOAT_UNARY

}  // namespace lmn::cpu
