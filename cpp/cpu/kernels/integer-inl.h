// SPDX-License-Identifier: Apache-2.0
//
// Exact products of 8-bit integers: isa.h says how operands lie. Bytes where an instruction adds
// four products to 32 bits without saturation (VNNI); elsewhere words, in pairs. Sums are integers,
// so their order is of no account; they begin with what zero points take off.

#if defined(__AVX512F__)
using Unit = __m512i;
LMN_INLINE Unit load_units(const void* p) { return _mm512_loadu_si512(p); }
LMN_INLINE Unit same_units(const std::byte* p) { return broadcast4(p); }
template <bool kBytes>
LMN_INLINE Unit multiply_units(Unit sum, Unit w, Unit x) {
  return kBytes ? _mm512_dpbusd_epi32(sum, x, w) : _mm512_dpwssd_epi32(sum, x, w);
}
LMN_INLINE F units_to_float(Unit x) { return _mm512_cvtepi32_ps(x); }
LMN_INLINE void store_units(int32_t* p, Unit x) { _mm512_storeu_si512(p, x); }
#elif defined(__AVX2__)
using Unit = __m256i;
LMN_INLINE Unit load_units(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
LMN_INLINE Unit same_units(const std::byte* p) { return broadcast4(p); }
template <bool kBytes>
LMN_INLINE Unit multiply_units(Unit sum, Unit w, Unit x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}
LMN_INLINE F units_to_float(Unit x) { return _mm256_cvtepi32_ps(x); }
LMN_INLINE void store_units(int32_t* p, Unit x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
#else
struct Unit {
  int32_t v[kLanes];
};
LMN_INLINE Unit load_units(const void* p) {
  Unit x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
LMN_INLINE Unit same_units(const std::byte* p) {
  Unit x;
  for (int i = 0; i < kLanes; ++i) __builtin_memcpy(&x.v[i], p, 4);
  return x;
}
template <bool kBytes>
LMN_INLINE Unit multiply_units(Unit sum, Unit w, Unit x) {
  for (int i = 0; i < kLanes; ++i) {
    const int32_t low =
        static_cast<int16_t>(w.v[i] & 0xFFFF) * static_cast<int16_t>(x.v[i] & 0xFFFF);
    const int32_t high = (w.v[i] >> 16) * (x.v[i] >> 16);
    sum.v[i] = static_cast<int32_t>(static_cast<uint32_t>(sum.v[i]) + static_cast<uint32_t>(low) +
                                    static_cast<uint32_t>(high));
  }
  return sum;
}
LMN_INLINE F units_to_float(Unit x) {
  float floats[kLanes];
  for (int i = 0; i < kLanes; ++i) floats[i] = static_cast<float>(x.v[i]);
  return load(floats);
}
LMN_INLINE void store_units(int32_t* p, Unit x) { __builtin_memcpy(p, &x, sizeof x); }
#endif

LMN_NOINLINE void finish_integers(const IntegerTask& t, int64_t row, int64_t rows, int64_t channel,
                                  const Unit* sums) {
  const int64_t valid = t.channels - channel;
  if (valid <= 0) return;
  if (t.scales == nullptr) {
    for (int64_t r = 0; r < rows; ++r) {
      int32_t lanes[kLanes];
      store_units(lanes, sums[2 * r]);
      int32_t* const y = static_cast<int32_t*>(t.y) + (row + r) * t.y_stride + channel;
      __builtin_memcpy(y, lanes, static_cast<size_t>(valid < kLanes ? valid : kLanes) * sizeof *y);
    }
    return;
  }
  const F scale = load_n(t.scales + channel, valid);
  const F bias = t.bias == nullptr ? zero() : load_n(t.bias + channel, valid);
  for (int64_t r = 0; r < rows; ++r) {
    F y = mul(units_to_float(sums[2 * r]), scale);
    if (t.bias != nullptr) y = add(y, bias);
    store_n(static_cast<float*>(t.y) + (row + r) * t.y_stride + channel, y, valid);
  }
}

template <bool kBytes, int kRows>
void integer_rows(const IntegerTask& t, int64_t row, int64_t panel) {
  const std::byte* w = t.panels + panel * t.panel_bytes;
  const int32_t* const start = t.start + panel * 2 * kLanes;
  RowPointers<kRows> x(t.x + row * t.x_row_bytes, t.x_row_bytes);
  Unit acc[kRows][2];
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = load_units(start);
    acc[r][1] = load_units(start + kLanes);
  }
  for (int64_t u = 0; u < t.units; ++u) {
    const Unit w0 = load_units(w), w1 = load_units(w + 4 * kLanes);
    LMN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Unit b = same_units(x.at(r, 0));
      acc[r][0] = multiply_units<kBytes>(acc[r][0], w0, b);
      acc[r][1] = multiply_units<kBytes>(acc[r][1], w1, b);
    }
    x.advance(4);
    w += 8 * kLanes;
  }
  Unit out[kRows][2];
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    out[r][0] = acc[r][0];
    out[r][1] = acc[r][1];
  }
  finish_integers(t, row, kRows, panel * 2 * kLanes, &out[0][0]);
  finish_integers(t, row, kRows, panel * 2 * kLanes + kLanes, &out[0][1]);
}

// Tiles of kRows = rows, which is in [1, kRows].
template <bool kBytes, int kRows>
void integer_any_rows(const IntegerTask& t, int64_t rows, int64_t row, int64_t panel) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return integer_any_rows<kBytes, kRows - 1>(t, rows, row, panel);
  }
  integer_rows<kBytes, kRows>(t, row, panel);
}

template <bool kBytes>
LMN_INLINE void integer_product(const IntegerTask& t) {
  for (int64_t panel = t.panel_begin; panel < t.panel_end; ++panel) {
    for (int64_t row = 0; row < t.rows;) {
      const int64_t left = t.rows - row, tiles = (left + kIndirectRows - 1) / kIndirectRows;
      const int64_t rows = (left + tiles - 1) / tiles;
      integer_any_rows<kBytes, kIndirectRows>(t, rows, row, panel);
      row += rows;
    }
  }
}

void integer_words(const IntegerTask& t) { integer_product<false>(t); }
#if defined(__AVX512VNNI__)
void integer_bytes(const IntegerTask& t) { integer_product<true>(t); }
constexpr auto kIntegerBytes = &integer_bytes;
#else
constexpr void (*kIntegerBytes)(const IntegerTask&) = nullptr;
#endif
