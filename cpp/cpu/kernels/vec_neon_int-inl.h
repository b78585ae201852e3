// SPDX-License-Identifier: Apache-2.0
//
// Integer products of 64-bit ARM. The layouts of panel_layout.h, with 8-bit weights signed; each
// layout brings its own block sums (linear_int-inl.h), as the products by an element of a vector
// need no broadcast. Half a block, 16 columns, is taken at a time: its weights fill 8 registers,
// through which the rows of the tile pass.
//
//   ARMv8.0   8-bit activations: 16-bit sums of products (smull, smlal), for 4-bit weights only
//   dotprod   sdot: 4 columns of 4 channels by 4 bytes of a row
//   i8mm      smmla: 8 columns of 2 channels by 8 bytes of 2 rows. The operands are made from the
//             same panel, 8 zips for half a block, and each register of sums then holds 2 channels
//             of 2 rows: 48 instructions where sdot takes 64 for 8 rows, 28 against 32 for 4. With
//             fewer rows it would take more, so those have sdot. Integer sums are exact, hence the
//             same. A panel of 2 channels by 8 columns would save the zips, but cost the single row
//             a broadcast for each product, and that one decides the speed of decoding.
//   all       16-bit activations: smlal by an element, 2 x 4 channels for each column

// Half a block of bytes: unit u holds columns 4u to 4u + 3 of channels 0..3 and 4..7.
struct HalfBlock {
  int8x16_t lo[4], hi[4];
};

LMN_INLINE int8x16_t load_bytes(const std::byte* p) {
  return vld1q_s8(reinterpret_cast<const int8_t*>(p));
}

LMN_INLINE HalfBlock load_nibbles(const std::byte* p, bool high) {
  HalfBlock w;
  LMN_UNROLL
  for (int u = 0; u < 4; ++u) {
    const uint8x16_t lo = vreinterpretq_u8_s8(load_bytes(p + 32 * u));
    const uint8x16_t hi = vreinterpretq_u8_s8(load_bytes(p + 32 * u + 16));
    const uint8x16_t mask = vdupq_n_u8(15);
    w.lo[u] = vreinterpretq_s8_u8(high ? vshrq_n_u8(lo, 4) : vandq_u8(lo, mask));
    w.hi[u] = vreinterpretq_s8_u8(high ? vshrq_n_u8(hi, 4) : vandq_u8(hi, mask));
  }
  return w;
}

#if defined(__ARM_FEATURE_DOTPROD)

constexpr int kRowsOfMatrixProducts = 4;  // from so many rows on

template <int kRows, typename Rows>
LMN_INLINE void add_products(const HalfBlock& w, const Rows& q, int64_t column, I (&sum)[kRows]) {
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int8x16_t x = load_bytes(q.at(r, column));
    I s = sum[r];
    s.lo = vdotq_laneq_s32(s.lo, w.lo[0], x, 0);
    s.hi = vdotq_laneq_s32(s.hi, w.hi[0], x, 0);
    s.lo = vdotq_laneq_s32(s.lo, w.lo[1], x, 1);
    s.hi = vdotq_laneq_s32(s.hi, w.hi[1], x, 1);
    s.lo = vdotq_laneq_s32(s.lo, w.lo[2], x, 2);
    s.hi = vdotq_laneq_s32(s.hi, w.hi[2], x, 2);
    s.lo = vdotq_laneq_s32(s.lo, w.lo[3], x, 3);
    s.hi = vdotq_laneq_s32(s.hi, w.hi[3], x, 3);
    sum[r] = s;
  }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
LMN_INLINE int8x16_t zip_low(int8x16_t a, int8x16_t b) {  // dwords a0 b0 a1 b1
  return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}
LMN_INLINE int8x16_t zip_high(int8x16_t a, int8x16_t b) {  // dwords a2 b2 a3 b3
  return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}

// Sums of rows 2i and 2i + 1: element p is [channel 2p of both rows, channel 2p + 1 of both].
struct PairOfRows {
  int32x4_t channels[4];
};

