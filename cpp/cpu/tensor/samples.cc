// SPDX-License-Identifier: Apache-2.0
//
// Kernels of GridSample and AffineGrid.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/tensor/product.h"
#include "cpu/tensor/windows.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Worker;

enum class Interpolation : uint8_t { kNearest, kLinear, kCubic };
enum class Border : uint8_t { kZeros, kClamp, kReflect };

struct Grid {
  int rank = 0;
  int64_t batch = 0, channels = 0;
  SpatialSizes in{}, out{};
  Interpolation mode = Interpolation::kLinear;
  Border border = Border::kZeros;
  bool align_corners = false;

  int64_t product(const SpatialSizes& sizes) const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[static_cast<size_t>(d)];
    return n;
  }
};

// Into [low, high] by reflection at both.
double reflect(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  const double away = x < low ? low - x : x > high ? x - high : -1;
  if (away < 0) return x;
  const double turns = std::floor(away / range), rest = away - turns * range;
  const bool even = std::fmod(turns, 2.0) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

// Inputs along one dimension and their weights: index -1 is a zero.
struct Taps {
  int count = 0;
  std::array<int64_t, 4> index{};
  std::array<double, 4> weight{};
};

Taps make_taps(const Grid& g, size_t d, double normalized) {
  const double size = static_cast<double>(g.in[d]);
  const double low = g.align_corners ? 0 : -0.5, high = g.align_corners ? size - 1 : size - 0.5;
  double x =
      g.align_corners ? (normalized + 1) / 2 * (size - 1) : ((normalized + 1) * size - 1) / 2;
  if (g.mode == Interpolation::kNearest) x = std::nearbyint(x);
  if (std::isnan(x)) x = -10;
  // The taps of a cubic are clamped one by one, and not where it is centred.
  if (g.border == Border::kClamp && g.mode != Interpolation::kCubic && (x < low || x > high))
    x = std::clamp(x, 0.0, size - 1);
  if (g.border == Border::kReflect && (x < low || x > high))
    x = std::isinf(x) ? low : reflect(x, low, high);
  x = std::clamp(x, -10.0, size + 10);  // zeros beyond; keeps the cast in range
  Taps taps;
  const double floor = std::floor(x), part = x - floor;
  int64_t first = static_cast<int64_t>(floor);
  switch (g.mode) {
    case Interpolation::kNearest:
      taps.count = 1;
      taps.weight[0] = 1;
      break;
    case Interpolation::kLinear:
      taps.count = 2;
      taps.weight = {1 - part, part, 0, 0};
      break;
    case Interpolation::kCubic: {
      constexpr double a = -0.75;
      const auto near = [](double t) { return ((a + 2) * t - (a + 3)) * t * t + 1; };
      const auto far = [](double t) { return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a; };
      taps.count = 4;
      taps.weight = {far(part + 1), near(part), near(1 - part), far(2 - part)};
      --first;
      break;
    }
  }
  for (int t = 0; t < taps.count; ++t) {
    int64_t& index = taps.index[static_cast<size_t>(t)];
    index = first + t;
    if (index >= 0 && index < g.in[d]) continue;
    if (g.border == Border::kZeros) {
      index = -1;
    } else if (g.border == Border::kClamp) {
      index = std::clamp<int64_t>(index, 0, g.in[d] - 1);
    } else {
      const auto at = static_cast<int64_t>(reflect(static_cast<double>(index), low, high));
      index = std::clamp<int64_t>(at, 0, g.in[d] - 1);
    }
  }
  return taps;
}

template <typename T>
T to_element(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (!(value > static_cast<double>(std::numeric_limits<T>::min())))
      return std::numeric_limits<T>::min();
    if (value >= static_cast<double>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return T(static_cast<float>(value));
  }
}

// The combinations of taps of one position, with offsets into a channel.
struct Corners {
  int count = 0;
  std::array<int64_t, 64> offset{};
  std::array<double, 64> weight{};
};

Corners make_corners(const Grid& g, const std::array<Taps, 3>& taps) {
  Corners corners;
  int combinations = 1;
  for (int d = 0; d < g.rank; ++d) combinations *= taps[static_cast<size_t>(d)].count;
  for (int c = 0; c < combinations; ++c) {
    int rest = c, divisor = combinations;
    int64_t offset = 0;
    double weight = 1;
    for (int d = 0; d < g.rank && offset >= 0; ++d) {
      const auto i = static_cast<size_t>(d);
      divisor /= taps[i].count;
      const auto t = static_cast<size_t>(rest / divisor);
      rest %= divisor;
      offset = taps[i].index[t] < 0 ? -1 : offset * g.in[i] + taps[i].index[t];
      weight *= taps[i].weight[t];
    }
    if (offset < 0) continue;
    corners.offset[static_cast<size_t>(corners.count)] = offset;
    corners.weight[static_cast<size_t>(corners.count++)] = weight;
  }
  return corners;
}

// The number of a float tensor at `index`, whatever its type.
using ReadFloat = double (*)(const std::byte* data, int64_t index);
template <typename T>
double read_as(const std::byte* data, int64_t index) {
  if constexpr (std::is_same_v<T, double>) {
    return reinterpret_cast<const double*>(data)[index];
  } else {
    return static_cast<double>(static_cast<float>(reinterpret_cast<const T*>(data)[index]));
  }
}

template <typename T, bool kMoves>
void bind_grid(const Binding& b, const Grid& g, ReadFloat read) {
  b.kernel.splits = !std::is_same_v<T, std::string>;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const int64_t inputs = g.product(g.in), outputs = g.product(g.out);
    const std::byte* const grid = io.input<std::byte>(1);
    const auto [begin, end] = ops::share_of(g.batch * outputs, worker);
    for (int64_t at = begin; at < end; ++at) {
      std::array<Taps, 3> taps;
      for (int d = 0; d < g.rank; ++d)  // coordinates are listed from the last dimension on
        taps[static_cast<size_t>(d)] =
            make_taps(g, static_cast<size_t>(d), read(grid, at * g.rank + g.rank - 1 - d));
      const Corners corners = make_corners(g, taps);
      for (int64_t c = 0; c < g.channels; ++c) {
        const int64_t plane = at / outputs * g.channels + c;
        const T* const x = io.input<T>(0) + plane * inputs;
        T& y = io.output<T>(0)[plane * outputs + at % outputs];
        if constexpr (kMoves) {
          y = corners.count > 0 ? x[corners.offset[0]] : T{};
        } else {
          double sum = 0;
          for (size_t i = 0; i < static_cast<size_t>(corners.count); ++i)
            sum += corners.weight[i] * static_cast<double>(x[corners.offset[i]]);
          y = to_element<T>(sum);
        }
      }
    }
  });
}

}  // namespace

