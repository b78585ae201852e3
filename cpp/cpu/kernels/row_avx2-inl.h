// SPDX-License-Identifier: Apache-2.0
//
// RowSums of AVX2: 4-, 5- and 6-bit weights times one row of 16-bit activations, in products of
// bytes. An activation is 256 h + l, h its high byte, signed, and l its low one, unsigned. Weights
// are small enough to be the signed factor of l as well as the unsigned one of h, and unpack into
// bytes in half the instructions that 16-bit halves take:
//     sum of w x = 256 * (sum of w h) + (sum of w l)
// Both are summed in 16 bits for as long as these hold them: 2 * 31 * 255 * 4 < 2^16, and so on.

template <int kBits>
struct ByteRow {
  static constexpr bool kPrepares = true;
  static constexpr int kPerSum = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;  // products in 16 bits
  static constexpr int kParts = kBits == 6 ? 2 : 1;   // 6-bit weights: a scale for 16 columns each
  static constexpr int kSums = 8 / kParts / kPerSum;  // of 16 bits, in a part of a block
  static constexpr int64_t kBlockBytes = kBits == 6 ? 72 : 64;

  // Four columns are 8 bytes: the low ones of the first, third, second and fourth (the order of
  // the weights' bytes), then their high ones. For 6-bit weights, whose integers are offset by 32,
  // an int32 for each 16 columns, where their sum begins, follows: -32 * sum of x.
  static LMN_INLINE void prepare(const std::byte* x, int64_t blocks, std::byte* y) {
    const I order = _mm256_setr_epi8(0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15,  //
                                     0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15);
    for (int64_t b = 0; b < blocks; ++b, x += 64, y += kBlockBytes) {
      for (int half = 0; half < 2; ++half) {
        const I v = _mm256_loadu_si256(reinterpret_cast<const I*>(x) + half);
        _mm256_storeu_si256(reinterpret_cast<I*>(y) + half, _mm256_shuffle_epi8(v, order));
        if constexpr (kBits == 6) {
          const I pairs = _mm256_madd_epi16(v, _mm256_set1_epi16(-32));
          __m128i s =
              _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
          s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
          s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
          const int32_t begin = _mm_cvtsi128_si32(s) + kSums * 65536;
          __builtin_memcpy(y + 64 + 4 * half, &begin, sizeof begin);
        }
      }
    }
  }

  // Where the low and the high nibbles of unit `step` have their columns.
  static constexpr int column(int step, int high) {
    return kBits == 6 ? step / 2 * 16 + step % 2 * 4 + 8 * high : 4 * step + 16 * high;
  }
  static LMN_INLINE I operand(I unit, const std::byte* quants, int step, int high) {
    const I nibbles = _mm256_and_si256(shift_words(unit, -4 * high), _mm256_set1_epi8(15));
    if constexpr (kBits == 4) {
      return nibbles;
    } else {
      const I more = load_unit(quants, kBits == 6 ? 4 + step / 2 : 4);
      const int bit = kBits == 6 ? sixth_bits(step, high) : fifth_bit(step, high);
      const I mask = _mm256_set1_epi8((1 << kBits) - 16);
      return _mm256_or_si256(nibbles, _mm256_and_si256(shift_words(more, 4 - bit), mask));
    }
  }

  template <int kPart, int kOf, int kPanels>
  static LMN_INLINE void sums(const std::byte* const (&quants)[kPanels], const std::byte* x,
                              I (&sum)[kPanels]) {
    static_assert(kOf == kParts);
    // l is summed from -2^15 on in each of two halves of a lane, so that the sum is a signed one.
    const I lowest = _mm256_set1_epi16(-32768);
    LMN_UNROLL
    for (int i = 0; i < kPanels; ++i)
      sum[i] = kBits == 6 ? broadcast4(x + 64 + 4 * kPart) : _mm256_set1_epi32(kSums * 65536);
    constexpr int kSteps = 4 / kParts;
    I low[kPanels], high[kPanels], unit[kPanels];
    LMN_UNROLL
    for (int n = 0; n < 2 * kSteps; ++n) {
      const int step = kPart * kSteps + n / 2, nibble = n % 2;
      const I l = broadcast4(x + 2 * column(step, nibble));
      const I h = broadcast4(x + 2 * column(step, nibble) + 4);
      LMN_UNROLL
      for (int i = 0; i < kPanels; ++i) {
        if (nibble == 0) unit[i] = keep(load_unit(quants[i], step));
        const I w = operand(unit[i], quants[i], step, nibble);
        const I wl = _mm256_maddubs_epi16(l, w), wh = _mm256_maddubs_epi16(w, h);
        low[i] = keep(_mm256_add_epi16(n % kPerSum == 0 ? lowest : low[i], wl));
        high[i] = n % kPerSum == 0 ? wh : keep(_mm256_add_epi16(high[i], wh));
        if (n % kPerSum == kPerSum - 1) {
          sum[i] = keep(_mm256_add_epi32(sum[i], _mm256_madd_epi16(low[i], _mm256_set1_epi16(1))));
          sum[i] =
              keep(_mm256_add_epi32(sum[i], _mm256_madd_epi16(high[i], _mm256_set1_epi16(256))));
        }
      }
    }
  }
};
template <>
struct RowSums<Nibbles16> : ByteRow<4> {};
template <>
struct RowSums<Fives16> : ByteRow<5> {};
template <>
struct RowSums<Sixes16> : ByteRow<6> {};
