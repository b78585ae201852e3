// SPDX-License-Identifier: Apache-2.0
//
// Loops of the elementwise family: one output element from the elements at its place, operands
// broadcast. An operator gives a function of values of Computed<T>: 16-bit floats are computed in
// float32, a chunk at a time, and rounded once. Work is shared out in elements of the output.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/dispatch.h"
#include "cpu/tensor/half_math.h"
#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <typename T>
using Computed = std::conditional_t<kIsHalf<T>, float, T>;

// Elements that are converted at a time; they stay in the first-level cache.
inline constexpr int64_t kChunk = 512;

// What functions call for whichever type they are given: the vector form of float, libm of double.
namespace math {
inline float exp(float x) { return vector_math::exp(x); }
inline double exp(double x) { return std::exp(x); }
inline float log(float x) { return vector_math::log(x); }
inline double log(double x) { return std::log(x); }
inline float tanh(float x) { return vector_math::tanh(x); }
inline double tanh(double x) { return std::tanh(x); }
inline float erf(float x) { return vector_math::erf(x); }
inline double erf(double x) { return std::erf(x); }
inline float sigmoid(float x) { return vector_math::sigmoid(x); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline float gelu(float x) { return vector_math::gelu(x); }
inline double gelu(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }
// The form with tanh, x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
template <typename T>
T gelu_tanh(T x) {
  return x * sigmoid(T(1.5957691216057308) * (x + T(0.044715) * (x * x * x)));
}
}  // namespace math

// Calls body(at, offsets, count) for the runs of elements [begin, end) of the output: `at` is the
// first output element, offsets those of the operands.
template <int kOperands, typename Body>
void for_runs(const BroadcastWalk<kOperands>& walk, int64_t begin, int64_t end, Body body) {
  const int64_t inner = walk.inner();
  for (int64_t at = begin; at < end;) {
    const int64_t first = at % inner, count = std::min(inner - first, end - at);
    auto offsets = walk.offsets(at / inner);
    for (int o = 0; o < kOperands; ++o)
      offsets[static_cast<size_t>(o)] += first * walk.inner_stride(o);
    body(at, offsets, count);
    at += count;
  }
}

template <typename T, typename F>
void map_row(const F& f, const T* x, T* y, int64_t count) {
  if constexpr (kIsHalf<T>) {
    float values[kChunk];
    for (int64_t at = 0; at < count; at += kChunk) {
      const int64_t n = std::min(kChunk, count - at);
      to_floats(x + at, values, n);
      LMN_VECTOR_LOOP
      for (int64_t i = 0; i < n; ++i) values[i] = f(values[i]);
      from_floats(values, y + at, n);
    }
  } else {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
  }
}

// y = op(x) of float32 by the instruction set's kernel, whose bits are those of vector_math.h;
// false: x is of another type.
inline bool bind_float_step(const Binding& b, ops::ChainOp op, float alpha = 0, float beta = 0) {
  if (b.node.dtype(0) != DType::kF32) return false;
  const int64_t count = b.outputs[0].shape.elements();
  const std::array<float, 2> numbers{alpha, beta};
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  b.kernel.set(
      [=, step = b.isa.floats.chain_step](const ops::Operands& io, const ops::Worker& worker) {
        const auto [begin, end] = ops::share_of(count, worker);
        step({op, numbers.data(), io.input<float>(0) + begin, nullptr, 1, 1,
              io.output<float>(0) + begin, end - begin});
      });
  return true;
}

// y = f(x) of elements of one type.
template <typename T, typename F>
void bind_unary(const Binding& b, F f) {
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  b.kernel.set([count, f](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    map_row<T>(f, io.input<T>(0) + begin, io.output<T>(0) + begin, end - begin);
  });
}

// The same for f32, f64, f16 and bf16, from a function over float and double.
template <typename F>
Status bind_float_unary(const Binding& b, F f) {
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_unary<typename decltype(tag)::type>(b, f);
    return {};
  });
}

// A row of out = f(x, y), of operands with strides of 1, or of 0 where one value repeats.
template <typename C, typename R, typename F>
void combine_values(const F& f, const C* x, int64_t stride_x, const C* y, int64_t stride_y, R* out,
                    int64_t count) {
  if (stride_x == 0) {
    const C value = *x;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = f(value, y[i]);
  } else if (stride_y == 0) {
    const C value = *y;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = f(x[i], value);
  } else {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = f(x[i], y[i]);
  }
}

template <typename T, typename R, typename F>
void combine_row(const F& f, const T* x, int64_t stride_x, const T* y, int64_t stride_y, R* out,
                 int64_t count) {
  if constexpr (kIsHalf<T>) {
    float xs[kChunk], ys[kChunk];
    for (int64_t at = 0; at < count; at += kChunk) {
      const int64_t n = std::min(kChunk, count - at);
      to_floats(x + at * stride_x, xs, stride_x == 0 ? 1 : n);
      to_floats(y + at * stride_y, ys, stride_y == 0 ? 1 : n);
      if constexpr (kIsHalf<R>) {
        float results[kChunk];
        combine_values(f, xs, stride_x, ys, stride_y, results, n);
        from_floats(results, out + at, n);
      } else {
        combine_values(f, xs, stride_x, ys, stride_y, out + at, n);
      }
    }
  } else {
    combine_values(f, x, stride_x, y, stride_y, out, count);
  }
}

// An input of output 0's type and shape, which it may overwrite; -1: none.
inline int in_place_input(const Binding& b) {
  for (int i = 0; i < b.node.inputs(); ++i) {
    if (b.node.has(i) && b.node.dtype(i) == b.outputs[0].dtype &&
        b.node.shape(i) == b.outputs[0].shape)
      return i;
  }
  return -1;
}

// out = f(x, y), broadcast; elements of the output are R. A function that has refuses(y) and
// refusal() makes the run fail where an element of y is refused.
template <typename T, typename R = T, typename F>
void bind_binary(const Binding& b, F f) {
  const auto walk = make_walk<2>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(1)});
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.in_place = in_place_input(b);
  b.kernel.set([walk, count, f](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const int64_t stride_x = walk.inner_stride(0), stride_y = walk.inner_stride(1);
    for_runs(walk, begin, end, [&](int64_t at, const auto& offsets, int64_t n) {
      const T *x = io.input<T>(0) + offsets[0], *y = io.input<T>(1) + offsets[1];
      if constexpr (requires { f.refuses(*y); }) {
        for (int64_t i = 0; i < (stride_y == 0 ? 1 : n); ++i) {
          if (f.refuses(y[i])) io.fail(f.refusal());
        }
      }
      combine_row<T>(f, x, stride_x, y, stride_y, io.output<R>(0) + at, n);
    });
  });
}

}  // namespace lmn::cpu
