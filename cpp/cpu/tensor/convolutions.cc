// SPDX-License-Identifier: Apache-2.0
//
// Kernels of Conv and FusedConv: a product of the weights [outputs, channels x taps] and the image
// laid out as [channels x taps, positions], which is never stored: its tiles are packed from the
// image. Groups of few output channels (depthwise) are summed row by row instead.
#include "ops/infer/convolutions.h"

#include <array>

#include "cpu/tensor/activate.h"
#include "cpu/tensor/product.h"
#include "cpu/tensor/windows.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

// pack_columns of blocked_product over the channels of one group of one image.
template <typename T>
struct ImagePacker {
  const Windows& w;
  const T* image;

  void operator()(int64_t position, int64_t count, int64_t k, int64_t depth, Sum<T>* to) const {
    struct Run {
      SpatialSizes out;
      int64_t at, n;
    };
    std::array<Run, kTileColumns> runs;
    size_t used = 0;
    for_rows(w.out, w.rank, position, count, [&](const SpatialSizes& out, int64_t at, int64_t n) {
      runs[used++] = {out, at, n};
    });
    const auto last = static_cast<size_t>(w.rank - 1);
    const int64_t taps = w.taps(), inputs = w.inputs(), stride = w.stride[last];
    SpatialSizes tap{};
    unravel(k % taps, w.kernel, w.rank, &tap);
    int64_t channel = k / taps, in_channel = k % taps;
    for (int64_t i = 0; i < depth; ++i) {
      const T* const plane = image + channel * inputs;
      Sum<T>* const row = to + i * kTileColumns;
      for (size_t r = 0; r < used; ++r) {
        const Run& run = runs[r];
        const int64_t offset = row_offset(w, run.out, tap);
        Sum<T>* const out = row + run.at;
        if (offset < 0) {
          std::fill_n(out, run.n, Sum<T>{});
          continue;
        }
        const int64_t first =
            run.out[last] * stride - w.pad_begin[last] + tap[last] * w.dilation[last];
        const auto [begin, end] = reach(first, stride, w.in[last], run.n);
        std::fill(out, out + begin, Sum<T>{});
        const T* const from = plane + offset + first;
        if (stride == 1) {
          for (int64_t j = begin; j < end; ++j) out[j] = static_cast<Sum<T>>(from[j]);
        } else {
          for (int64_t j = begin; j < end; ++j) out[j] = static_cast<Sum<T>>(from[j * stride]);
        }
        std::fill(out + end, out + run.n, Sum<T>{});
      }
      if (++in_channel == taps) {
        in_channel = 0;
        ++channel;
        tap = {};
      } else {
        advance(w.kernel, w.rank, &tap);
      }
    }
  }
};

// What becomes of a sum: bias, the tensor to be added, the activation.
template <typename T>
struct Finish {
  const T* bias;   // null: none
  const T* added;  // of the output's shape; null: none
  T* out;
  const ops::Activation& activation;

  // `count` outputs from index `at` on, of one channel.
  void operator()(int64_t channel, int64_t at, int64_t count, Sum<T>* sums) const {
    if (bias != nullptr) {
      const Sum<T> value = static_cast<Sum<T>>(bias[channel]);
      for (int64_t i = 0; i < count; ++i) sums[i] += value;
    }
    if (added != nullptr) {
      for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<Sum<T>>(added[at + i]);
    }
    activate(activation, sums, count);
    for (int64_t i = 0; i < count; ++i) out[at + i] = static_cast<T>(sums[i]);
  }
};

