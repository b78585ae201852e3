// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def: comparisons, logic and bits. A bool is a byte, 0 or 1.
#include "cpu/tensor/elementwise.h"
#include "cpu/tensor/small_float.h"

namespace lmn::cpu {
namespace {

template <typename F>
Status bind_comparison(const Binding& b, F f) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_binary<typename decltype(tag)::type, uint8_t>(b, f);
    return {};
  });
}

// Elements of equal bits, whichever type they have, but floats.
template <typename F>
Status bind_bits(const Binding& b, F f) {
  return with_size(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_binary<typename decltype(tag)::type>(b, f);
    return {};
  });
}

template <typename F>
Status bind_bools(const Binding& b, F f) {
  bind_binary<uint8_t>(b, f);
  return {};
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

Status bind_equal_strings(const Binding& b) {
  const auto walk = make_walk<2>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(1)});
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.set([walk, count](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const auto *xs = io.input<std::string>(0), *ys = io.input<std::string>(1);
    for_runs(walk, begin, end, [&](int64_t at, const auto& offsets, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        io.output<uint8_t>(0)[at + i] =
            xs[offsets[0] + i * walk.inner_stride(0)] == ys[offsets[1] + i * walk.inner_stride(1)];
      }
    });
  });
  return {};
}

// Of a type of one byte that is no number to a computer: a table of what each value gives.
Status bind_table(const Binding& b, const std::array<uint8_t, 256>& table) {
  bind_unary<uint8_t>(b, [table](uint8_t x) { return table[x]; });
  return {};
}

// y, a bool, from x of any float type, by is(float or double).
template <typename F>
Status bind_classification(const Binding& b, F is) {
  if (is_small_float(b.node.dtype(0))) {
    std::array<uint8_t, 256> table;
    for (size_t i = 0; i < table.size(); ++i)
      table[i] = is(decode_small(small_format(b.node.dtype(0)), static_cast<uint8_t>(i)));
    return bind_table(b, table);
  }
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const int64_t count = b.outputs[0].shape.elements();
    b.kernel.splits = true;
    b.kernel.set([count, is](const ops::Operands& io, const ops::Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      const T* x = io.input<T>(0);
      uint8_t* y = io.output<uint8_t>(0);
      for (int64_t i = begin; i < end; ++i) y[i] = is(static_cast<Computed<T>>(x[i]));
    });
    return {};
  });
}

// Shifts by a negative number, or by as many bits as there are, leave only what fills.
template <typename T>
struct Shift {
  bool left;
  T operator()(T x, T y) const {
    constexpr int kBits = 8 * sizeof(T);
    bool beyond = y >= T(kBits);
    if constexpr (std::is_signed_v<T>) beyond = beyond || y < 0;
    const int by = beyond ? kBits - 1 : static_cast<int>(y);
    if (left) return beyond ? T(0) : static_cast<T>(static_cast<uint64_t>(x) << by);
    const T shifted = static_cast<T>(x >> by);
    return beyond && std::is_unsigned_v<T> ? T(0) : shifted;
  }
};

}  // namespace

Status bind_Equal(const Binding& b) {
  if (b.node.dtype(0) == DType::kString) return bind_equal_strings(b);
  const auto equal = [](auto x, auto y) { return x == y; };
  if (is_float(b.node.dtype(0))) return bind_comparison(b, equal);
  return with_size(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_binary<typename decltype(tag)::type, uint8_t>(b, equal);
    return {};
  });
}
Status bind_Less(const Binding& b) {
  return bind_comparison(b, [](auto x, auto y) { return x < y; });
}
Status bind_LessOrEqual(const Binding& b) {
  return bind_comparison(b, [](auto x, auto y) { return x <= y; });
}
Status bind_Greater(const Binding& b) {
  return bind_comparison(b, [](auto x, auto y) { return x > y; });
}
Status bind_GreaterOrEqual(const Binding& b) {
  return bind_comparison(b, [](auto x, auto y) { return x >= y; });
}

Status bind_And(const Binding& b) {
  return bind_bools(b, [](uint8_t x, uint8_t y) { return static_cast<uint8_t>(x & y); });
}
Status bind_Or(const Binding& b) {
  return bind_bools(b, [](uint8_t x, uint8_t y) { return static_cast<uint8_t>(x | y); });
}
Status bind_Xor(const Binding& b) {
  return bind_bools(b, [](uint8_t x, uint8_t y) { return static_cast<uint8_t>(x ^ y); });
}
Status bind_Not(const Binding& b) {
  bind_unary<uint8_t>(b, [](uint8_t x) { return static_cast<uint8_t>(x ^ 1u); });
  return {};
}

Status bind_BitwiseAnd(const Binding& b) {
  return bind_bits(b, [](auto x, auto y) { return static_cast<decltype(x)>(x & y); });
}
Status bind_BitwiseOr(const Binding& b) {
  return bind_bits(b, [](auto x, auto y) { return static_cast<decltype(x)>(x | y); });
}
Status bind_BitwiseXor(const Binding& b) {
  return bind_bits(b, [](auto x, auto y) { return static_cast<decltype(x)>(x ^ y); });
}
Status bind_BitwiseNot(const Binding& b) {
  return with_size(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_unary<typename decltype(tag)::type>(b,
                                             [](auto x) { return static_cast<decltype(x)>(~x); });
    return {};
  });
}
Status bind_BitShift(const Binding& b) {
  const bool left = b.node.text("direction", "") == "LEFT";
  return with_integer(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_binary<T>(b, Shift<T>{left});
    return {};
  });
}

Status bind_IsNaN(const Binding& b) {
  return bind_classification(b, [](auto x) { return x != x; });
}
Status bind_IsInf(const Binding& b) {
  const bool negative = b.node.integer("detect_negative", 1) != 0;
  const bool positive = b.node.integer("detect_positive", 1) != 0;
  return bind_classification(b, [negative, positive](auto x) {
    return (positive && x == decltype(x)(HUGE_VAL)) || (negative && x == -decltype(x)(HUGE_VAL));
  });
}

}  // namespace lmn::cpu
