// SPDX-License-Identifier: Apache-2.0
//
// Kernels of DeformConv and CausalConvWithState.
#include <array>
#include <cmath>

#include "cpu/tensor/float_math.h"
#include "cpu/tensor/product.h"
#include "cpu/tensor/windows.h"
#include "ops/infer/convolutions.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

// The image where its windows' taps are moved by offsets, interpolated linearly, 0 outside.
template <typename T>
struct DeformedPacker {
  const Windows& w;
  const T* image;       // of the group's first channel
  const T* offsets;     // of the batch's image: [offset group, tap, dimension, positions]
  const T* mask;        // the same without dimensions, or null
  int64_t first;        // the group's first channel
  int64_t per_offsets;  // channels of an offset group

  void operator()(int64_t position, int64_t count, int64_t k, int64_t depth, Sum<T>* to) const {
    const int64_t taps = w.taps(), positions = w.outputs();
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t channel = (k + i) / taps, tap = (k + i) % taps;
      const int64_t at = (first + channel) / per_offsets * taps + tap;
      SpatialSizes digits{}, out{};
      unravel(tap, w.kernel, w.rank, &digits);
      unravel(position, w.out, w.rank, &out);
      for (int64_t c = 0; c < count; ++c, advance(w.out, w.rank, &out)) {
        std::array<Sum<T>, ops::kMaxSpatial> where{};
        for (int d = 0; d < w.rank; ++d) {
          const auto j = static_cast<size_t>(d);
          where[j] = static_cast<Sum<T>>(out[j] * w.stride[j] - w.pad_begin[j] +
                                         digits[j] * w.dilation[j]) +
                     static_cast<Sum<T>>(offsets[(at * w.rank + d) * positions + position + c]);
        }
        Sum<T> value = sample(image + channel * w.inputs(), where);
        if (mask != nullptr) value *= static_cast<Sum<T>>(mask[at * positions + position + c]);
        to[i * kTileColumns + c] = value;
      }
    }
  }

  Sum<T> sample(const T* plane, const std::array<Sum<T>, ops::kMaxSpatial>& where) const {
    std::array<int64_t, ops::kMaxSpatial> low{};
    std::array<Sum<T>, ops::kMaxSpatial> part{};
    for (int d = 0; d < w.rank; ++d) {
      const auto j = static_cast<size_t>(d);
      if (!(where[j] > Sum<T>(-1) && where[j] < static_cast<Sum<T>>(w.in[j]))) return 0;
      const Sum<T> floor = std::floor(where[j]);
      low[j] = static_cast<int64_t>(floor);
      part[j] = where[j] - floor;
    }
    Sum<T> sum{};
    for (int corner = 0; corner < 1 << w.rank; ++corner) {
      int64_t offset = 0;
      Sum<T> weight = 1;
      bool inside = true;
      for (int d = 0; d < w.rank && inside; ++d) {
        const auto j = static_cast<size_t>(d);
        const int up = corner >> (w.rank - 1 - d) & 1;
        const int64_t index = low[j] + up;
        inside = index >= 0 && index < w.in[j];
        offset = offset * w.in[j] + index;
        weight *= up != 0 ? part[j] : 1 - part[j];
      }
      if (inside) sum += weight * static_cast<Sum<T>>(plane[offset]);
    }
    return sum;
  }
};

}  // namespace

Status bind_DeformConv(const Binding& b) {
  ops::Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(b.node, &c));
  const int64_t offset_groups = b.node.integer("offset_group", 1);
  const bool has_bias = b.node.has(3), has_mask = b.node.has(4);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = product_scratch_bytes<Sum<T>>();
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const Windows& w = c.windows;
      const int64_t rows = c.outputs / c.groups, channels = c.channels / c.groups;
      const int64_t inner = channels * w.taps(), positions = w.outputs();
      const int64_t offsets = offset_groups * w.taps() * positions;
      const T* const bias = has_bias ? io.input<T>(3) : nullptr;
      const auto [begin, end] = ops::share_of(positions, worker);
      for (int64_t i = 0; i < c.batch * c.groups; ++i) {
        const int64_t image = i / c.groups, first = i % c.groups * rows;
        const DeformedPacker<T> pack_columns{w,
                                             io.input<T>(0) + i * channels * w.inputs(),
                                             io.input<T>(2) + image * offsets * w.rank,
                                             has_mask ? io.input<T>(4) + image * offsets : nullptr,
                                             i % c.groups * channels,
                                             c.channels / offset_groups};
        blocked_product<Sum<T>>(
            0, rows, begin, end, inner, worker.scratch,
            RowPacker<T>{io.input<T>(1) + first * inner, inner, 1}, pack_columns,
            [&](int64_t row, int64_t column, int64_t count, const Sum<T>* sums) {
              T* const to = io.output<T>(0) + (i * rows + row) * positions + column;
              const Sum<T> more =
                  bias == nullptr ? Sum<T>{} : static_cast<Sum<T>>(bias[first + row]);
              for (int64_t n = 0; n < count; ++n) to[n] = static_cast<T>(sums[n] + more);
            });
      }
    });
    return {};
  });
}

// Rows of one channel are shared out.
Status bind_CausalConvWithState(const Binding& b) {
  const Shape x = b.node.shape(0);
  const int64_t taps = b.node.shape(1)[2], length = x[2];
  const bool has_bias = b.node.has(2), has_past = b.node.has(3);
  const bool has_state = b.node.outputs() > 1;
  const bool silu = b.node.text("activation", "none") != "none";
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(x[0] * x[1], worker);
      for (int64_t row = begin; row < end; ++row) {
        const T* const in = io.input<T>(0) + row * length;
        const T* const w = io.input<T>(1) + row % x[1] * taps;
        const T* const past = has_past ? io.input<T>(3) + row * (taps - 1) : nullptr;
        T* const out = io.output<T>(0) + row * length;
        // Element `at` of past and input together, which begin taps - 1 before the input.
        const auto value = [&](int64_t at) {
          if (at >= taps - 1) return in[at - (taps - 1)];
          return past == nullptr ? static_cast<T>(0.0f) : past[at];
        };
        for (int64_t i = 0; i < length; ++i) {
          Sum<T> sum{};
          if (i >= taps - 1) {
            const T* const from = in + i - (taps - 1);
            for (int64_t t = 0; t < taps; ++t)
              sum += static_cast<Sum<T>>(w[t]) * static_cast<Sum<T>>(from[t]);
          } else {
            for (int64_t t = 0; t < taps; ++t)
              sum += static_cast<Sum<T>>(w[t]) * static_cast<Sum<T>>(value(i + t));
          }
          if (has_bias) sum += static_cast<Sum<T>>(io.input<T>(2)[row % x[1]]);
          if (silu) sum *= fast_sigmoid(sum);
          out[i] = static_cast<T>(sum);
        }
        T* const state = has_state ? io.output<T>(1) : nullptr;
        if (state == nullptr) continue;
        for (int64_t i = 0; i < taps - 1; ++i) state[row * (taps - 1) + i] = value(length + i);
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