template <int kPairs, typename Rows>
LMN_INLINE void add_matrix_products(const HalfBlock& w, const Rows& q, int64_t column,
                                    PairOfRows (&sum)[kPairs]) {
  int8x16_t m[2][4];  // of 8 columns each: channels 0 and 1, 2 and 3, 4 and 5, 6 and 7
  LMN_UNROLL
  for (int i = 0; i < 2; ++i) {
    m[i][0] = zip_low(w.lo[2 * i], w.lo[2 * i + 1]);
    m[i][1] = zip_high(w.lo[2 * i], w.lo[2 * i + 1]);
    m[i][2] = zip_low(w.hi[2 * i], w.hi[2 * i + 1]);
    m[i][3] = zip_high(w.hi[2 * i], w.hi[2 * i + 1]);
  }
  LMN_UNROLL
  for (int i = 0; i < kPairs; ++i) {
    const int64x2_t a = vreinterpretq_s64_s8(load_bytes(q.at(2 * i, column)));
    const int64x2_t b = vreinterpretq_s64_s8(load_bytes(q.at(2 * i + 1, column)));
    const int8x16_t x[2] = {vreinterpretq_s8_s64(vzip1q_s64(a, b)),
                            vreinterpretq_s8_s64(vzip2q_s64(a, b))};
    LMN_UNROLL
    for (int p = 0; p < 4; ++p) {
      int32x4_t s = sum[i].channels[p];
      s = vmmlaq_s32(s, m[0][p], x[0]);
      sum[i].channels[p] = vmmlaq_s32(s, m[1][p], x[1]);
    }
  }
}
#endif

// Layout::half(quants, half) loads half a block.
template <int kPart, int kParts, typename Layout, int kRows, typename Rows>
LMN_INLINE void sums_of_bytes(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
  constexpr int kFirst = 2 / kParts * kPart, kEnd = kFirst + 2 / kParts;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (kRows >= kRowsOfMatrixProducts && kRows % 2 == 0) {
    PairOfRows pairs[kRows / 2];
    LMN_UNROLL
    for (PairOfRows& pair : pairs) {
      LMN_UNROLL
      for (int32x4_t& channels : pair.channels) channels = vdupq_n_s32(0);
    }
    LMN_UNROLL
    for (int half = kFirst; half < kEnd; ++half)
      add_matrix_products(Layout::half(quants, half), q, 16 * half, pairs);
    LMN_UNROLL
    for (int i = 0; i < kRows / 2; ++i) {
      const int32x4_t(&c)[4] = pairs[i].channels;
      sum[2 * i] = {vuzp1q_s32(c[0], c[1]), vuzp1q_s32(c[2], c[3])};
      sum[2 * i + 1] = {vuzp2q_s32(c[0], c[1]), vuzp2q_s32(c[2], c[3])};
    }
    return;
  }
#endif
  LMN_UNROLL
  for (I& s : sum) s = zero_int();
  LMN_UNROLL
  for (int half = kFirst; half < kEnd; ++half)
    add_products(Layout::half(quants, half), q, 16 * half, sum);
}

// 8-bit weights, kQA8
struct Bytes8 {
  static constexpr int kBits = 8, kInputBytes = 1;
  static constexpr bool kBringsSums = true;
  static LMN_INLINE HalfBlock half(const std::byte* quants, int half) {
    HalfBlock w;
    LMN_UNROLL
    for (int u = 0; u < 4; ++u) {
      w.lo[u] = load_bytes(quants + 128 * half + 32 * u);
      w.hi[u] = load_bytes(quants + 128 * half + 32 * u + 16);
    }
    return w;
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_bytes<kPart, kParts, Bytes8>(quants, q, sum);
  }
};

// 4-bit weights, kQA8
struct Nibbles8 {
  static constexpr int kBits = 4, kInputBytes = 1;
  static constexpr bool kBringsSums = true;
  static LMN_INLINE HalfBlock half(const std::byte* quants, int half) {
    return load_nibbles(quants, half == 1);
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_bytes<kPart, kParts, Nibbles8>(quants, q, sum);
  }
};

// 5-bit weights, kQA8
struct Fives8 {
  static constexpr int kBits = 5, kInputBytes = 1;
  static constexpr bool kBringsSums = true;
  static LMN_INLINE HalfBlock half(const std::byte* quants, int half) {
    HalfBlock w = load_nibbles(quants, half == 1);
    const uint8x16_t lo = vreinterpretq_u8_s8(load_bytes(quants + 128));
    const uint8x16_t hi = vreinterpretq_u8_s8(load_bytes(quants + 128 + 16));
    LMN_UNROLL
    for (int u = 0; u < 4; ++u) {
      const int8x16_t left = vdupq_n_s8(static_cast<int8_t>(4 - (2 * u + half)));
      const uint8x16_t mask = vdupq_n_u8(16);
      w.lo[u] = vorrq_s8(w.lo[u], vreinterpretq_s8_u8(vandq_u8(vshlq_u8(lo, left), mask)));
      w.hi[u] = vorrq_s8(w.hi[u], vreinterpretq_s8_u8(vandq_u8(vshlq_u8(hi, left), mask)));
    }
    return w;
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_bytes<kPart, kParts, Fives8>(quants, q, sum);
  }
};

