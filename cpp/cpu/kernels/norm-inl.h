// SPDX-License-Identifier: Apache-2.0
//
// RMS norm, quantisation of activations, and both in one pass. The fused kernel calls the same two
// inline functions as the others, so its results are the same bits. Formats: ops/quantized_rows.h.

constexpr int kBlockVectors = 32 / kLanes;

// 1 / sqrt(mean(x^2) + eps). Four accumulators over whole groups of four vectors, then the rest
// into the first one; the order depends on `columns` alone.
LMN_INLINE float inverse_rms(const float* x, int64_t columns, float eps) {
  F sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
    LMN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const F v = load(x + i + j * kLanes);
      sum[j] = fma(v, v, sum[j]);
    }
  }
  for (; i < columns; i += kLanes) {
    const F v = load_n(x + i, columns - i);
    sum[0] = fma(v, v, sum[0]);
  }
  const float total = reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
  return 1.0f / square_root(total / static_cast<float>(columns) + eps);
}

LMN_INLINE F normalize(F x, F inverse, F weight) { return mul(mul(x, inverse), weight); }

void rms_norm(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::RmsNormArgs*>(args);
  const Range rows = part_of(a.rows, worker);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const float* x = a.x + t * a.columns;
    float* y = a.y + t * a.columns;
    const F inverse = set1(inverse_rms(x, a.columns, a.eps));
    int64_t i = 0;
    for (; i + kLanes <= a.columns; i += kLanes)
      store(y + i, normalize(load(x + i), inverse, load(a.weight + i)));
    if (i < a.columns) {
      const int64_t n = a.columns - i;
      store_n(y + i, normalize(load_n(x + i, n), inverse, load_n(a.weight + i, n)), n);
    }
  }
}

// A row of the activation format at y: integers, then scales, then sums.
struct QuantizedOutput {
  std::byte* q;
  std::byte* scales;
  int64_t sums;  // bytes from scales to sums
  bool wide;     // kQA16

  LMN_INLINE QuantizedOutput(std::byte* rows, int64_t row, int64_t columns, DType type)
      : sums(columns / 8), wide(type == DType::kQA16) {
    const int64_t integers = wide ? 2 * columns : columns;
    q = rows + row * (integers + columns / 4);
    scales = q + integers;
  }
  LMN_INLINE void put(int64_t block, const F (&x)[kBlockVectors]) const {
    const uint32_t bits = largest_magnitude(x);
    float largest, scale, inverse;
    __builtin_memcpy(&largest, &bits, sizeof largest);
    const float limit = wide ? 32767.0f : 127.0f;
    const bool finite = bits < 0x7F800000u;
    const bool zeroed = !finite || largest < ops::kQuantizeTiny;
    scale = !finite ? largest * 0.0f + largest : zeroed ? 0.0f : largest / limit;
    inverse = zeroed ? 0.0f : limit / largest;
    int32_t sum = 0;
    int16_t* q16 = wide ? reinterpret_cast<int16_t*>(q) + block * 32 : nullptr;
    int8_t* q8 = wide ? nullptr : reinterpret_cast<int8_t*>(q) + block * 32;
    if (zeroed) {
      F nothing[kBlockVectors];
      LMN_UNROLL
      for (int i = 0; i < kBlockVectors; ++i) nothing[i] = zero();
      store_integers(nothing, 0.0f, q8, q16);
    } else {
      sum = store_integers(x, inverse, q8, q16);
    }
    const float total = scale * static_cast<float>(sum);
    __builtin_memcpy(scales + block * 4, &scale, sizeof scale);
    __builtin_memcpy(scales + sums + block * 4, &total, sizeof total);
  }
};

void quantize(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::QuantizeArgs*>(args);
  std::byte* rows = a.y.base + worker.index * a.y.worker_stride;
  const int64_t blocks = a.columns / 32;
  const Range range = part_of(a.rows * blocks, worker);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t t = i / blocks, b = i % blocks;
    F x[kBlockVectors];
    LMN_UNROLL
    for (int j = 0; j < kBlockVectors; ++j) x[j] = load(a.x + t * a.columns + b * 32 + j * kLanes);
    QuantizedOutput(rows, t, a.columns, a.y_type).put(b, x);
  }
}

void rms_norm_quantize(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::RmsNormQuantizeArgs*>(args);
  std::byte* rows = a.y.base + worker.index * a.y.worker_stride;
  const Range range = part_of(a.rows, worker);
  for (int64_t t = range.begin; t < range.end; ++t) {
    const float* row = a.x + t * a.columns;
    const F inverse = set1(inverse_rms(row, a.columns, a.eps));
    const QuantizedOutput y(rows, t, a.columns, a.y_type);
    for (int64_t b = 0; b < a.columns / 32; ++b) {
      F x[kBlockVectors];
      LMN_UNROLL
      for (int j = 0; j < kBlockVectors; ++j) {
        const int64_t at = b * 32 + j * kLanes;
        x[j] = normalize(load(row + at), inverse, load(a.weight + at));
      }
      y.put(b, x);
    }
  }
}
