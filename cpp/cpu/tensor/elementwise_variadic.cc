// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def: several tensors to one (Min, Max, Sum, Mean), Clip, Where,
// Pow and Dropout.
#include <random>

#include "cpu/tensor/convert.h"
#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

struct Larger {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct Smaller {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Total {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

// Elements [at, at + count) of a broadcast operand are joined to those in `values`; of the first
// operand they are copied there.
template <typename T, typename F>
void join(const F& f, bool first, const BroadcastWalk<1>& walk, const T* x, int64_t at,
          int64_t count, Computed<T>* values) {
  const int64_t stride = walk.inner_stride(0);
  for_runs(walk, at, at + count, [&](int64_t to, const auto& offsets, int64_t n) {
    Computed<T>* out = values + (to - at);
    const T* from = x + offsets[0];
    Computed<T> converted[kIsHalf<T> ? kChunk : 1];
    const Computed<T>* in;
    if constexpr (kIsHalf<T>) {
      to_floats(from, converted, stride == 0 ? 1 : n);
      in = converted;
    } else {
      in = from;
    }
    if (first) {
      for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
    } else {
      combine_values(f, out, 1, in, stride, out, n);
    }
  });
}

// All operands joined by f, in their order; then divided by `divisor`.
template <typename T, typename F>
void bind_join(const Binding& b, F f, Computed<T> divisor) {
  const Shape out = b.outputs[0].shape;
  std::vector<BroadcastWalk<1>> walks;
  for (int i = 0; i < b.node.inputs(); ++i) walks.push_back(make_walk<1>(out, {&b.node.shape(i)}));
  const int64_t count = out.elements();
  b.kernel.splits = true;
  b.kernel.in_place = in_place_input(b);
  b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      Computed<T> values[kChunk];
      for (size_t i = 0; i < walks.size(); ++i)
        join<T>(f, i == 0, walks[i], io.input<T>(static_cast<int>(i)), at, n, values);
      if (divisor != Computed<T>(1)) {
        for (int64_t i = 0; i < n; ++i) values[i] = values[i] / divisor;
      }
      if constexpr (kIsHalf<T>) {
        from_floats(values, io.output<T>(0) + at, n);
      } else {
        std::copy_n(values, n, io.output<T>(0) + at);
      }
    }
  });
}

template <typename F>
Status bind_number_join(const Binding& b, F f) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_join<typename decltype(tag)::type>(b, f, 1);
    return {};
  });
}

template <typename T>
void choose_row(const uint8_t* condition, int64_t stride, const T* x, int64_t stride_x, const T* y,
                int64_t stride_y, T* out, int64_t count) {
  if (stride == 0) {
    const bool takes_x = *condition != 0;
    const T* from = takes_x ? x : y;
    const int64_t step = takes_x ? stride_x : stride_y;
    if (step == 0) {
      std::fill_n(out, count, *from);
    } else if (from != out) {
      std::copy_n(from, count, out);
    }
  } else if (stride_x == 1 && stride_y == 1) {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) {
      const T a = x[i], b = y[i];
      out[i] = condition[i] != 0 ? a : b;
    }
  } else if (stride_x == 1) {
    const T b = *y;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) {
      const T a = x[i];
      out[i] = condition[i] != 0 ? a : b;
    }
  } else if (stride_y == 1) {
    const T a = *x;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) {
      const T b = y[i];
      out[i] = condition[i] != 0 ? a : b;
    }
  } else {
    const T a = *x, b = *y;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? a : b;
  }
}

template <typename T>
void bind_choice(const Binding& b) {
  const auto walk =
      make_walk<3>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(1), &b.node.shape(2)});
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  if constexpr (!std::is_same_v<T, std::string>) b.kernel.in_place = in_place_input(b);
  b.kernel.set([walk, count](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    for_runs(walk, begin, end, [&](int64_t at, const auto& offsets, int64_t n) {
      choose_row(io.input<uint8_t>(0) + offsets[0], walk.inner_stride(0),
                 io.input<T>(1) + offsets[1], walk.inner_stride(1), io.input<T>(2) + offsets[2],
                 walk.inner_stride(2), io.output<T>(0) + at, n);
    });
  });
}

