// SPDX-License-Identifier: Apache-2.0
//
// lmnative.MaxPool, AveragePool and GlobalAveragePool: positions are shared out; for each, the
// channels under its taps are taken in order, all channels at once.
#include <limits>

#include "cpu/tensor/tensor_kernels.h"
#include "cpu/tensor/vector_math.h"
#include "cpu/tensor/windows.h"
#include "ops/infer/channels_last.h"
#include "ops/infer/pools.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::SpatialSizes;
using ops::Windows;
using ops::Worker;

// start(y) and take(x, y) of all channels, end(y, out) with the digits of the position.
template <typename Start, typename Take, typename End>
void pool_positions(const Windows& w, int64_t batch, int64_t channels, const float* x, float* y,
                    const Worker& worker, const Start& start, const Take& take, const End& end) {
  const int64_t positions = w.outputs(), taps = w.taps(), inputs = w.inputs();
  const auto last = static_cast<size_t>(w.rank - 1);
  const auto [first, past] = ops::share_of(batch * positions, worker);
  for (int64_t at = first; at < past; ++at) {
    SpatialSizes out{};
    unravel(at % positions, w.out, w.rank, &out);
    const float* const image = x + at / positions * inputs * channels;
    float* const to = y + at * channels;
    start(to);
    SpatialSizes tap{};
    for (int64_t t = 0; t < taps; ++t, advance(w.kernel, w.rank, &tap)) {
      const int64_t row = row_offset(w, out, tap);
      const int64_t column =
          out[last] * w.stride[last] - w.pad_begin[last] + tap[last] * w.dilation[last];
      if (row >= 0 && column >= 0 && column < w.in[last])
        take(image + (row + column) * channels, to);
    }
    end(to, out);
  }
}

struct ChannelPool {
  Windows w;
  int64_t batch, channels;
};
Status read_channel_pool(const Binding& b, ChannelPool* pool) {
  const Shape& x = b.node.shape(0);
  pool->batch = x[0];
  pool->channels = x.last();
  return read_pool(ops::ChannelsFirstNode(b.node).node(), &pool->w);
}

void add_channels(const float* x, float* y, int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] += x[i];
}
void divide_channels(float* y, int64_t count, float by) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] /= by;
}

}  // namespace

Status bind_ChannelsLastMaxPool(const Binding& b) {
  ChannelPool p;
  LMN_RETURN_IF_ERROR(read_channel_pool(b, &p));
  b.kernel.splits = true;
  b.kernel.set([p](const Operands& io, const Worker& worker) {
    const int64_t channels = p.channels;
    pool_positions(
        p.w, p.batch, channels, io.input<float>(0), io.output<float>(0), worker,
        [=](float* y) { std::fill_n(y, channels, -std::numeric_limits<float>::infinity()); },
        [=](const float* x, float* y) {
          LMN_VECTOR_LOOP
          for (int64_t i = 0; i < channels; ++i)  // or a NaN
            y[i] =
                vector_math::select(static_cast<bool>((x[i] > y[i]) | (x[i] != x[i])), x[i], y[i]);
        },
        [](float*, const SpatialSizes&) {});
  });
  return {};
}

Status bind_ChannelsLastAveragePool(const Binding& b) {
  ChannelPool p;
  LMN_RETURN_IF_ERROR(read_channel_pool(b, &p));
  const TapCounter counter{p.w, b.node.integer("count_include_pad", 0) != 0};
  b.kernel.splits = true;
  b.kernel.set([p, counter](const Operands& io, const Worker& worker) {
    const int64_t channels = p.channels;
    pool_positions(
        p.w, p.batch, channels, io.input<float>(0), io.output<float>(0), worker,
        [=](float* y) { std::fill_n(y, channels, 0.0f); },
        [=](const float* x, float* y) { add_channels(x, y, channels); },
        [&](float* y, const SpatialSizes& out) {
          const auto last = static_cast<size_t>(p.w.rank - 1);
          const int64_t taps = counter.of_row(out) * counter.along(last, out[last]);
          divide_channels(y, channels, static_cast<float>(taps));
        });
  });
  return {};
}

// Channels are shared out: each is summed in the order of positions.
Status bind_ChannelsLastGlobalAveragePool(const Binding& b) {
  const Shape& shape = b.node.shape(0);
  const int64_t batch = shape[0], channels = shape.last();
  int64_t positions = 1;
  for (int i = 1; i + 1 < shape.rank; ++i) positions *= shape[i];
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(channels, worker);
    for (int64_t image = 0; image < batch && begin < end; ++image) {
      float* const y = io.output<float>(0) + image * channels + begin;
      std::fill_n(y, end - begin, 0.0f);
      for (int64_t i = 0; i < positions; ++i) {
        add_channels(io.input<float>(0) + (image * positions + i) * channels + begin, y,
                     end - begin);
      }
      divide_channels(y, end - begin, static_cast<float>(positions));
    }
  });
  return {};
}

}  // namespace lmn::cpu
