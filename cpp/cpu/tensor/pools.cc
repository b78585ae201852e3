// SPDX-License-Identifier: Apache-2.0
//
// Kernels of the poolings of tensor_ops/windows.def. Rows of outputs are shared out; taps are
// walked in order for a whole row at a time, so that the inner loop runs over outputs.
#include "ops/infer/pools.h"

#include <cmath>
#include <limits>

#include "cpu/tensor/product.h"
#include "cpu/tensor/windows.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

constexpr int64_t kRowTile = 1024;  // outputs whose accumulators are kept at a time

// For every run of outputs of a worker: begin(count); tap(x, stride, from, to, index) for every tap
// that reaches outputs [from, to), x + i * stride being what output i takes, and index the place of
// x in its channel; end(at, out, count), where `out` are the first output's digits.
template <typename T, typename Begin, typename Tap, typename End>
void pool_rows(const Windows& w, int64_t planes, const T* x, const Worker& worker,
               const Begin& begin_row, const Tap& take, const End& end_row) {
  const auto last = static_cast<size_t>(w.rank - 1);
  const int64_t width = w.out[last], stride = w.stride[last], taps = w.taps();
  const int64_t rows = width == 0 ? 0 : w.outputs() / width, inputs = w.inputs();
  const auto [begin, end] = ops::share_of(planes * rows, worker);
  for (int64_t unit = begin; unit < end; ++unit) {
    const T* const plane = x + unit / rows * inputs;
    SpatialSizes out{};
    unravel(unit % rows * width, w.out, w.rank, &out);
    for (int64_t column = 0; column < width; column += kRowTile) {
      const int64_t count = std::min(kRowTile, width - column);
      out[last] = column;
      begin_row(count);
      SpatialSizes tap{};
      for (int64_t t = 0; t < taps; ++t, advance(w.kernel, w.rank, &tap)) {
        const int64_t offset = row_offset(w, out, tap);
        if (offset < 0) continue;
        const int64_t first = column * stride - w.pad_begin[last] + tap[last] * w.dilation[last];
        const auto [from, to] = reach(first, stride, w.in[last], count);
        take(plane + offset + first, stride, from, to, offset + first);
      }
      end_row(unit * width + column, out, count);
    }
  }
}

template <typename T>
T lowest() {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) {
    return T(-std::numeric_limits<float>::infinity());
  } else if constexpr (std::is_floating_point_v<T>) {
    return -std::numeric_limits<T>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// f(TypeTag<T>) for the types of MaxPool.
template <typename F>
Status with_pooled(const ops::TensorNode& node, DType dtype, F&& f) {
  if (dtype == DType::kI8) return f(TypeTag<int8_t>{});
  if (dtype == DType::kU8) return f(TypeTag<uint8_t>{});
  return with_float(node, dtype, f);
}

template <typename S>
S power(S x, int64_t p) {
  return p == 1 ? x : p == 2 ? x * x : std::pow(x, static_cast<S>(p));
}
template <typename S>
S root(S x, int64_t p) {
  return p == 1 ? x : p == 2 ? std::sqrt(x) : std::pow(x, S(1) / static_cast<S>(p));
}

}  // namespace

Status bind_MaxPool(const Binding& b) {
  Windows w;
  LMN_RETURN_IF_ERROR(read_pool(b.node, &w));
  const Shape& out_shape = b.outputs[0].shape;
  const int64_t planes = out_shape[0] * out_shape[1];
  const bool column_major = b.node.integer("storage_order", 0) != 0;
  const bool wants_indices = b.node.outputs() > 1;
  return with_pooled(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = kRowTile * (sizeof(T) + sizeof(int64_t));
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      int64_t* const where = reinterpret_cast<int64_t*>(worker.scratch);
      T* const best = reinterpret_cast<T*>(where + kRowTile);
      T* const y = io.output<T>(0);
      int64_t* const indices = wants_indices ? io.output<int64_t>(1) : nullptr;
      const auto begin = [&](int64_t count) {
        std::fill_n(best, count, lowest<T>());
        std::fill_n(where, indices == nullptr ? 0 : count, int64_t{-1});
      };
      if (indices == nullptr) {
        pool_rows(
            w, planes, io.input<T>(0), worker, begin,
            [&](const T* x, int64_t stride, int64_t from, int64_t to, int64_t) {
              const auto larger = [](T v, T old) {
                return (v > old) | (v != v) ? v : old;
              };  // or a NaN
              if (stride == 1) {
                for (int64_t i = from; i < to; ++i) best[i] = larger(x[i], best[i]);
              } else {
                for (int64_t i = from; i < to; ++i) best[i] = larger(x[i * stride], best[i]);
              }
            },
            [&](int64_t at, const SpatialSizes&, int64_t count) {
              std::copy_n(best, count, y + at);
            });
        return;
      }
      const int64_t inputs = w.inputs(), outputs = w.outputs();
      pool_rows(
          w, planes, io.input<T>(0), worker, begin,
          [&](const T* x, int64_t stride, int64_t from, int64_t to, int64_t index) {
            for (int64_t i = from; i < to; ++i) {
              const T value = x[i * stride];
              if (where[i] >= 0 && !(value > best[i]) && (value == value || best[i] != best[i]))
                continue;
              best[i] = value;
              where[i] = index + i * stride;
            }
          },
          [&](int64_t at, const SpatialSizes&, int64_t count) {
            if (y != nullptr) std::copy_n(best, count, y + at);
            const int64_t plane = at / outputs * inputs;
            for (int64_t i = 0; i < count; ++i) {
              int64_t index = where[i];
              if (column_major && index >= 0) {
                SpatialSizes digits{};
                unravel(index, w.in, w.rank, &digits);
                index = 0;
                for (int d = w.rank - 1; d >= 0; --d)
                  index = index * w.in[static_cast<size_t>(d)] + digits[static_cast<size_t>(d)];
              }
              indices[at + i] = index < 0 ? index : plane + index;
            }
          });
    });
    return {};
  });
}

