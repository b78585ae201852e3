// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/reductions.def: normalisations. Statistics are computed in float (double of
// f64) in two passes, mean and then variance; results are rounded to their type once.
#include "cpu/tensor/elementwise.h"
#include "cpu/tensor/reduce.h"
#include "ops/infer/axes.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// f(TypeTag<C>) for what operands of several float types are computed in together.
template <typename F>
Status with_widest(const ops::TensorNode& node, F&& f) {
  DType widest = DType::kF32;
  for (int i = 0; i < node.inputs(); ++i) {
    if (node.has(i) && node.dtype(i) == DType::kF64) widest = DType::kF64;
  }
  return with_computed(node, widest, f);
}

template <typename C>
struct Moments {
  C mean, variance;
};
// Of a row; without a mean the variance is the mean of squares.
template <typename C>
Moments<C> moments(const Source<C>& x, int64_t first, int64_t count, bool centered) {
  const C n = static_cast<C>(count);
  if (!centered) return {0, reduce_row<SquareOp<C>>(x, first, count) / n};
  const C mean = reduce_row<SumOp<C>>(x, first, count) / n;
  Stripes<SquareOp<C>, C> squares;
  C distances[kFloatChunk];
  for_chunks(x, first, count, [&](const C* values, int64_t, int64_t length) {
    for (int64_t i = 0; i < length; ++i) distances[i] = values[i] - mean;
    squares.take(distances, length);
  });
  return {mean, squares.result() / n};
}

// y = (x - mean) * inverse * scale + bias of a chunk; strides are 0 or 1.
template <typename C>
void scale_chunk(const C* x, C mean, C inverse, const C* scale, int64_t scale_stride, const C* bias,
                 int64_t bias_stride, C* y, int64_t count) {
  if (scale_stride == 1 && bias_stride == 1) {
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
  } else if (scale_stride == 1) {
    const C b = *bias;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + b;
  } else {
    const C s = *scale;
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * inverse * s + bias[i * bias_stride];
  }
}

// Rows of float32 by the instruction set's kernels, where scale and bias are of a row and nobody
// asks for moments.
bool bind_float_rows(const Binding& b, int64_t rows, int64_t columns, bool centered) {
  const auto is_row = [&](int i) {
    return b.node.dtype(i) == DType::kF32 && b.node.shape(i).elements() == columns;
  };
  const bool has_bias = b.node.has(2);
  if (b.node.dtype(0) != DType::kF32 || b.outputs[0].dtype != DType::kF32 || !is_row(1) ||
      (has_bias && !is_row(2)) || b.node.outputs() > 1 || columns == 0)
    return false;
  const float epsilon = b.node.number("epsilon", 1e-5f);
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  b.kernel.cost = static_cast<double>(rows * columns) / 4;
  if (!centered) {
    b.kernel.set([=, rms_norm = b.isa.rms_norm](const Operands& io, const Worker& worker) {
      const ops::RmsNormArgs args{
          rows, io.input<float>(0), io.input<float>(1), io.output<float>(0), columns, epsilon};
      rms_norm(&args, worker);
    });
    return true;
  }
  b.kernel.set([=, layer_norm = b.isa.floats.layer_norm](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(rows, worker);
    layer_norm({io.input<float>(0) + begin * columns, io.input<float>(1),
                has_bias ? io.input<float>(2) : nullptr, epsilon,
                io.output<float>(0) + begin * columns, end - begin, columns});
  });
  return true;
}

