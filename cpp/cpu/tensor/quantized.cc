// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/quantized.def: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear. A
// tensor is walked in runs in which the scale is one number or lies beside x.
#include "ops/infer/quantized.h"

#include "cpu/tensor/codes.h"
#include "cpu/tensor/convert.h"
#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::ScaleLayout;
using ops::Worker;

// Calls body(at, scale, stride, count) for the runs of elements [begin, end): the first scale of
// the run, and 1 where each element has the next one, 0 where all share it.
template <typename Body>
void for_scales(const ScaleLayout& l, int64_t begin, int64_t end, Body body) {
  for (int64_t at = begin; at < end;) {
    int64_t scale = 0, stride = 0, left = end - at;
    if (l.kind != ScaleLayout::Kind::kTensor) {
      const bool blocks = l.kind == ScaleLayout::Kind::kBlocks;
      const int64_t i = at % l.inner, a = at / l.inner % l.size, o = at / (l.inner * l.size);
      const int64_t row = blocks ? o * l.blocks + a / l.block : a;
      if (l.inner > 1) {
        scale = blocks ? row * l.inner + i : row;
        stride = blocks ? 1 : 0;
        left = l.inner - i;
      } else {
        scale = row;
        stride = blocks ? 0 : 1;
        left = blocks ? std::min(l.block - a % l.block, l.size - a) : l.size - a;
      }
    }
    const int64_t count = std::min({left, end - at, kChunk});
    body(at, scale, stride, count);
    at += count;
  }
}

// The range of an integer type that codes may have.
struct Range {
  double low, high;
};
Range range_of(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return {-128, 127};
    case DType::kU8:
      return {0, 255};
    case DType::kI16:
      return {-32768, 32767};
    case DType::kU16:
      return {0, 65535};
    case DType::kI4:
      return {-8, 7};
    case DType::kU4:
      return {0, 15};
    case DType::kI2:
      return {-2, 1};
    case DType::kU2:
      return {0, 3};
    default:
      return {0, 0};
  }
}

float round_code(float x) { return vector_math::round_even(x); }
double round_code(double x) { return std::nearbyint(x); }

template <typename T, typename C>
void store_codes(const C* codes, std::byte* y, int64_t count) {
  T* to = reinterpret_cast<T*>(y);
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<int32_t>(codes[i]));
}
template <typename C>
using StoreCodes = void (*)(const C*, std::byte*, int64_t);
template <typename C>
StoreCodes<C> code_store(DType dtype) {
  switch (dtype) {
    case DType::kI16:
      return store_codes<int16_t, C>;
    case DType::kU16:
      return store_codes<uint16_t, C>;
    case DType::kI8:
    case DType::kI4:
    case DType::kI2:
      return store_codes<int8_t, C>;
    default:
      return store_codes<uint8_t, C>;
  }
}

// Rounds values to a float type of 16 bits and back.
template <typename H, typename C>
void round_to_half(C* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    H half;
    from_float(static_cast<float>(values[i]), &half);
    values[i] = to_float(half);
  }
}

// Divides in C, float or double, which holds x exactly.
template <typename C>
void bind_quantize(const Binding& b, const ScaleLayout& layout) {
  const DType from = b.node.dtype(0), scale_type = b.node.dtype(1), to = b.outputs[0].dtype;
  DType precision = scale_type;
  if (const int64_t number = b.node.integer("precision", 0); number != 0)
    (void)ops::dtype_of_onnx(b.node, number, &precision);  // inference has refused what is none
  const auto load = decoder<C>(from), load_scale = decoder<C>(scale_type);
  const auto load_zero = decoder<C>(to);
  const auto encode = encoder<C>(to);
  const auto store = code_store<C>(to);
  const Range range = range_of(to);
  const bool to_integer = range.high > 0, has_zero = b.node.has(2);
  const bool adds_zero = has_zero && (to_integer || to == DType::kF4E2M1);
  const Narrowing narrowing{b.node.integer("saturate", 1) != 0, PowerRounding::kUp};
  const int64_t in_bytes = info(from).block_bytes, scale_bytes = info(scale_type).block_bytes,
                out_bytes = info(to).block_bytes, count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    for_scales(layout, begin, end, [&](int64_t at, int64_t scale, int64_t stride, int64_t n) {
      C x[kChunk], scales[kChunk], zeros[kChunk];
      const int64_t numbers = stride == 0 ? 1 : n;
      load(io.input<std::byte>(0) + at * in_bytes, x, n);
      load_scale(io.input<std::byte>(1) + scale * scale_bytes, scales, numbers);
      combine_values([](C value, C by) { return value / by; }, x, 1, scales, stride, x, n);
      if (precision == DType::kF16) round_to_half<Half>(x, n);
      if (precision == DType::kBF16) round_to_half<BFloat>(x, n);
      if (adds_zero) {
        load_zero(io.input<std::byte>(2) + scale * out_bytes, zeros, numbers);
      } else {
        std::fill_n(zeros, numbers, C(0));
      }
      std::byte* const y = io.output<std::byte>(0) + at * out_bytes;
      if (to_integer) {
        const C low = static_cast<C>(range.low), high = static_cast<C>(range.high);
        combine_values(
            [low, high](C value, C zero) {
              C code = value < low - zero ? low - zero : value;
              code = code > high - zero ? high - zero : code;
              code = code != code ? C(0) : code;
              return round_code(code) + zero;
            },
            x, 1, zeros, stride, x, n);
        store(x, y, n);
      } else {
        if (adds_zero)
          combine_values([](C value, C zero) { return value + zero; }, x, 1, zeros, stride, x, n);
        encode(x, y, n, narrowing);
      }
    });
  });
}

