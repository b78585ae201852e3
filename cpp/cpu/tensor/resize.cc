// SPDX-License-Identifier: Apache-2.0
//
// Kernels of Resize and Upsample. For every dimension a table says which inputs an output takes and
// with which weights; an output is the sum over all combinations. Rows of outputs are shared out.
#include "ops/infer/resize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/tensor/product.h"

namespace lmn::cpu {
namespace {

using ops::Coordinates;
using ops::NearestMode;
using ops::Operands;
using ops::ResizeMode;
using ops::Resizing;
using ops::Worker;

struct Axis {
  int64_t in = 1, out = 1, taps = 1;
  std::vector<int64_t> index;    // [out, taps]
  std::vector<double> weight;    // [out, taps]
  std::vector<uint8_t> outside;  // [out]: takes the extrapolation value
  bool keeps = true;             // output i is input i
};
struct Tables {
  std::vector<Axis> axes;
  std::vector<float> last_weight;  // of the last axis, for sums in float
};

// The coordinate of output `at` among the inputs. Nearest neighbours are found in float, as the
// programs do that models are made with: where a coordinate is a half, its rounding decides.
template <typename S>
S original(const Resizing& r, size_t d, int64_t in_size, int64_t out_size, int64_t at) {
  const S in = static_cast<S>(in_size), x = static_cast<S>(at), scale = static_cast<S>(r.scale[d]);
  const S width = scale * in, half = S(0.5);
  switch (r.coordinates) {
    case Coordinates::kAlignCorners:
      return width == 1 ? S(0) : x * (in - 1) / (width - 1);
    case Coordinates::kAsymmetric:
      return x / scale;
    case Coordinates::kCrop: {
      const S begin = static_cast<S>(r.begin[d]), end = static_cast<S>(r.end[d]);
      if (width == 1) return (end - begin) * (in - 1) / 2 + begin * (in - 1);
      return x * (end - begin) * (in - 1) / (width - 1) + begin * (in - 1);
    }
    case Coordinates::kPytorchHalfPixel:
      return out_size > 1 ? (x + half) / scale - half : S(0);
    case Coordinates::kHalfPixelSymmetric:
      return in / 2 * (1 - static_cast<S>(out_size) / width) + (x + half) / scale - half;
    case Coordinates::kHalfPixel:
      break;
  }
  return (x + half) / scale - half;
}

double cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

Axis make_axis(const Resizing& r, size_t d, int64_t in, int64_t out) {
  Axis axis;
  axis.in = in;
  axis.out = out;
  const bool whole = r.begin[d] == 0 && r.end[d] == 1;
  axis.keeps = in == out && std::abs(r.scale[d] - 1) < 1e-9 && whole;
  if (axis.keeps || out == 0) return axis;
  // Taps begin `reach` to the left of the coordinate's floor.
  const double stretch = r.antialias ? std::min(r.scale[d], 1.0) : 1.0;
  int64_t reach = 0;
  if (r.mode != ResizeMode::kNearest) {
    const double width = r.mode == ResizeMode::kCubic ? 2 : 1;
    reach = -static_cast<int64_t>(std::floor(-width / stretch) + 1);
    axis.taps = 2 + 2 * reach;
  }
  const auto count = static_cast<size_t>(out * axis.taps);
  axis.index.resize(count);
  axis.weight.resize(count);
  axis.outside.assign(static_cast<size_t>(out), 0);
  for (int64_t o = 0; o < out; ++o) {
    double x = r.mode == ResizeMode::kNearest
                   ? static_cast<double>(original<float>(r, d, in, out, o))
                   : original<double>(r, d, in, out, o);
    const double last = static_cast<double>(in - 1);
    if (r.coordinates == Coordinates::kCrop && !(x >= 0 && x <= last))
      axis.outside[static_cast<size_t>(o)] = 1;
    // Far outside is like just outside: taps are clamped. It also keeps the cast below in range.
    const double far = static_cast<double>(in + axis.taps);
    x = std::isnan(x) ? 0 : std::clamp(x, -far, 2 * far);
    const double floor = std::floor(x);
    // A whole coordinate counts as 1 after the number before it.
    const double ratio = x == floor ? 1 : x - floor;
    const int64_t first = static_cast<int64_t>(floor) - (x == floor ? 1 : 0);
    int64_t* const index = axis.index.data() + o * axis.taps;
    double* const weight = axis.weight.data() + o * axis.taps;
    if (r.mode == ResizeMode::kNearest) {
      const bool up = x == floor || r.nearest == NearestMode::kCeil ||
                      (r.nearest == NearestMode::kPreferFloor && ratio > 0.5) ||
                      (r.nearest == NearestMode::kPreferCeil && ratio >= 0.5);
      index[0] = std::clamp<int64_t>(first + (up ? 1 : 0), 0, in - 1);
      weight[0] = 1;
      continue;
    }
    double sum = 0;
    for (int64_t t = 0; t < axis.taps; ++t) {
      const int64_t at = first - reach + t;
      const double distance = (static_cast<double>(t - reach) - ratio) * stretch;
      weight[t] = r.mode == ResizeMode::kCubic ? cubic(distance, static_cast<double>(r.cubic))
                                               : std::max(0.0, 1 - std::abs(distance));
      index[t] = std::clamp<int64_t>(at, 0, in - 1);
      if (r.exclude_outside && (at < 0 || at >= in)) weight[t] = 0;
      sum += weight[t];
    }
    if ((r.antialias || r.exclude_outside) && sum != 0) {
      for (int64_t t = 0; t < axis.taps; ++t) weight[t] /= sum;
    }
  }
  return axis;
}

// Dimensions that keep their size beside each other become one.
std::shared_ptr<const Tables> make_tables(const Resizing& r, const Shape& x) {
  auto tables = std::make_shared<Tables>();
  for (int i = 0; i < x.rank; ++i) {
    Axis axis = make_axis(r, static_cast<size_t>(i), x[i], r.out[i]);
    if (axis.keeps && !tables->axes.empty() && tables->axes.back().keeps) {
      tables->axes.back().in *= axis.in;
      tables->axes.back().out *= axis.out;
    } else {
      tables->axes.push_back(std::move(axis));
    }
  }
  if (tables->axes.empty()) tables->axes.emplace_back();
  for (double weight : tables->axes.back().weight)
    tables->last_weight.push_back(static_cast<float>(weight));
  return tables;
}

// Where the inputs of a row of outputs are: one row of inputs for each combination of taps of the
// dimensions before the last. f(offset, weight).
template <typename F>
bool for_input_rows(const Tables& tables, int64_t row, const F& f) {
  const size_t outer = tables.axes.size() - 1;
  std::array<int64_t, kMaxRank> at{}, tap{};
  bool outside = false;
  for (size_t d = outer; d-- > 0;) {
    const Axis& axis = tables.axes[d];
    at[d] = row % axis.out;
    row /= axis.out;
    outside = outside || (!axis.keeps && axis.outside[static_cast<size_t>(at[d])] != 0);
  }
  if (outside) return false;
  for (;;) {
    int64_t offset = 0;
    double weight = 1;
    for (size_t d = 0; d < outer; ++d) {
      const Axis& axis = tables.axes[d];
      const auto k = static_cast<size_t>(at[d] * axis.taps + tap[d]);
      offset = offset * axis.in + (axis.keeps ? at[d] : axis.index[k]);
      if (!axis.keeps) weight *= axis.weight[k];
    }
    f(offset * tables.axes.back().in, weight);
    size_t d = outer;
    while (d > 0 && ++tap[d - 1] == tables.axes[d - 1].taps) tap[--d] = 0;
    if (d == 0) return true;
  }
}

int64_t rows_of(const Tables& tables) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < tables.axes.size(); ++d) rows *= tables.axes[d].out;
  return rows;
}