// LayerNormalization, and RMSNormalization, which does not subtract the mean. Scale and bias
// broadcast to the input.
Status bind_row_norm(const Binding& b, bool centered) {
  const Shape& x_shape = b.node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -1), x_shape.rank, &axis));
  int64_t rows = 1, columns = 1;
  for (int i = 0; i < x_shape.rank; ++i) (i < axis ? rows : columns) *= x_shape[i];
  if (bind_float_rows(b, rows, columns, centered)) return {};
  const Shape scalar;
  const bool has_bias = b.node.has(2);
  const auto walk =
      make_walk<2>(x_shape, {&b.node.shape(1), has_bias ? &b.node.shape(2) : &scalar});
  const DType x_type = b.node.dtype(0), scale_type = b.node.dtype(1);
  const DType bias_type = has_bias ? b.node.dtype(2) : scale_type;
  const DType y_type = b.outputs[0].dtype;
  const DType moment_type = b.outputs.size() > 1 ? b.outputs[1].dtype : DType::kF32;
  const int outputs = b.node.outputs();
  const float epsilon = b.node.number("epsilon", 1e-5f);
  return with_widest(b.node, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    if (x_type == y_type) b.kernel.in_place = 0;
    b.kernel.cost = static_cast<double>(rows * columns);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const Source<C> x{io.input<std::byte>(0), x_type};
      const Source<C> scale{io.input<std::byte>(1), scale_type};
      const C zero = 0;
      const Source<C> bias{has_bias ? io.input<std::byte>(2) : nullptr, bias_type};
      const Sink<C> y{io.output<std::byte>(0), y_type};
      const auto put_moment = [&](int output, int64_t row, C value) {
        if (outputs <= output || io.output<std::byte>(output) == nullptr) return;
        Sink<C>{io.output<std::byte>(output), moment_type}.put(row, value);
      };
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        const auto [mean, variance] = moments(x, row * columns, columns, centered);
        const C inverse = C(1) / std::sqrt(variance + static_cast<C>(epsilon));
        put_moment(1, row, mean);
        put_moment(2, row, inverse);
        if (y.data == nullptr) continue;
        for_runs(walk, row * columns, (row + 1) * columns,
                 [&, m = mean](int64_t at, const std::array<int64_t, 2>& from, int64_t run) {
                   const int64_t ss = walk.inner_stride(0), bs = walk.inner_stride(1);
                   C xs[kFloatChunk], scales[kFloatChunk], biases[kFloatChunk], ys[kFloatChunk];
                   for (int64_t i = 0; i < run; i += kFloatChunk) {
                     const int64_t n = std::min(kFloatChunk, run - i);
                     const C* s = scale.read(from[0] + i * ss, ss == 0 ? 1 : n, scales);
                     const C* add =
                         has_bias ? bias.read(from[1] + i * bs, bs == 0 ? 1 : n, biases) : &zero;
                     C* out = y.begin(at + i, ys);
                     scale_chunk(x.read(at + i, n, xs), m, inverse, s, ss, add, bs, out, n);
                     y.put(at + i, n, out);
                   }
                 });
      }
    });
    return {};
  });
}

// [sample][group][channel][place]: moments of each group, scale and bias of each channel.
Status bind_group_norm(const Binding& b, int64_t groups) {
  const Shape& x_shape = b.node.shape(0);
  int64_t places = 1;
  for (int i = 2; i < x_shape.rank; ++i) places *= x_shape[i];
  const int64_t samples = x_shape[0], channels = groups == 0 ? 0 : x_shape[1] / groups;
  const DType type = b.node.dtype(0), scale_type = b.node.dtype(1), bias_type = b.node.dtype(2);
  const float epsilon = b.node.number("epsilon", 1e-5f);
  return with_widest(b.node, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const Source<C> x{io.input<std::byte>(0), type};
      const Source<C> scale{io.input<std::byte>(1), scale_type};
      const Source<C> bias{io.input<std::byte>(2), bias_type};
      const Sink<C> y{io.output<std::byte>(0), type};
      C buffer[kFloatChunk];
      const auto [begin, end] = ops::share_of(samples * groups, worker);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit * channels * places;
        const auto [mean, variance] = moments(x, first, channels * places, true);
        const C inverse = C(1) / std::sqrt(variance + static_cast<C>(epsilon));
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t channel = unit % groups * channels + c;
          const C s = scale.at(channel), add = bias.at(channel);
          for_chunks(x, first + c * places, places,
                     [&, m = mean](const C* values, int64_t i, int64_t n) {
                       const int64_t at = first + c * places + i;
                       C* out = y.begin(at, buffer);
                       scale_chunk(values, m, inverse, &s, 0, &add, 0, out, n);
                       y.put(at, n, out);
                     });
        }
      }
    });
    return {};
  });
}

// Moments of the outputs of a plan.
template <typename C>
void plan_moments(const ReducePlan& plan, const Source<C>& x, int64_t base, int64_t width, C* mean,
                  C* variance) {
  const C n = static_cast<C>(plan.terms);
  plan.accumulate<SumOp<C>, C>(x, base, width, mean);
  for (int64_t i = 0; i < width; ++i) mean[i] /= n;
  plan.accumulate_of<SquareOp<C>, C>(
      x, base, width, variance,
      [&](int64_t, const C* values, int64_t count, C* distances, auto of) {
        LMN_VECTOR_LOOP
        for (int64_t i = 0; i < count; ++i) distances[i] = values[i] - of(mean, i);
        return distances;
      });
  for (int64_t i = 0; i < width; ++i) variance[i] /= n;
}

// y = x * factor + offset, one of each for every output of a plan.
template <typename C>
void plan_scale(const ReducePlan& plan, const Source<C>& x, int64_t base, int64_t width,
                const C* factor, const C* offset, const Sink<C>& y) {
  C buffer[kFloatChunk];
  plan.for_each_run(base, width, [&](int64_t at, int64_t count, auto of) {
    const C* values = x.read(at, count, buffer);
    C* out = y.begin(at, buffer);
    LMN_VECTOR_LOOP
    for (int64_t i = 0; i < count; ++i) out[i] = values[i] * of(factor, i) + of(offset, i);
    y.put(at, count, out);
  });
}

}  // namespace