namespace {

// Averages, or (p above 0) roots of sums of powers.
Status bind_sums(const Binding& b, int64_t p) {
  Windows w;
  LMN_RETURN_IF_ERROR(read_pool(b.node, &w));
  const Shape& out_shape = b.outputs[0].shape;
  const int64_t planes = out_shape[0] * out_shape[1];
  const TapCounter counter{w, b.node.integer("count_include_pad", 0) != 0};
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = kRowTile * sizeof(Sum<T>);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      Sum<T>* const sums = reinterpret_cast<Sum<T>*>(worker.scratch);
      T* const y = io.output<T>(0);
      pool_rows(
          w, planes, io.input<T>(0), worker,
          [&](int64_t count) { std::fill_n(sums, count, Sum<T>{}); },
          [&](const T* x, int64_t stride, int64_t from, int64_t to, int64_t) {
            if (p == 0 && stride == 1) {
              for (int64_t i = from; i < to; ++i) sums[i] += static_cast<Sum<T>>(x[i]);
            } else if (p == 0) {
              for (int64_t i = from; i < to; ++i) sums[i] += static_cast<Sum<T>>(x[i * stride]);
            } else {
              for (int64_t i = from; i < to; ++i)
                sums[i] += power(std::abs(static_cast<Sum<T>>(x[i * stride])), p);
            }
          },
          [&](int64_t at, const SpatialSizes& out, int64_t count) {
            if (p > 0) {
              for (int64_t i = 0; i < count; ++i) y[at + i] = static_cast<T>(root(sums[i], p));
              return;
            }
            const int64_t outer = counter.of_row(out);
            const auto last = static_cast<size_t>(w.rank - 1);
            for (int64_t i = 0; i < count; ++i) {
              const auto n = static_cast<Sum<T>>(outer * counter.along(last, out[last] + i));
              y[at + i] = static_cast<T>(sums[i] / n);
            }
          });
    });
    return {};
  });
}

// y of a row of values: from kLanes running values, in a tree.
constexpr int64_t kLanes = 16;
template <typename T, typename S, typename Step, typename Join>
S reduce_row(const T* x, int64_t count, S start, const Step& step, const Join& join) {
  S lanes[kLanes];
  std::fill_n(lanes, kLanes, start);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = step(lanes[l], static_cast<S>(x[i + l]));
  }
  for (int64_t l = 0; i < count; ++i, ++l) lanes[l] = step(lanes[l], static_cast<S>(x[i]));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = join(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

template <typename F>  // f(TypeTag<T>, x, count) -> the output
Status bind_global(const Binding& b, const F& f) {
  const Shape& x = b.node.shape(0);
  const int64_t planes = x[0] * x[1];
  int64_t count = 1;
  for (int i = 2; i < x.rank; ++i) count *= x[i];
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(planes, worker);
      for (int64_t i = begin; i < end; ++i)
        io.output<T>(0)[i] = static_cast<T>(f(tag, io.input<T>(0) + i * count, count));
    });
    return {};
  });
}

}  // namespace

Status bind_AveragePool(const Binding& b) { return bind_sums(b, 0); }
Status bind_LpPool(const Binding& b) { return bind_sums(b, b.node.integer("p", 2)); }

Status bind_GlobalAveragePool(const Binding& b) {
  return bind_global(b, [](auto tag, const auto* x, int64_t count) {
    using S = Sum<typename decltype(tag)::type>;
    const auto add = [](S a, S v) { return a + v; };
    return reduce_row(x, count, S{}, add, add) / static_cast<S>(count);
  });
}

Status bind_GlobalMaxPool(const Binding& b) {
  return bind_global(b, [](auto tag, const auto* x, int64_t count) {
    using S = Sum<typename decltype(tag)::type>;
    const auto larger = [](S a, S v) { return (v > a) | (v != v) ? v : a; };
    return reduce_row(x, count, lowest<S>(), larger, larger);
  });
}

Status bind_GlobalLpPool(const Binding& b) {
  const int64_t p = b.node.integer("p", 2);
  return bind_global(b, [p](auto tag, const auto* x, int64_t count) {
    using S = Sum<typename decltype(tag)::type>;
    const auto step = [p](S a, S v) { return a + power(std::abs(v), p); };
    return root(reduce_row(x, count, S{}, step, [](S a, S v) { return a + v; }), p);
  });
}

}  // namespace lmn::cpu
