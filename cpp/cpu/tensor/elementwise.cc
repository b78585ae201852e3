// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def.
#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// y = f(a, b) over broadcast operands. Work is shared out in elements of the output.
template <typename T, typename F>
void bind_binary(const Binding& b, F f) {
  const auto walk = make_walk<2>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(1)});
  b.kernel.splits = true;
  for (int i : {1, 0}) {
    if (b.node.shape(i) == b.outputs[0].shape) b.kernel.in_place = i;
  }
  b.kernel.set([walk, f](const Operands& io, const Worker& worker) {
    const T *x = io.input<T>(0), *y = io.input<T>(1);
    T* out = io.output<T>(0);
    const int64_t inner = walk.inner();
    const auto [begin, end] = ops::share_of(walk.rows() * inner, worker);
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / inner, first = at % inner;
      const int64_t count = std::min(inner - first, end - at);
      const auto offset = walk.offsets(row);
      const int64_t sx = walk.inner_stride(0), sy = walk.inner_stride(1);
      const T *xs = x + offset[0] + first * sx, *ys = y + offset[1] + first * sy;
      T* to = out + at;
      if (sx == 1 && sy == 1) {
        for (int64_t i = 0; i < count; ++i) to[i] = f(xs[i], ys[i]);
      } else if (sx == 1) {
        for (int64_t i = 0; i < count; ++i) to[i] = f(xs[i], *ys);
      } else {
        for (int64_t i = 0; i < count; ++i) to[i] = f(xs[i * sx], ys[i * sy]);
      }
      at += count;
    }
  });
}

template <typename T, typename F>
void bind_unary(const Binding& b, F f) {
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  b.kernel.set([count, f](const Operands& io, const Worker& worker) {
    const T* x = io.input<T>(0);
    T* y = io.output<T>(0);
    const auto [begin, end] = ops::share_of(count, worker);
    for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
  });
}

}  // namespace

Status bind_Add(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_binary<T>(b, [](T x, T y) { return static_cast<T>(x + y); });
    return {};
  });
}
Status bind_Sub(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_binary<T>(b, [](T x, T y) { return static_cast<T>(x - y); });
    return {};
  });
}
Status bind_Mul(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_binary<T>(b, [](T x, T y) { return static_cast<T>(x * y); });
    return {};
  });
}
Status bind_Div(const Binding& b) {
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_binary<T>(b, [](T x, T y) { return static_cast<T>(x / y); });
    return {};
  });
}
Status bind_Relu(const Binding& b) {
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_unary<T>(b, [](T x) { return x < T(0) ? T(0) : x; });  // a NaN stays one
    return {};
  });
}

}  // namespace lmn::cpu