#else

// 4-bit weights, kQA8. A 16-bit sum of one of 4 columns over the 4 units is at most 4 * 15 * 127,
// 7620; neighbours are added in 16 bits too.
struct Nibbles8 {
  static constexpr int kBits = 4, kInputBytes = 1;
  static constexpr bool kBringsSums = true;
  static LMN_INLINE int32x4_t add_channels(int32x4_t sum, const int8x16_t (&w)[4],
                                           const int8x16_t (&x)[4]) {
    int16x8_t a = vmull_s8(vget_low_s8(w[0]), vget_low_s8(x[0])), b = vmull_high_s8(w[0], x[0]);
    LMN_UNROLL
    for (int u = 1; u < 4; ++u) {
      a = vmlal_s8(a, vget_low_s8(w[u]), vget_low_s8(x[u]));
      b = vmlal_high_s8(b, w[u], x[u]);
    }
    return vpadalq_s16(sum, vpaddq_s16(a, b));
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    static_assert(kParts == 1);
    LMN_UNROLL
    for (I& s : sum) s = zero_int();
    LMN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const HalfBlock w = load_nibbles(quants, half == 1);
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int32x4_t row = vreinterpretq_s32_s8(load_bytes(q.at(r, 16 * half)));
        const int8x16_t x[4] = {vreinterpretq_s8_s32(vdupq_laneq_s32(row, 0)),
                                vreinterpretq_s8_s32(vdupq_laneq_s32(row, 1)),
                                vreinterpretq_s8_s32(vdupq_laneq_s32(row, 2)),
                                vreinterpretq_s8_s32(vdupq_laneq_s32(row, 3))};
        sum[r] = {add_channels(sum[r].lo, w.lo, x), add_channels(sum[r].hi, w.hi, x)};
      }
    }
  }
};

#endif

// 16-bit activations: adds the products of four columns, each [channels 0..7], with four of a row.
LMN_INLINE void add_columns(const int16x8_t* w, int16x4_t x, I* sum) {
  I s = *sum;
  s.lo = vmlal_lane_s16(s.lo, vget_low_s16(w[0]), x, 0);
  s.hi = vmlal_high_lane_s16(s.hi, w[0], x, 0);
  s.lo = vmlal_lane_s16(s.lo, vget_low_s16(w[1]), x, 1);
  s.hi = vmlal_high_lane_s16(s.hi, w[1], x, 1);
  s.lo = vmlal_lane_s16(s.lo, vget_low_s16(w[2]), x, 2);
  s.hi = vmlal_high_lane_s16(s.hi, w[2], x, 2);
  s.lo = vmlal_lane_s16(s.lo, vget_low_s16(w[3]), x, 3);
  s.hi = vmlal_high_lane_s16(s.hi, w[3], x, 3);
  *sum = s;
}
LMN_INLINE int16x8_t load_words(const std::byte* p) {
  return vld1q_s16(reinterpret_cast<const int16_t*>(p));
}

// Layout::columns(quants, step, w) makes 8 columns of one step: 4 from column(step) on, and 4 from
// column(step) + kSecond on.
template <int kPart, int kParts, typename Layout, int kRows, typename Rows>
LMN_INLINE void sums_of_words(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
  constexpr int kSteps = Layout::kSteps / kParts;
  LMN_UNROLL
  for (I& s : sum) s = zero_int();
  LMN_UNROLL
  for (int step = kPart * kSteps; step < (kPart + 1) * kSteps; ++step) {
    int16x8_t w[8];
    Layout::columns(quants, step, w);
    LMN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto words = [&](int column) {
        return vld1_s16(reinterpret_cast<const int16_t*>(q.at(r, 2 * column)));
      };
      add_columns(w, words(Layout::column(step)), &sum[r]);
      add_columns(w + 4, words(Layout::column(step) + Layout::kSecond), &sum[r]);
    }
  }
}