Status bind_GridSample(const Binding& b) {
  const Shape &x = b.node.shape(0), &out = b.outputs[0].shape;
  Grid g;
  g.rank = x.rank - 2;
  g.batch = out[0];
  g.channels = x[1];
  for (int d = 0; d < g.rank; ++d) {
    g.in[static_cast<size_t>(d)] = x[d + 2];
    g.out[static_cast<size_t>(d)] = out[d + 2];
  }
  const std::string_view mode = b.node.text("mode", "linear");
  const std::string_view border = b.node.text("padding_mode", "zeros");
  g.mode = mode == "nearest"                      ? Interpolation::kNearest
           : mode == "cubic" || mode == "bicubic" ? Interpolation::kCubic
                                                  : Interpolation::kLinear;
  g.border = border == "border"       ? Border::kClamp
             : border == "reflection" ? Border::kReflect
                                      : Border::kZeros;
  g.align_corners = b.node.integer("align_corners", 0) != 0;
  ReadFloat read = nullptr;
  LMN_RETURN_IF_ERROR(with_float(b.node, b.node.dtype(1), [&](auto tag) -> Status {
    read = read_as<typename decltype(tag)::type>;
    return {};
  }));
  const DType dtype = b.node.dtype(0);
  if (g.mode == Interpolation::kNearest) {
    if (dtype == DType::kString) {
      bind_grid<std::string, true>(b, g, read);
      return {};
    }
    return with_size(b.node, dtype, [&](auto tag) -> Status {
      bind_grid<typename decltype(tag)::type, true>(b, g, read);
      return {};
    });
  }
  return with_number(b.node, dtype == DType::kBool ? DType::kU8 : dtype, [&](auto tag) -> Status {
    bind_grid<typename decltype(tag)::type, false>(b, g, read);
    return {};
  });
}

Status bind_AffineGrid(const Binding& b) {
  const Shape out = b.outputs[0].shape;
  const int n = out.rank - 2;
  const bool align_corners = b.node.integer("align_corners", 0) != 0;
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      SpatialSizes sizes{};
      int64_t positions = 1;
      for (int d = 0; d < n; ++d) {
        sizes[static_cast<size_t>(d)] = out[d + 1];
        positions *= out[d + 1];
      }
      const auto [begin, end] = ops::share_of(out[0] * positions, worker);
      for (int64_t at = begin; at < end; ++at) {
        SpatialSizes digits{};
        unravel(at % positions, sizes, n, &digits);
        const T* const theta = io.input<T>(0) + at / positions * n * (n + 1);
        for (int row = 0; row < n; ++row) {
          S sum{};
          for (int column = 0; column < n; ++column) {  // x, y, z: from the last dimension on
            const auto d = static_cast<size_t>(n - 1 - column);
            const S size = static_cast<S>(sizes[d]), index = static_cast<S>(digits[d]);
            S where = (2 * index + 1) / size - 1;
            if (align_corners) where = sizes[d] == 1 ? S(-1) : 2 * index / (size - 1) - 1;
            sum += static_cast<S>(theta[row * (n + 1) + column]) * where;
          }
          sum += static_cast<S>(theta[row * (n + 1) + n]);
          io.output<T>(0)[at * n + row] = static_cast<T>(sum);
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
