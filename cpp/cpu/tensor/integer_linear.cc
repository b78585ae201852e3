// SPDX-License-Identifier: Apache-2.0
//
// Dynamically quantised products: ranges and integers of x, and the product with constant weights
// that are packed once, zero points taken off: as signed bytes where the instruction set multiplies
// bytes and they fit, else as words (isa.h, IntegerTask).
#include <algorithm>
#include <cstring>
#include <limits>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cpu/tensor/codes.h"
#include "cpu/tensor/linear_activation.h"
#include "cpu/tensor/tensor_kernels.h"
#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

constexpr int64_t kRangeBlocks = 64;  // of BlockRanges

struct ValueRange {
  float low, high;
};

// A NaN counts for nothing.
ValueRange value_range(const float* x, int64_t count, ValueRange range) {
  constexpr int64_t kWide = 16;
  float low[kWide], high[kWide];
  std::fill_n(low, kWide, range.low);
  std::fill_n(high, kWide, range.high);
  int64_t i = 0;
  for (; i + kWide <= count; i += kWide) {
    LMN_VECTOR_LOOP
    for (int64_t l = 0; l < kWide; ++l) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
    }
  }
  for (int64_t l = 0; i < count; ++i, ++l) {
    low[l] = std::min(low[l], x[i]);
    high[l] = std::max(high[l], x[i]);
  }
  return {*std::min_element(low, low + kWide), *std::max_element(high, high + kWide)};
}

struct PackedIntegers {
  bool bytes = false;
  int64_t inner = 0, columns = 0, units = 0, panel_size = 0, panels = 0;
  std::vector<std::byte> memory;
  std::byte* data = nullptr;  // in memory, 64-byte aligned
  std::vector<int32_t> sums;  // of every column, zero point taken off
  std::vector<float> scales;
};

int32_t stored_integer(DType dtype, const std::byte* data, int64_t i) {
  return dtype == DType::kI8 ? reinterpret_cast<const int8_t*>(data)[i]
                             : reinterpret_cast<const uint8_t*>(data)[i];
}

}  // namespace

Status bind_BlockRanges(const Binding& b) {
  const int64_t count = b.node.shape(0).elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(kRangeBlocks, worker);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = count * i / kRangeBlocks, past = count * (i + 1) / kRangeBlocks;
      const ValueRange range = value_range(io.input<float>(0) + first, past - first, {0, 0});
      io.output<float>(0)[2 * i] = range.low;
      io.output<float>(0)[2 * i + 1] = range.high;
    }
  });
  return {};
}

namespace {

// round(x / scale) + zero, halves to even, within a byte; a NaN counts as 0.
void quantize_row(const float* x, int64_t count, const DynamicScale& dynamic, uint8_t* y) {
  int64_t i = 0;
#if defined(__SSE2__)
  const __m128 by = _mm_set1_ps(dynamic.scale);
  const __m128i offset = _mm_set1_epi32(dynamic.zero);
  const __m128 low = _mm_set1_ps(-512.0f), high = _mm_set1_ps(512.0f);
  const auto four = [&](const float* from) {
    const __m128 q = _mm_div_ps(_mm_loadu_ps(from), by);
    const __m128 number = _mm_and_ps(q, _mm_cmpord_ps(q, q));
    return _mm_add_epi32(_mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(number, low), high)), offset);
  };
  for (; i + 16 <= count; i += 16) {
    const __m128i a = _mm_packs_epi32(four(x + i), four(x + i + 4));
    const __m128i b = _mm_packs_epi32(four(x + i + 8), four(x + i + 12));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), _mm_packus_epi16(a, b));
  }
#endif
  const CodeRounding round(0, dynamic.zero);
  for (; i < count; ++i) y[i] = round(x[i] / dynamic.scale);
}

}  // namespace