// The first or the second half of the dwords of a unit.
LMN_INLINE uint16x8_t halves_of_unit(const std::byte* quants, int unit, int second) {
  const uint16x8_t a = vreinterpretq_u16_s16(load_words(quants + 32 * unit));
  const uint16x8_t b = vreinterpretq_u16_s16(load_words(quants + 32 * unit + 16));
  return second == 0 ? vuzp1q_u16(a, b) : vuzp2q_u16(a, b);
}
// x | (y shifted & mask)
LMN_INLINE int16x8_t insert_bits(int16x8_t x, uint16x8_t y, int left, uint16_t mask) {
  const uint16x8_t shifted = vshlq_u16(y, vdupq_n_s16(static_cast<int16_t>(left)));
  return vorrq_s16(x, vreinterpretq_s16_u16(vandq_u16(shifted, vdupq_n_u16(mask))));
}

// 4-bit weights, kQA16: the nibbles of a dword, low ones first, are columns 0, 16, 2, 18, 1, 17, 3
// and 19 of the step.
struct Nibbles16 {
  static constexpr int kBits = 4, kSteps = 4, kInputBytes = 2, kSecond = 16;
  static constexpr bool kBringsSums = true;
  static constexpr int column(int step) { return 4 * step; }
  static LMN_INLINE void columns(const std::byte* quants, int step, int16x8_t (&w)[8]) {
    const uint16x8_t mask = vdupq_n_u16(15);
    LMN_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const uint16x8_t v = halves_of_unit(quants, step, odd);
      w[odd] = vreinterpretq_s16_u16(vandq_u16(v, mask));
      w[4 + odd] = vreinterpretq_s16_u16(vandq_u16(vshrq_n_u16(v, 4), mask));
      w[2 + odd] = vreinterpretq_s16_u16(vandq_u16(vshrq_n_u16(v, 8), mask));
      w[6 + odd] = vreinterpretq_s16_u16(vshrq_n_u16(v, 12));
    }
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_words<kPart, kParts, Nibbles16>(quants, q, sum);
  }
};

// 5-bit weights, kQA16. By which of the shifts of panel_layout.h each of the 8 columns comes:
constexpr int kShiftOfColumn[] = {0, 0, 2, 2, 1, 1, 3, 3};
struct Fives16 : Nibbles16 {
  static constexpr int kBits = 5;
  static LMN_INLINE void columns(const std::byte* quants, int step, int16x8_t (&w)[8]) {
    Nibbles16::columns(quants, step, w);
    const uint16x8_t fifth[2] = {halves_of_unit(quants, 4, 0), halves_of_unit(quants, 4, 1)};
    LMN_UNROLL
    for (int i = 0; i < 8; ++i)
      w[i] = insert_bits(w[i], fifth[i % 2], 4 - fifth_bit(step, kShiftOfColumn[i]), 16);
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_words<kPart, kParts, Fives16>(quants, q, sum);
  }
};

// 6-bit weights, kQA16
struct Sixes16 : Nibbles16 {
  static constexpr int kBits = 6, kSecond = 8;
  static constexpr int column(int step) { return step / 2 * 16 + step % 2 * 4; }
  static LMN_INLINE void columns(const std::byte* quants, int step, int16x8_t (&w)[8]) {
    Nibbles16::columns(quants, step, w);
    const uint16x8_t high[2] = {halves_of_unit(quants, 4 + step / 2, 0),
                                halves_of_unit(quants, 4 + step / 2, 1)};
    LMN_UNROLL
    for (int i = 0; i < 8; ++i) {
      w[i] = insert_bits(w[i], high[i % 2], 4 - sixth_bits(step, kShiftOfColumn[i]), 48);
      w[i] = vsubq_s16(w[i], vdupq_n_s16(32));
    }
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_words<kPart, kParts, Sixes16>(quants, q, sum);
  }
};

// 8-bit weights, kQA16: a word is two neighbouring columns.
struct Bytes16 {
  static constexpr int kBits = 8, kSteps = 4, kInputBytes = 2, kSecond = 4;
  static constexpr bool kBringsSums = true;
  static constexpr int column(int step) { return 8 * step; }
  static LMN_INLINE void columns(const std::byte* quants, int step, int16x8_t (&w)[8]) {
    LMN_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int16x8_t v = load_words(quants + 64 * step + 16 * i);
      w[2 * i] = vshrq_n_s16(vshlq_n_s16(v, 8), 8);
      w[2 * i + 1] = vshrq_n_s16(v, 8);
    }
  }
  template <int kPart, int kParts, int kRows, typename Rows>
  static LMN_INLINE void sums(const std::byte* quants, const Rows& q, I (&sum)[kRows]) {
    sums_of_words<kPart, kParts, Bytes16>(quants, q, sum);
  }
};
