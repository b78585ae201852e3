// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def: arithmetic of two tensors. Integers wrap around. Division
// of integers by zero makes the run fail.
#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

// Unsigned arithmetic of at least 32 bits, in which wrapping is defined.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Plus {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(x) + static_cast<Wrapping<T>>(y));
    } else {
      return x + y;
    }
  }
};
struct Minus {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(x) - static_cast<Wrapping<T>>(y));
    } else {
      return x - y;
    }
  }
};
struct Times {
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(y));
    } else {
      return x * y;
    }
  }
};

template <typename T>
bool is_minus_one(T y) {
  if constexpr (std::is_signed_v<T>) return y == T(-1);
  return false;
}

struct Quotient {
  float operator()(float x, float y) const { return x / y; }
  double operator()(double x, double y) const { return x / y; }
};
template <typename T>
struct IntegerQuotient {
  T operator()(T x, T y) const {
    if (y == 0) return 0;
    if (is_minus_one(y)) return Minus{}(T(0), x);
    return static_cast<T>(x / y);
  }
  static bool refuses(T y) { return y == 0; }
  static const char* refusal() { return "Div: an integer is divided by zero"; }
};

// The remainder with the sign of y, or, as C's, with that of x.
struct Modulo {
  bool truncates;
  template <typename T>
  T operator()(T x, T y) const {
    const T rest = std::fmod(x, y);
    if (truncates) return rest;
    if (rest == 0) return std::copysign(rest, y);
    return (rest < 0) != (y < 0) ? rest + y : rest;
  }
};
template <typename T>
struct IntegerModulo {
  bool truncates;
  T operator()(T x, T y) const {
    if (y == 0 || is_minus_one(y)) return 0;
    const T rest = static_cast<T>(x % y);
    if (truncates || rest == 0 || (rest < 0) == (y < 0)) return rest;
    return static_cast<T>(rest + y);
  }
  static bool refuses(T y) { return y == 0; }
  static const char* refusal() { return "Mod: an integer is divided by zero"; }
};

template <typename F>
Status bind_arithmetic(const Binding& b, F f) {
  const auto bind = [&](auto tag) -> Status {
    bind_binary<typename decltype(tag)::type>(b, f);
    return {};
  };
  switch (b.node.dtype(0)) {  // signed and unsigned integers wrap alike
    case DType::kI8:
      return bind(TypeTag<uint8_t>{});
    case DType::kI16:
      return bind(TypeTag<uint16_t>{});
    case DType::kI32:
      return bind(TypeTag<uint32_t>{});
    case DType::kI64:
      return bind(TypeTag<uint64_t>{});
    default:
      return with_number(b.node, b.node.dtype(0), bind);
  }
}

}  // namespace

Status bind_Add(const Binding& b) { return bind_arithmetic(b, Plus{}); }
Status bind_Sub(const Binding& b) { return bind_arithmetic(b, Minus{}); }
Status bind_Mul(const Binding& b) { return bind_arithmetic(b, Times{}); }

Status bind_Div(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      bind_binary<T>(b, IntegerQuotient<T>{});
    } else {
      bind_binary<T>(b, Quotient{});
    }
    return {};
  });
}

Status bind_Mod(const Binding& b) {
  const bool truncates = b.node.integer("fmod", 0) != 0;
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      bind_binary<T>(b, IntegerModulo<T>{truncates});
    } else {
      bind_binary<T>(b, Modulo{truncates});
    }
    return {};
  });
}

}  // namespace lmn::cpu