// Moves elements of type T; those outside are `filler`.
template <typename T>
void bind_nearest(const Binding& b, std::shared_ptr<const Tables> tables, const T& filler) {
  b.kernel.splits = !std::is_same_v<T, std::string>;
  b.kernel.set([tables, filler](const Operands& io, const Worker& worker) {
    const Axis& last = tables->axes.back();
    const auto [begin, end] = ops::share_of(rows_of(*tables), worker);
    for (int64_t row = begin; row < end; ++row) {
      T* const to = io.output<T>(0) + row * last.out;
      const bool inside = for_input_rows(*tables, row, [&](int64_t offset, double) {
        const T* const from = io.input<T>(0) + offset;
        if (last.keeps) {
          std::copy_n(from, last.out, to);
          return;
        }
        for (int64_t i = 0; i < last.out; ++i) {
          const auto k = static_cast<size_t>(i);
          to[i] = last.outside[k] != 0 ? filler : from[last.index[k]];
        }
      });
      if (!inside) std::fill_n(to, last.out, filler);
    }
  });
}

// Floats of 32 bits and fewer are summed in float, the others in double.
template <typename T>
using Weighted = std::conditional_t<std::is_same_v<Sum<T>, float>, float, double>;

template <typename T>
T rounded(Weighted<T> value) {
  if constexpr (std::is_integral_v<T>) {
    const double whole = std::nearbyint(value);
    // The largest value of 64 bits is no double: compare with what it rounds to.
    if (!(whole > static_cast<double>(std::numeric_limits<T>::min())))
      return std::numeric_limits<T>::min();
    if (whole >= static_cast<double>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
    return static_cast<T>(whole);
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
void bind_weighted(const Binding& b, std::shared_ptr<const Tables> tables, float extrapolation) {
  using S = Weighted<T>;
  b.kernel.splits = true;
  b.kernel.scratch_bytes = static_cast<size_t>(tables->axes.back().out) * sizeof(S);
  b.kernel.set([tables, extrapolation](const Operands& io, const Worker& worker) {
    const Axis& last = tables->axes.back();
    const S* weights = nullptr;
    if constexpr (std::is_same_v<S, float>) {
      weights = tables->last_weight.data();
    } else {
      weights = last.weight.data();
    }
    S* const sums = reinterpret_cast<S*>(worker.scratch);
    const T filler = rounded<T>(static_cast<S>(extrapolation));
    const auto [begin, end] = ops::share_of(rows_of(*tables), worker);
    for (int64_t row = begin; row < end; ++row) {
      T* const to = io.output<T>(0) + row * last.out;
      std::fill_n(sums, last.out, S{});
      const bool inside = for_input_rows(*tables, row, [&](int64_t offset, double weight) {
        const T* const from = io.input<T>(0) + offset;
        const S factor = static_cast<S>(weight);
        if (last.keeps) {
          for (int64_t i = 0; i < last.out; ++i) sums[i] += factor * static_cast<S>(from[i]);
          return;
        }
        const int64_t* const index = last.index.data();
        if (last.taps == 2) {
          for (int64_t i = 0; i < last.out; ++i) {
            sums[i] += factor * (weights[2 * i] * static_cast<S>(from[index[2 * i]]) +
                                 weights[2 * i + 1] * static_cast<S>(from[index[2 * i + 1]]));
          }
          return;
        }
        for (int64_t i = 0; i < last.out; ++i) {
          S sum{};
          for (int64_t t = i * last.taps; t < (i + 1) * last.taps; ++t)
            sum += weights[t] * static_cast<S>(from[index[t]]);
          sums[i] += factor * sum;
        }
      });
      if (!inside) {
        std::fill_n(to, last.out, filler);
        continue;
      }
      for (int64_t i = 0; i < last.out; ++i) {
        const bool outside = !last.keeps && last.outside[static_cast<size_t>(i)] != 0;
        to[i] = outside ? filler : rounded<T>(sums[i]);
      }
    }
  });
}

Status bind_resizing(const Binding& b) {
  Resizing r;
  LMN_RETURN_IF_ERROR(read_resize(b.node, &r));
  if (!r.complete)
    return b.node.unsupported("roi, scales and sizes must be known before the kernel is chosen");
  const DType dtype = b.node.dtype(0);
  if (b.outputs[0].shape.elements() == 0) {
    b.kernel.set([](const Operands&, const Worker&) {});
    return {};
  }
  const auto tables = make_tables(r, b.node.shape(0));
  if (dtype == DType::kString) {
    bind_nearest<std::string>(b, tables, std::string());
    return {};
  }
  const bool is_bool = dtype == DType::kBool;
  if (r.mode == ResizeMode::kNearest) {
    uint64_t filler = is_bool ? (r.extrapolation != 0 ? 1 : 0) : 0;
    if (!is_bool) {
      LMN_RETURN_IF_ERROR(with_number(b.node, dtype, [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        const T value = rounded<T>(static_cast<Weighted<T>>(r.extrapolation));
        std::memcpy(&filler, &value, sizeof value);
        return {};
      }));
    }
    return with_size(b.node, dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T value;
      std::memcpy(&value, &filler, sizeof value);
      bind_nearest<T>(b, tables, value);
      return {};
    });
  }
  return with_number(b.node, is_bool ? DType::kU8 : dtype, [&](auto tag) -> Status {
    bind_weighted<typename decltype(tag)::type>(b, tables, r.extrapolation);
    return {};
  });
}

}  // namespace

Status bind_Resize(const Binding& b) { return bind_resizing(b); }
Status bind_Upsample(const Binding& b) { return bind_resizing(b); }

}  // namespace lmn::cpu
