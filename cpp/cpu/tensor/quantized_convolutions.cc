// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/quantized.def: ConvInteger and QLinearConv, products of the weights
// [outputs, channels x taps] and the image laid out as [positions, channels x taps], of which tiles
// are packed at a time. Padding is the zero point.
#include "cpu/tensor/integer_product.h"
#include "cpu/tensor/product.h"
#include "cpu/tensor/windows.h"
#include "ops/infer/convolutions.h"
#include "ops/infer/quantized.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

// Columns of the product: positions of the output, over the channels of one group.
struct WindowPacker {
  const Windows& w;
  const uint8_t* image;
  int64_t channels;
  int32_t flip, zero;
  int64_t* offsets;  // taps() for each column: where in a channel a tap reads, -1 in the padding

  void find_offsets(int64_t position, int64_t* to) const {
    SpatialSizes out{}, tap{};
    unravel(position, w.out, w.rank, &out);
    const int64_t taps = w.taps();
    for (int64_t t = 0; t < taps; ++t) {
      int64_t offset = 0;
      for (int d = 0; d < w.rank && offset >= 0; ++d) {
        const auto i = static_cast<size_t>(d);
        const int64_t at = out[i] * w.stride[i] - w.pad_begin[i] + tap[i] * w.dilation[i];
        offset = at < 0 || at >= w.in[i] ? -1 : offset * w.in[i] + at;
      }
      to[t] = offset;
      advance(w.kernel, w.rank, &tap);
    }
  }
  void operator()(int64_t first, int64_t count, int64_t pitch, int16_t* to) const {
    const int64_t taps = w.taps(), inputs = w.inputs();
    for (int64_t i = 0; i < count; ++i) find_offsets(first + i, offsets + i * taps);
    const int32_t less = flip + zero;
    for (int64_t channel = 0; channel < channels; ++channel) {
      const uint8_t* const plane = image + channel * inputs;
      for (int64_t i = 0; i < count; ++i) {
        int16_t* const line = to + i * pitch + channel * taps;
        const int64_t* const from = offsets + i * taps;
        for (int64_t t = 0; t < taps; ++t)
          line[t] = from[t] < 0 ? int16_t{0} : static_cast<int16_t>((plane[from[t]] ^ flip) - less);
      }
    }
  }
};

// finish(io, channel, at, count, sums) for `count` outputs of a channel from index `at` on.
template <typename Finish>
Status bind_convolution(const Binding& b, int w, int x_zero, int w_zero, Finish finish) {
  const ops::OperandView view(b.node, {0, w});
  ops::Convolution c;
  LMN_RETURN_IF_ERROR(ops::read_convolution(view.node(), &c));
  const int64_t rows = c.outputs / c.groups, channels = c.channels / c.groups;
  const int64_t inner = channels * c.windows.taps(), positions = c.windows.outputs();
  const int32_t x_flip = flip_of(b.node.dtype(0)), w_flip = flip_of(b.node.dtype(w));
  const bool has_x_zero = b.node.has(x_zero), has_w_zero = b.node.has(w_zero);
  const int64_t w_zero_stride = has_w_zero && b.node.shape(w_zero).elements() > 1 ? 1 : 0;
  const size_t product_bytes = integer_product_scratch_bytes(inner);
  b.kernel.splits = true;
  b.kernel.scratch_bytes =
      product_bytes + static_cast<size_t>(kIntegerTile * c.windows.taps()) * sizeof(int64_t);
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const int64_t images = c.batch * c.groups;
    const bool whole = images >= 4 * worker.parts;
    const auto [begin, end] = whole ? ops::share_of(images, worker) : ops::Share{0, images};
    const ProductShare share =
        whole ? ProductShare{0, rows, 0, positions} : share_product(rows, positions, worker);
    auto* const offsets = reinterpret_cast<int64_t*>(worker.scratch + product_bytes);
    const int32_t zero = zero_point(io, x_zero, has_x_zero, x_flip);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % c.groups * rows, image = i / c.groups;
      const uint8_t* zeros =
          has_w_zero ? io.input<uint8_t>(w_zero) + first * w_zero_stride : nullptr;
      const BytePacker pack_rows{
          io.input<uint8_t>(w) + first * inner, inner, 1, inner, w_flip, zeros, w_zero_stride};
      const WindowPacker pack_columns{
          c.windows, io.input<uint8_t>(0) + i * channels * c.windows.inputs(),
          channels,  x_flip,
          zero,      offsets};
      integer_product(share.row_begin, share.row_end, share.column_begin, share.column_end, inner,
                      worker.scratch, pack_rows, pack_columns,
                      [&](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
                        const int64_t channel = first + row;
                        finish(io, channel, (image * c.outputs + channel) * positions + column,
                               count, sums);
                      });
    }
  });
  return {};
}

}  // namespace

Status bind_ConvInteger(const Binding& b) {
  return bind_convolution(
      b, 1, 2, 3, [](const Operands& io, int64_t, int64_t at, int64_t count, const int32_t* sums) {
        std::copy_n(sums, count, io.output<int32_t>(0) + at);
      });
}

Status bind_QLinearConv(const Binding& b) {
  const bool has_bias = b.node.has(8);
  const int64_t scale_stride = b.node.shape(4).elements() > 1 ? 1 : 0;
  const int32_t flip = flip_of(b.outputs[0].dtype);
  return bind_convolution(
      b, 3, 2, 5,
      [=](const Operands& io, int64_t channel, int64_t at, int64_t count, const int32_t* sums) {
        const float factor =
            *io.input<float>(1) * io.input<float>(4)[channel * scale_stride] / *io.input<float>(6);
        const uint32_t bias = has_bias ? static_cast<uint32_t>(io.input<int32_t>(8)[channel]) : 0;
        const CodeRounding round(flip, zero_point(io, 7, true, flip));
        uint8_t* const out = io.output<uint8_t>(0) + at;
        for (int64_t i = 0; i < count; ++i) {
          const auto total = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + bias);
          out[i] = round(static_cast<float>(total) * factor);
        }
      });
}

}  // namespace lmn::cpu