Status bind_QuantizeByRanges(const Binding& b) {
  const int64_t count = b.node.shape(0).elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    ValueRange range{0, 0};
    for (int64_t i = 0; i < kRangeBlocks; ++i) {
      range.low = std::min(range.low, io.input<float>(1)[2 * i]);
      range.high = std::max(range.high, io.input<float>(1)[2 * i + 1]);
    }
    const DynamicScale dynamic(range.low, range.high);
    if (worker.part == 0) {
      *io.output<float>(1) = dynamic.scale;
      *io.output<uint8_t>(2) = static_cast<uint8_t>(dynamic.zero);
    }
    const auto [begin, end] = ops::share_of(count, worker);
    quantize_row(io.input<float>(0) + begin, end - begin, dynamic, io.output<uint8_t>(0) + begin);
  });
  return {};
}

Status prepare_IntegerLinear(const Preparation& p) {
  const std::byte* const w = p.node.data<std::byte>(3);
  const float* const scales = p.node.data<float>(4);
  const std::byte* const zeros = p.node.has(5) ? p.node.data<std::byte>(5) : nullptr;
  if (w == nullptr || scales == nullptr || (p.node.has(5) && zeros == nullptr))
    return p.node.fail("the weights, their scales and zero points are no constants");
  auto packed = std::make_shared<PackedIntegers>();
  const int64_t inner = packed->inner = p.node.shape(3)[0];
  const int64_t columns = packed->columns = p.node.shape(3)[1];
  const DType dtype = p.node.dtype(3);
  const int64_t zero_step = zeros != nullptr && p.node.shape(5).elements() > 1 ? 1 : 0;
  const int64_t scale_step = p.node.shape(4).elements() > 1 ? 1 : 0;
  const auto value = [&](int64_t k, int64_t c) {
    return stored_integer(dtype, w, k * columns + c) -
           (zeros == nullptr ? 0 : stored_integer(p.node.dtype(5), zeros, c * zero_step));
  };
  packed->sums.resize(static_cast<size_t>(columns));
  packed->scales.resize(static_cast<size_t>(columns));
  bool fits = true;
  for (int64_t k = 0; k < inner; ++k) {
    for (int64_t c = 0; c < columns; ++c) {
      const int32_t v = value(k, c);
      packed->sums[static_cast<size_t>(c)] += v;
      fits = fits && v >= -128 && v <= 127;
    }
  }
  for (int64_t c = 0; c < columns; ++c)
    packed->scales[static_cast<size_t>(c)] = scales[c * scale_step];
  packed->bytes = fits && p.isa.integer.bytes != nullptr;
  const int64_t lanes = p.isa.float_lanes, per_unit = packed->bytes ? 4 : 2;
  packed->units = (inner + per_unit - 1) / per_unit;
  packed->panel_size = (packed->units * lanes * 4 + 63) / 64 * 64;
  packed->panels = (columns + lanes - 1) / lanes;
  constexpr size_t kAlignment = 64;
  packed->memory.resize(static_cast<size_t>(packed->panels * packed->panel_size) + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(packed->memory.data());
  packed->data = packed->memory.data() + (kAlignment - address % kAlignment) % kAlignment;
  for (int64_t k = 0; k < inner; ++k) {
    for (int64_t c = 0; c < columns; ++c) {
      std::byte* const unit =
          packed->data + c / lanes * packed->panel_size + (k / per_unit * lanes + c % lanes) * 4;
      const auto v = static_cast<int16_t>(value(k, c));
      if (packed->bytes) {
        unit[k % 4] = static_cast<std::byte>(v & 255);
      } else {
        std::memcpy(unit + k % 2 * 2, &v, sizeof v);
      }
    }
  }
  p.prepared = std::move(packed);
  return {};
}

// Rows are shared out where there are enough of them, panels of output columns otherwise. Rows are
// copied into scratch, some at a time, as words or as unsigned bytes, filled up to whole units.
Status bind_IntegerLinear(const Binding& b) {
  const auto* packed = b.node.prepared<PackedIntegers>();
  if (packed == nullptr) return b.node.fail("its weights were not packed");
  RowFunction apply = nullptr;
  if (!find_linear_activation(b.node.text("activation", ""), b.isa, &apply))
    return b.node.unsupported("the activation is not known");
  const int64_t rows = b.node.shape(0).rows(), inner = packed->inner, columns = packed->columns;
  const int64_t lanes = b.isa.float_lanes, padded = packed->panels * lanes;
  const bool is_signed = b.node.dtype(0) == DType::kI8, has_bias = b.node.has(6);
  const auto multiply = packed->bytes ? b.isa.integer.bytes : b.isa.integer.words;
  const int64_t row_bytes = packed->units * 4;
  const int64_t tile = std::clamp<int64_t>(128 * 1024 / std::max<int64_t>(1, row_bytes), 12, 192);
  constexpr int64_t kLeastRows = 16;  // of one worker's share
  b.kernel.splits = true;
  b.kernel.cost = 50 + static_cast<double>(rows * inner * columns) / 80;
  b.kernel.scratch_bytes = static_cast<size_t>(padded * 8 + tile * row_bytes);
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const bool by_rows = rows >= kLeastRows * worker.parts;
    const auto [row, row_end] = by_rows ? ops::share_of(rows, worker) : ops::Share{0, rows};
    const auto [panel, panel_end] =
        by_rows ? ops::Share{0, packed->panels} : ops::share_of(packed->panels, worker);
    if (row >= row_end || panel >= panel_end) return;
    int32_t* const start = reinterpret_cast<int32_t*>(worker.scratch);
    float* const scales = reinterpret_cast<float*>(start + padded);
    std::byte* const x = worker.scratch + padded * 8;
    const int32_t flip = packed->bytes && is_signed ? 128 : 0;  // signed bytes as unsigned ones
    const int32_t zero =
        stored_integer(is_signed ? DType::kI8 : DType::kU8, io.input<std::byte>(2), 0);
    const float x_scale = *io.input<float>(1);
    const int64_t first = panel * lanes, past = std::min(panel_end * lanes, columns);
    for (int64_t c = first; c < past; ++c) {
      const auto i = static_cast<size_t>(c);
      start[c] = static_cast<int32_t>(0u - static_cast<uint32_t>(zero + flip) *
                                               static_cast<uint32_t>(packed->sums[i]));
      scales[c] = x_scale * packed->scales[i];
    }
    std::fill(start + past, start + panel_end * lanes, 0);
    IntegerTask t{};
    t.panels = packed->data;
    t.panel_bytes = packed->panel_size;
    t.panel_begin = panel;
    t.panel_end = panel_end;
    t.units = packed->units;
    t.x_row_bytes = row_bytes;
    t.channels = columns;
    t.start = start;
    t.scales = scales;
    t.bias = has_bias ? io.input<float>(6) : nullptr;
    t.y_stride = columns;
    for (int64_t at = row; at < row_end; at += tile) {
      t.rows = std::min(tile, row_end - at);
      const uint8_t* from = io.input<uint8_t>(0) + at * inner;
      t.x = x;
      if (packed->bytes && flip == 0 && row_bytes == inner) {
        t.x = reinterpret_cast<const std::byte*>(from);
      } else {
        for (int64_t r = 0; r < t.rows; ++r, from += inner) {
          std::byte* const to = x + r * row_bytes;
          if (packed->bytes) {
            for (int64_t k = 0; k < inner; ++k) to[k] = static_cast<std::byte>(from[k] ^ flip);
            std::fill(to + inner, to + row_bytes, std::byte{0});
          } else {
            int16_t* const words = reinterpret_cast<int16_t*>(to);
            const int sign = is_signed ? 128 : 0;  // (x ^ 128) - 128 is x as a signed byte
            for (int64_t k = 0; k < inner; ++k)
              words[k] = static_cast<int16_t>((from[k] ^ sign) - sign);
            std::fill(words + inner, words + row_bytes / 2, int16_t{0});
          }
        }
      }
      float* const y = io.output<float>(0) + at * columns;
      t.y = y;
      multiply(t);
      if (apply == nullptr) continue;
      for (int64_t r = 0; r < t.rows; ++r)
        apply(y + r * columns + first, y + r * columns + first, past - first);
    }
  });
  return {};
}

}  // namespace lmn::cpu
