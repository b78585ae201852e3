// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/quantized.def: element-wise operators, concatenation and poolings of 8-bit
// codes. A byte's number comes from a table that is made at the start of a run.
#include "cpu/tensor/codes.h"
#include "cpu/tensor/elementwise.h"
#include "cpu/tensor/windows.h"
#include "ops/infer/pools.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// The scale and zero point in operands i and i + 1, of which the second may be absent.
struct CodeScale {
  int input;
  bool has_zero;
  int32_t flip;

  CodeScale(const ops::TensorNode& node, int i, DType dtype)
      : input(i), has_zero(node.has(i + 1)), flip(flip_of(dtype)) {}
  float scale(const Operands& io) const { return *io.input<float>(input); }
  int32_t zero(const Operands& io) const { return zero_point(io, input + 1, has_zero, flip); }
  std::array<float, 256> numbers(const Operands& io) const {
    return code_numbers(flip, scale(io), zero(io));
  }
  CodeRounding rounding(const Operands& io) const { return {flip, zero(io)}; }
};

template <typename F>
Status bind_code_binary(const Binding& b, F f) {
  const DType dtype = b.outputs[0].dtype;
  const CodeScale x(b.node, 1, dtype), y(b.node, 4, dtype), out(b.node, 6, dtype);
  const auto walk = make_walk<2>(b.outputs[0].shape, {&b.node.shape(0), &b.node.shape(3)});
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const auto xs = x.numbers(io), ys = y.numbers(io);
    const float scale = out.scale(io);
    const CodeRounding round = out.rounding(io);
    for_runs(walk, begin, end, [&](int64_t at, const auto& offsets, int64_t n) {
      combine_values([&](uint8_t p, uint8_t q) { return round(f(xs[p], ys[q]) / scale); },
                     io.input<uint8_t>(0) + offsets[0], walk.inner_stride(0),
                     io.input<uint8_t>(3) + offsets[1], walk.inner_stride(1),
                     io.output<uint8_t>(0) + at, n);
    });
  });
  return {};
}

// What each byte of one scale is in another, after f.
template <typename F>
std::array<uint8_t, 256> code_table(const Operands& io, const CodeScale& from, const CodeScale& to,
                                    F f) {
  const auto numbers = from.numbers(io);
  const CodeRounding round = to.rounding(io);
  std::array<uint8_t, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = round(f(numbers[i]) / to.scale(io));
  return table;
}

template <typename F>
Status bind_code_unary(const Binding& b, F f) {
  const DType dtype = b.outputs[0].dtype;
  const CodeScale from(b.node, 1, dtype), to(b.node, 3, dtype);
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const auto table = code_table(io, from, to, f);
    map_row<uint8_t>([&](uint8_t x) { return table[x]; }, io.input<uint8_t>(0) + begin,
                     io.output<uint8_t>(0) + begin, end - begin);
  });
  return {};
}

}  // namespace

Status bind_QLinearAdd(const Binding& b) {
  return bind_code_binary(b, [](float x, float y) { return x + y; });
}
Status bind_QLinearMul(const Binding& b) {
  return bind_code_binary(b, [](float x, float y) { return x * y; });
}
Status bind_QLinearSigmoid(const Binding& b) {
  return bind_code_unary(b, [](float x) { return vector_math::sigmoid(x); });
}
Status bind_QLinearLeakyRelu(const Binding& b) {
  return bind_code_unary(
      b, [alpha = b.node.number("alpha", 0.01f)](float x) { return x < 0.0f ? alpha * x : x; });
}