// x to the power of an integer, wrapping around; what 1 / x^n is cut to below 0.
template <typename T>
T integer_power(T x, int64_t n) {
  if (n < 0) {
    if (x == 1) return 1;
    return x == -1 ? static_cast<T>(n % 2 == 0 ? 1 : -1) : T(0);
  }
  uint64_t result = 1, base = static_cast<uint64_t>(static_cast<int64_t>(x));
  for (uint64_t left = static_cast<uint64_t>(n); left != 0; left >>= 1) {
    if ((left & 1u) != 0) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

struct FloatPower {
  float operator()(float x, float y) const { return std::pow(x, y); }
};

// Powers of f32 whose exponent is one number for a run: the frequent ones are products and roots.
void power_row(const float* x, int64_t stride_x, const float* y, int64_t stride_y, float* out,
               int64_t count) {
  const float exponent = *y;
  if (stride_y == 0 && stride_x == 1 && exponent == 2.0f) {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] * x[i];
  } else if (stride_y == 0 && stride_x == 1 && exponent == 3.0f) {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] * x[i] * x[i];
  } else if (stride_y == 0 && (exponent == 2.0f || exponent == 3.0f)) {
    const float square = *x * *x;
    std::fill_n(out, count, exponent == 2.0f ? square : square * *x);
  } else {
    combine_values(FloatPower{}, x, stride_x, y, stride_y, out, count);
  }
}

// The general case goes through double, or through int64 where both are integers.
template <typename T>
void bind_power(const Binding& b) {
  const auto walk = make_walk<2>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(1)});
  const int64_t count = b.outputs[0].shape.elements();
  const DType exponent_type = b.node.dtype(1);
  const auto to_double = decoder<double>(exponent_type);
  const auto to_integer = decoder<int64_t>(exponent_type);
  const int64_t bytes = info(exponent_type).block_bytes;
  const bool of_integers = std::is_integral_v<T> && to_integer != nullptr;
  b.kernel.splits = true;
  b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const int64_t stride_x = walk.inner_stride(0), stride_y = walk.inner_stride(1);
    for_runs(walk, begin, end, [&](int64_t at, const auto& offsets, int64_t run) {
      for (int64_t done = 0; done < run; done += kChunk) {
        const int64_t n = std::min(kChunk, run - done);
        const T* x = io.input<T>(0) + offsets[0] + done * stride_x;
        const std::byte* y = io.input<std::byte>(1) + (offsets[1] + done * stride_y) * bytes;
        T* out = io.output<T>(0) + at + done;
        if constexpr (std::is_integral_v<T>) {
          if (of_integers) {
            int64_t exponents[kChunk];
            to_integer(y, exponents, stride_y == 0 ? 1 : n);
            for (int64_t i = 0; i < n; ++i)
              out[i] = integer_power(x[i * stride_x], exponents[i * stride_y]);
            continue;
          }
        }
        double exponents[kChunk];
        to_double(y, exponents, stride_y == 0 ? 1 : n);
        for (int64_t i = 0; i < n; ++i) {
          const double power =
              std::pow(static_cast<double>(x[i * stride_x]), exponents[i * stride_y]);
          if constexpr (std::is_integral_v<T>) {
            out[i] = static_cast<T>(integer_of(power));
          } else if constexpr (kIsHalf<T>) {
            from_float(narrow_to_odd(power), out + i);
          } else {
            out[i] = static_cast<T>(power);
          }
        }
      }
    });
  });
}

}  // namespace

Status bind_Max(const Binding& b) { return bind_number_join(b, Larger{}); }
Status bind_Min(const Binding& b) { return bind_number_join(b, Smaller{}); }
Status bind_Sum(const Binding& b) {
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_join<typename decltype(tag)::type>(b, Total{}, 1);
    return {};
  });
}
Status bind_Mean(const Binding& b) {
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    bind_join<T>(b, Total{}, static_cast<Computed<T>>(b.node.inputs()));
    return {};
  });
}

