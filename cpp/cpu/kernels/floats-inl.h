// SPDX-License-Identifier: Apache-2.0
//
// Loops over float32 for general tensors: FloatKernels of isa.h. What a row gives depends on the
// row alone.

constexpr int kFloatLanes = 2 * kLanes;  // of a panel of float weights

void activate(FloatActivation activation, const float* x, float* y, int64_t count) {
  with_activation(activation, [&](auto tag) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(y + i, tag.apply(load(x + i)));
    if (i < count) store_n(y + i, tag.apply(load_n(x + i, count - i)), count - i);
  });
}

// Sum of f(x) over a row: four accumulators over whole groups of four vectors, the rest into the
// first one. f keeps the lanes of a vector that are past the end at 0.
template <typename Map>
LMN_INLINE float sum_of(const float* x, int64_t columns, const Map& f) {
  F sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
    LMN_UNROLL
    for (int j = 0; j < 4; ++j) sum[j] = add(sum[j], f(load(x + i + j * kLanes), kLanes));
  }
  for (; i < columns; i += kLanes) sum[0] = add(sum[0], f(load_n(x + i, columns - i), columns - i));
  return reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

void layer_norm(const LayerNormTask& t) {
  const float size = static_cast<float>(t.columns);
  for (int64_t row = 0; row < t.rows; ++row) {
    const float* x = t.x + row * t.columns;
    float* y = t.y + row * t.columns;
    const F mean = set1(sum_of(x, t.columns, [](F v, int64_t) { return v; }) / size);
    const float variance = sum_of(x, t.columns,
                                  [&](F v, int64_t n) {
                                    const F distance = keep_n(sub(v, mean), zero(), n);
                                    return mul(distance, distance);
                                  }) /
                           size;
    const F inverse = set1(1.0f / square_root(variance + t.epsilon));
    for (int64_t i = 0; i < t.columns; i += kLanes) {
      const int64_t n = t.columns - i;
      const F scaled = mul(mul(sub(load_n(x + i, n), mean), inverse), load_n(t.scale + i, n));
      store_n(y + i, t.bias == nullptr ? scaled : add(scaled, load_n(t.bias + i, n)), n);
    }
  }
}

void scores(const ScoresTask& t) {
  const F scale = set1(t.scale), lowest = set1(-3.402823466e+38f);
  const int64_t whole = (t.columns + kFloatLanes - 1) / kFloatLanes * kFloatLanes;
  for (int64_t row = 0; row < t.rows; ++row) {
    float* x = t.x + row * t.stride;
    const float* mask = t.mask == nullptr ? nullptr : t.mask + row * t.mask_row;
    F most = lowest;
    for (int64_t i = 0; i < t.columns; i += kLanes) {
      const int64_t n = t.columns - i;
      F v = mul(load(x + i), scale);
      if (mask != nullptr) v = add(v, t.mask_column == 0 ? load1(mask) : load_n(mask + i, n));
      v = keep_n(v, lowest, n);
      store(x + i, v);
      most = max(most, v);
    }
    const F largest = set1(reduce_max(most));
    F sum[2] = {zero(), zero()};
    for (int64_t i = 0; i < whole; i += 2 * kLanes) {
      LMN_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int64_t at = i + j * kLanes;
        const F power = exponential(sub(load(x + at), largest));
        const F kept = keep_n(power, zero(), t.columns - at);
        store(x + at, kept);
        sum[j] = add(sum[j], kept);
      }
    }
    t.inverse_sums[row] = 1.0f / reduce_add(add(sum[0], sum[1]));
  }
}

void scale_rows(float* x, int64_t rows, int64_t columns, int64_t stride, const float* factors) {
  for (int64_t row = 0; row < rows; ++row) {
    const F factor = set1(factors[row]);
    float* at = x + row * stride;
    for (int64_t i = 0; i < columns; i += kLanes)
      store_n(at + i, mul(load_n(at + i, columns - i), factor), columns - i);
  }
}

void pack_columns(const float* w, int64_t inner, int64_t columns, int64_t stride,
                  std::byte* panels) {
  const int64_t size = panel_bytes(DType::kF32, inner, kFloatLanes);
  for (int64_t first = 0; first < columns; first += kFloatLanes) {
    float* y = reinterpret_cast<float*>(panels + first / kFloatLanes * size);
    for (int64_t k = 0; k < inner; ++k) {
      const float* x = w + k * stride + first;
      store(y + k * kFloatLanes, load_n(x, columns - first));
      store(y + k * kFloatLanes + kLanes, load_n(x + kLanes, columns - first - kLanes));
    }
  }
}