Status bind_LayerNormalization(const Binding& b) { return bind_row_norm(b, true); }
Status bind_RMSNormalization(const Binding& b) { return bind_row_norm(b, false); }
Status bind_GroupNormalization(const Binding& b) {
  return bind_group_norm(b, b.node.integer("num_groups", 1));
}
Status bind_InstanceNormalization(const Binding& b) {
  return bind_group_norm(b, b.node.shape(0)[1]);
}

Status bind_MeanVarianceNormalization(const Binding& b) {
  const ops::Ints fallback{0, 2, 3}, *axes = b.node.integers("axes");
  uint32_t bits;
  LMN_RETURN_IF_ERROR(
      ops::axis_bits(b.node, axes == nullptr ? fallback : *axes, b.node.rank(0), &bits));
  const ReducePlan plan(b.node.shape(0), bits);
  const DType type = b.node.dtype(0);
  return with_computed(b.node, type, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([plan, type](const Operands& io, const Worker& worker) {
      const Source<C> x{io.input<std::byte>(0), type};
      const Sink<C> y{io.output<std::byte>(0), type};
      plan.for_each_output(worker, [&](int64_t, int64_t base, int64_t width) {
        C mean[ReducePlan::kColumns], factor[ReducePlan::kColumns], buffer[kFloatChunk];
        plan_moments(plan, x, base, width, mean, factor);
        for (int64_t i = 0; i < width; ++i) factor[i] = std::sqrt(factor[i]) + C(1e-9);
        plan.for_each_run(base, width, [&](int64_t at, int64_t count, auto of) {
          const C* values = x.read(at, count, buffer);
          C* out = y.begin(at, buffer);
          LMN_VECTOR_LOOP
          for (int64_t i = 0; i < count; ++i) out[i] = (values[i] - of(mean, i)) / of(factor, i);
          y.put(at, count, out);
        });
      });
    });
    return {};
  });
}

// In training the moments are those of the input, and running ones are outputs.
Status bind_BatchNormalization(const Binding& b) {
  const Shape& shape = b.node.shape(0);
  const bool training = b.node.integer("training_mode", 0) != 0;
  const uint32_t all = (1u << shape.rank) - 1u;
  // Of a vector all is one channel.
  ReducePlan plan(shape, shape.rank == 1 ? all : all & ~2u);
  const float epsilon = b.node.number("epsilon", 1e-5f);
  const float momentum = b.node.number("momentum", 0.9f);
  std::array<DType, 5> types{};
  for (int i = 0; i < 5; ++i) types[static_cast<size_t>(i)] = b.node.dtype(i);
  const int outputs = b.node.outputs();
  if (!training) {
    // Nothing is reduced: samples and channels share the work, places are rows.
    plan = ReducePlan(shape, shape.rank <= 2 ? 0u : all & ~3u);
  }
  const int64_t channels = shape.rank == 1 ? 1 : shape[1];
  return with_widest(b.node, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto source = [&](int i) {
        return Source<C>{io.input<std::byte>(i), types[static_cast<size_t>(i)]};
      };
      const Source<C> x = source(0), scale = source(1), bias = source(2), input_mean = source(3),
                      input_variance = source(4);
      const Sink<C> y{io.output<std::byte>(0), types[0]};
      const auto put_running = [&](int output, int64_t channel, C value) {
        if (outputs <= output || io.output<std::byte>(output) == nullptr) return;
        Sink<C>{io.output<std::byte>(output), types[3]}.put(channel, value);
      };
      plan.for_each_output(worker, [&](int64_t o, int64_t base, int64_t width) {
        C mean[ReducePlan::kColumns], factor[ReducePlan::kColumns];
        if (training) plan_moments(plan, x, base, width, mean, factor);
        for (int64_t i = 0; i < width; ++i) {
          const int64_t channel = (o + i) % channels;
          const C m = static_cast<C>(momentum);
          if (training) {
            put_running(1, channel, input_mean.at(channel) * m + mean[i] * (1 - m));
            put_running(2, channel, input_variance.at(channel) * m + factor[i] * (1 - m));
          } else {
            mean[i] = input_mean.at(channel);
            factor[i] = input_variance.at(channel);
          }
          factor[i] = scale.at(channel) / std::sqrt(factor[i] + static_cast<C>(epsilon));
          mean[i] = bias.at(channel) - mean[i] * factor[i];
        }
        if (y.data != nullptr) plan_scale(plan, x, base, width, factor, mean, y);
      });
    });
    return {};
  });
}

}  // namespace lmn::cpu