Status bind_Clip(const Binding& b) {
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using C = Computed<T>;
    const int64_t count = b.outputs[0].shape.elements();
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    const bool has_low = b.node.has(1), has_high = b.node.has(2);
    b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      using Limits = std::numeric_limits<C>;
      constexpr bool kFloat = std::is_floating_point_v<C>;
      const C least = has_low  ? C(*io.input<T>(1))
                      : kFloat ? -Limits::infinity()
                               : Limits::lowest();
      const C most = has_high ? C(*io.input<T>(2)) : kFloat ? Limits::infinity() : Limits::max();
      map_row<T>(
          [least, most](C x) {
            const C above = least > x ? least : x;  // a NaN stays one
            return most < above ? most : above;
          },
          io.input<T>(0) + begin, io.output<T>(0) + begin, end - begin);
    });
    return {};
  });
}

Status bind_Where(const Binding& b) {
  if (b.outputs[0].dtype == DType::kString) {
    bind_choice<std::string>(b);
    return {};
  }
  return with_size(b.node, b.outputs[0].dtype, [&](auto tag) -> Status {
    bind_choice<typename decltype(tag)::type>(b);
    return {};
  });
}

Status bind_Pow(const Binding& b) {
  switch (b.node.dtype(0)) {
    case DType::kF32:
      if (b.node.dtype(1) != DType::kF32) break;
      {
        const auto walk = make_walk<2>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(1)});
        const int64_t count = b.outputs[0].shape.elements();
        b.kernel.splits = true;
        b.kernel.set([walk, count](const ops::Operands& io, const ops::Worker& worker) {
          const auto [begin, end] = ops::share_of(count, worker);
          for_runs(walk, begin, end, [&](int64_t at, const auto& offsets, int64_t n) {
            power_row(io.input<float>(0) + offsets[0], walk.inner_stride(0),
                      io.input<float>(1) + offsets[1], walk.inner_stride(1),
                      io.output<float>(0) + at, n);
          });
        });
      }
      return {};
    case DType::kI32:
      return bind_power<int32_t>(b), Status();
    case DType::kI64:
      return bind_power<int64_t>(b), Status();
    default:
      break;
  }
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    bind_power<typename decltype(tag)::type>(b);
    return {};
  });
}

// Without training the data as they are. With it, the elements that a draw of numpy's
// RandomState(seed).uniform() leaves, scaled: draws come one after the other, so one worker makes
// them. A node without a seed has seed 0: a plan gives the same result each time it runs.
Status bind_Dropout(const Binding& b) {
  const int64_t count = b.outputs[0].shape.elements();
  const auto seed = static_cast<uint32_t>(b.node.integer("seed", 0));
  const bool may_train = b.node.has(2), has_mask = b.node.outputs() > 1;
  const auto ratio_of = b.node.has(1) ? decoder<double>(b.node.dtype(1)) : nullptr;
  b.kernel.splits = !may_train;
  b.kernel.in_place = 0;
  const auto bind = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      double ratio = 0.5;
      if (ratio_of != nullptr) ratio_of(io.input<std::byte>(1), &ratio, 1);
      const T* x = io.input<T>(0);
      T* y = io.output<T>(0);
      uint8_t* mask = has_mask ? io.output<uint8_t>(1) : nullptr;
      if (!may_train || *io.input<uint8_t>(2) == 0 || ratio == 0) {
        if (y != nullptr && x != y) std::copy(x + begin, x + end, y + begin);
        if (mask != nullptr) std::fill(mask + begin, mask + end, uint8_t{1});
        return;
      }
      if (!(ratio > 0 && ratio < 1)) return io.fail("Dropout: the ratio is not within [0, 1)");
      std::mt19937 random(seed);
      const double scale = 1 / (1 - ratio);
      for (int64_t i = begin; i < end; ++i) {
        const double high = random() >> 5, low = random() >> 6;
        const bool keeps = (high * 67108864.0 + low) / 9007199254740992.0 >= ratio;
        if (mask != nullptr) mask[i] = keeps;
        if (y == nullptr) continue;
        y[i] = T(static_cast<Computed<T>>(keeps ? static_cast<double>(x[i]) * scale : 0));
      }
    });
    return {};
  };
  return with_float(b.node, b.node.dtype(0), bind);
}

}  // namespace lmn::cpu