template <typename T>
void convolve_by_product(const ops::Convolution& c, const T* x, const T* weights,
                         const Finish<T>& finish, const Worker& worker) {
  const Windows& w = c.windows;
  const int64_t rows = c.outputs / c.groups, channels = c.channels / c.groups;
  const int64_t inner = channels * w.taps(), positions = w.outputs(), images = c.batch * c.groups;
  const bool whole = images >= 4 * worker.parts;
  const auto [begin, end] = whole ? ops::share_of(images, worker) : ops::Share{0, images};
  ProductShare share{0, rows, 0, positions};
  if (!whole && positions >= 2 * kTileColumns * worker.parts) {
    const auto [first, past] = ops::share_of((positions + kTileColumns - 1) / kTileColumns, worker);
    share.column_begin = first * kTileColumns;
    share.column_end = std::min(past * kTileColumns, positions);
  } else if (!whole) {
    share = share_product(rows, positions, worker);
  }
  bool pointwise = true;  // the image is the matrix of columns
  for (int d = 0; d < w.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    pointwise = pointwise && w.kernel[i] == 1 && w.stride[i] == 1 && w.in[i] == w.out[i] &&
                w.pad_begin[i] == 0;
  }
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i % c.groups * rows, image = i / c.groups;
    const T* const from = x + i * channels * w.inputs();
    const RowPacker<T> pack_rows{weights + first * inner, inner, 1};
    const auto store = [&](int64_t row, int64_t column, int64_t count, Sum<T>* sums) {
      const int64_t channel = first + row;
      finish(channel, (image * c.outputs + channel) * positions + column, count, sums);
    };
    if (pointwise) {
      blocked_product<Sum<T>>(share.row_begin, share.row_end, share.column_begin, share.column_end,
                              inner, worker.scratch, pack_rows, ColumnPacker<T>{from, 1, positions},
                              store);
    } else {
      blocked_product<Sum<T>>(share.row_begin, share.row_end, share.column_begin, share.column_end,
                              inner, worker.scratch, pack_rows, ImagePacker<T>{w, from}, store);
    }
  }
}

// Rows of outputs are shared out.
template <typename T>
void convolve_by_rows(const ops::Convolution& c, const T* x, const T* weights,
                      const Finish<T>& finish, const Worker& worker) {
  constexpr int64_t kWide = kTileRows * kTileColumns;
  const Windows& w = c.windows;
  const auto last = static_cast<size_t>(w.rank - 1);
  const int64_t width = w.out[last], stride = w.stride[last], taps = w.taps(), inputs = w.inputs();
  const int64_t rows = width == 0 ? 0 : w.outputs() / width, channels = c.channels / c.groups;
  Sum<T>* const sums = reinterpret_cast<Sum<T>*>(worker.scratch);
  const auto [begin, end] = ops::share_of(c.batch * c.outputs * rows, worker);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t plane = unit / rows, channel = plane % c.outputs;
    const int64_t group = channel / (c.outputs / c.groups);
    const T* const image = x + (plane / c.outputs * c.channels + group * channels) * inputs;
    const T* const kernel = weights + channel * channels * taps;
    SpatialSizes out{};
    unravel(unit % rows * width, w.out, w.rank, &out);
    for (int64_t column = 0; column < width; column += kWide) {
      const int64_t count = std::min(kWide, width - column);
      std::fill_n(sums, count, Sum<T>{});
      for (int64_t k = 0; k < channels; ++k) {
        SpatialSizes tap{};
        for (int64_t t = 0; t < taps; ++t, advance(w.kernel, w.rank, &tap)) {
          const int64_t offset = row_offset(w, out, tap);
          if (offset < 0) continue;
          const Sum<T> factor = static_cast<Sum<T>>(kernel[k * taps + t]);
          const int64_t first = column * stride - w.pad_begin[last] + tap[last] * w.dilation[last];
          const auto [from, to] = reach(first, stride, w.in[last], count);
          const T* const row = image + k * inputs + offset + first;
          if (stride == 1) {
            for (int64_t i = from; i < to; ++i) sums[i] += factor * static_cast<Sum<T>>(row[i]);
          } else {
            for (int64_t i = from; i < to; ++i)
              sums[i] += factor * static_cast<Sum<T>>(row[i * stride]);
          }
        }
      }
      finish(channel, unit * width + column, count, sums);
    }
  }
}

Status bind_convolution(const Binding& b, const ops::Activation& activation) {
  ops::Convolution c;
  LMN_RETURN_IF_ERROR(read_convolution(b.node, &c));
  const bool has_bias = b.node.has(2), adds = b.node.has(3);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = product_scratch_bytes<Sum<T>>();
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const Finish<T> finish{has_bias ? io.input<T>(2) : nullptr, adds ? io.input<T>(3) : nullptr,
                             io.output<T>(0), activation};
      if (c.outputs / c.groups < kMicroRows) {
        convolve_by_rows(c, io.input<T>(0), io.input<T>(1), finish, worker);
      } else {
        convolve_by_product(c, io.input<T>(0), io.input<T>(1), finish, worker);
      }
    });
    return {};
  });
}

}  // namespace

Status bind_Conv(const Binding& b) { return bind_convolution(b, {}); }

Status bind_FusedConv(const Binding& b) {
  ops::Activation activation;
  LMN_RETURN_IF_ERROR(read_activation(b.node, &activation));
  return bind_convolution(b, activation);
}

}  // namespace lmn::cpu