// Rows of the output (all dimensions before the axis) are shared out.
Status bind_QLinearConcat(const Binding& b) {
  struct Part {
    CodeScale from;
    int input;
    int64_t bytes;  // of a row
  };
  const DType dtype = b.outputs[0].dtype;
  const Shape& out = b.outputs[0].shape;
  int64_t axis = 0, rows = 1;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), out.rank, &axis));
  for (int i = 0; i < axis; ++i) rows *= out[i];
  std::vector<Part> parts;
  int64_t row_bytes = 0;
  for (int i = 2; i < b.node.inputs(); i += 3) {
    const int64_t bytes = rows == 0 ? 0 : b.node.shape(i).elements() / rows;
    parts.push_back({CodeScale(b.node, i + 1, dtype), i, bytes});
    row_bytes += bytes;
  }
  const CodeScale to(b.node, 0, dtype);
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(rows, worker);
    int64_t at = 0;
    for (const Part& part : parts) {
      const auto table = code_table(io, part.from, to, [](float x) { return x; });
      for (int64_t row = begin; row < end; ++row) {
        map_row<uint8_t>([&](uint8_t x) { return table[x]; },
                         io.input<uint8_t>(part.input) + row * part.bytes,
                         io.output<uint8_t>(0) + row * row_bytes + at, part.bytes);
      }
      at += part.bytes;
    }
  });
  return {};
}

Status bind_QLinearGlobalAveragePool(const Binding& b) {
  const DType dtype = b.outputs[0].dtype;
  const CodeScale from(b.node, 1, dtype), to(b.node, 3, dtype);
  const Shape& x = b.node.shape(0);
  const bool last = b.node.integer("channels_last", 0) != 0;
  const int64_t batch = x[0], channels = last ? x.last() : x[1];
  int64_t places = 1;
  for (int i = last ? 1 : 2; i < x.rank - (last ? 1 : 0); ++i) places *= x[i];
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(batch * channels, worker);
    const CodeRounding round = to.rounding(io);
    const float factor = from.scale(io) / (static_cast<float>(places) * to.scale(io));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t stride = last ? channels : 1;
      const uint8_t* const x_codes =
          io.input<uint8_t>(0) +
          (last ? i / channels * places * channels + i % channels : i * places);
      int64_t sum = 0;
      for (int64_t p = 0; p < places; ++p) sum += code_value(x_codes[p * stride], from.flip);
      sum -= places * from.zero(io);
      io.output<uint8_t>(0)[i] = round(static_cast<float>(sum) * factor);
    }
  });
  return {};
}

// Padding counts as zeros where count_include_pad says so, and is left out otherwise.
Status bind_QLinearAveragePool(const Binding& b) {
  const DType dtype = b.outputs[0].dtype;
  const CodeScale from(b.node, 1, dtype), to(b.node, 3, dtype);
  ops::Windows w;
  LMN_RETURN_IF_ERROR(ops::read_pool(b.node, &w));
  const bool counts_padding = b.node.integer("count_include_pad", 0) != 0;
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const CodeRounding round = to.rounding(io);
    const int32_t zero = from.zero(io);
    const float factor = from.scale(io) / to.scale(io);
    const int64_t positions = w.outputs(), inputs = w.inputs(), taps = w.taps();
    for (int64_t at = begin; at < end; ++at) {
      const uint8_t* const plane = io.input<uint8_t>(0) + at / positions * inputs;
      ops::SpatialSizes out{}, tap{};
      unravel(at % positions, w.out, w.rank, &out);
      int64_t sum = 0, inside = 0, counted = 0;
      for (int64_t t = 0; t < taps; ++t, advance(w.kernel, w.rank, &tap)) {
        int64_t offset = 0;
        bool in_padded = true;
        for (int d = 0; d < w.rank; ++d) {
          const auto i = static_cast<size_t>(d);
          const int64_t place = out[i] * w.stride[i] - w.pad_begin[i] + tap[i] * w.dilation[i];
          in_padded = in_padded && place < w.in[i] + w.pad_end[i];
          offset = place < 0 || place >= w.in[i] || offset < 0 ? -1 : offset * w.in[i] + place;
        }
        counted += in_padded ? 1 : 0;
        if (offset < 0) continue;
        sum += code_value(plane[offset], from.flip) - zero;
        ++inside;
      }
      const int64_t divisor = std::max<int64_t>(1, counts_padding ? counted : inside);
      io.output<uint8_t>(0)[at] =
          round(static_cast<float>(sum) * factor / static_cast<float>(divisor));
    }
  });
  return {};
}

}  // namespace lmn::cpu
