// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/signal.def: windows and filter banks, computed in double.
#include <cmath>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

constexpr double kPi = 3.14159265358979323846;

// a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) for i below `size`; n is that of a period, or, of a
// symmetric window, the last i.
Status bind_window(const Binding& b, double a0, double a1, double a2) {
  const int64_t size = b.outputs[0].shape[0];
  const bool periodic = b.node.integer("periodic", 1) != 0;
  const auto period = static_cast<double>(periodic ? size : size - 1);
  b.kernel.splits = true;
  return with_number(b.node, b.outputs[0].dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(size, worker);
      for (int64_t i = begin; i < end; ++i) {
        const double angle = period > 0 ? 2 * kPi * static_cast<double>(i) / period : kPi;
        const double value = a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle);
        io.output<T>(0)[i] = static_cast<T>(std::is_unsigned_v<T> ? std::max(value, 0.0) : value);
      }
    });
    return {};
  });
}

}  // namespace

Status bind_HannWindow(const Binding& b) { return bind_window(b, 0.5, 0.5, 0); }
Status bind_HammingWindow(const Binding& b) { return bind_window(b, 25.0 / 46.0, 21.0 / 46.0, 0); }
Status bind_BlackmanWindow(const Binding& b) { return bind_window(b, 0.42, 0.5, 0.08); }

// Column i is a triangle over the bins of a spectrum: from edge i up to edge i + 1 and down to edge
// i + 2, where edges lie evenly on the mel scale and are rounded down to bins.
Status bind_MelWeightMatrix(const Binding& b) {
  const int64_t bins = b.outputs[0].shape[0], bands = b.outputs[0].shape[1];
  const auto length = static_cast<double>(b.node.integers(1)[0]),
             rate = static_cast<double>(b.node.integers(2)[0]);
  const DType low_type = b.node.dtype(3), high_type = b.node.dtype(4);
  const auto read = [](const Operands& io, int i, DType dtype) -> double {
    switch (dtype) {
      case DType::kF64:
        return *io.input<double>(i);
      case DType::kF16:
        return *io.input<Half>(i);
      case DType::kBF16:
        return *io.input<BFloat>(i);
      default:
        return *io.input<float>(i);
    }
  };
  return with_number(b.node, b.outputs[0].dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker&) {
      const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
      const double low = mel(read(io, 3, low_type)), high = mel(read(io, 4, high_type));
      const double step = (high - low) / static_cast<double>(bands + 2);
      T* out = io.output<T>(0);
      std::fill_n(out, bins * bands, T(0));
      // -1: beyond the spectrum.
      const auto edge = [&](int64_t i) -> int64_t {
        const double at = low + step * static_cast<double>(i);
        const double bin = std::floor((length + 1) * 700 * (std::pow(10, at / 2595) - 1) / rate);
        return bin >= 0 && bin < static_cast<double>(bins) ? static_cast<int64_t>(bin) : -1;
      };
      for (int64_t i = 0; i < bands; ++i) {
        const int64_t left = edge(i), center = edge(i + 1), right = edge(i + 2);
        if (left < 0 || center < left || right < center) {
          io.fail("MelWeightMatrix: an edge is not between 0 and half the sample rate");
          return;
        }
        if (left == center) out[center * bands + i] = T(1);
        for (int64_t j = left; j <= center && left < center; ++j) {
          out[j * bands + i] =
              static_cast<T>(static_cast<float>(j - left) / static_cast<float>(center - left));
        }
        for (int64_t j = center; j < right; ++j) {
          out[j * bands + i] =
              static_cast<T>(static_cast<float>(right - j) / static_cast<float>(right - center));
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