template <typename C>
void bind_dequantize(const Binding& b, const ScaleLayout& layout) {
  const DType from = b.node.dtype(0), scale_type = b.node.dtype(1), to = b.outputs[0].dtype;
  const auto load = decoder<C>(from), load_scale = decoder<C>(scale_type);
  const auto encode = encoder<C>(to);
  const bool has_zero = b.node.has(2);
  const int64_t in_bytes = info(from).block_bytes, scale_bytes = info(scale_type).block_bytes,
                out_bytes = info(to).block_bytes, count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    for_scales(layout, begin, end, [&](int64_t at, int64_t scale, int64_t stride, int64_t n) {
      C x[kChunk], scales[kChunk];
      const int64_t numbers = stride == 0 ? 1 : n;
      load(io.input<std::byte>(0) + at * in_bytes, x, n);
      if (has_zero) {
        load(io.input<std::byte>(2) + scale * in_bytes, scales, numbers);
        combine_values([](C value, C zero) { return value - zero; }, x, 1, scales, stride, x, n);
      }
      load_scale(io.input<std::byte>(1) + scale * scale_bytes, scales, numbers);
      combine_values([](C value, C by) { return value * by; }, x, 1, scales, stride, x, n);
      encode(x, io.output<std::byte>(0) + at * out_bytes, n, {});
    });
  });
}

}  // namespace

Status bind_QuantizeLinear(const Binding& b) {
  ScaleLayout layout;
  LMN_RETURN_IF_ERROR(ops::read_scale_layout(b.node, &layout));
  if (decoder<float>(b.node.dtype(0)) != nullptr && decoder<float>(b.node.dtype(1)) != nullptr) {
    bind_quantize<float>(b, layout);
  } else {
    bind_quantize<double>(b, layout);
  }
  return {};
}

Status bind_DequantizeLinear(const Binding& b) {
  ScaleLayout layout;
  LMN_RETURN_IF_ERROR(ops::read_scale_layout(b.node, &layout));
  if (decoder<float>(b.node.dtype(0)) != nullptr) {
    bind_dequantize<float>(b, layout);
  } else {
    bind_dequantize<double>(b, layout);
  }
  return {};
}

// Every worker finds least and largest of all numbers, so that none waits for another.
Status bind_DynamicQuantizeLinear(const Binding& b) {
  const int64_t count = b.outputs[0].shape.elements();
  const int outputs = b.node.outputs();
  b.kernel.splits = true;
  b.kernel.set([count, outputs](const Operands& io, const Worker& worker) {
    const float* x = io.input<float>(0);
    const DynamicScale dynamic(x, count);
    if (uint8_t* y = io.output<uint8_t>(0); y != nullptr) {
      const CodeRounding round(0, dynamic.zero);
      const auto [begin, end] = ops::share_of(count, worker);
      for (int64_t i = begin; i < end; ++i) y[i] = round(x[i] / dynamic.scale);
    }
    if (worker.part != 0) return;
    float* const scale = outputs > 1 ? io.output<float>(1) : nullptr;
    uint8_t* const zero = outputs > 2 ? io.output<uint8_t>(2) : nullptr;
    if (scale != nullptr) *scale = dynamic.scale;
    if (zero != nullptr) *zero = static_cast<uint8_t>(dynamic.zero);
  });
  return {};
}

}  // namespace lmn::cpu
