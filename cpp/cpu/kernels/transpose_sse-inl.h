// SPDX-License-Identifier: Apache-2.0
//
// Transposes of 8 rows in SSE, for the packing of x86. Included by vec_avx2.h and vec_avx512.h.

// What happens to bytes on the way: nothing, the middle two of each dword change places, or a
// constant is added.
enum class ByteChange { kNone, kSwapMiddle, kAdd };

// Four dwords at rows[i] + offset, i < 8 -> 4 runs of 8 dwords, `stride` bytes apart.
LMN_INLINE void transpose_dwords(const std::byte* const (&rows)[8], int64_t offset, std::byte* y,
                                 int64_t stride, ByteChange change, int constant) {
  const __m128i swap = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  const __m128i addend = _mm_set1_epi8(static_cast<char>(constant));
  LMN_UNROLL
  for (int half = 0; half < 2; ++half) {
    __m128i r[4];
    LMN_UNROLL
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[4 * half + i] + offset));
      if (change == ByteChange::kSwapMiddle) r[i] = _mm_shuffle_epi8(r[i], swap);
      if (change == ByteChange::kAdd) r[i] = _mm_add_epi8(r[i], addend);
    }
    const __m128i a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpacklo_epi32(r[2], r[3]);
    const __m128i c = _mm_unpackhi_epi32(r[0], r[1]), d = _mm_unpackhi_epi32(r[2], r[3]);
    std::byte* p = y + 16 * half;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi64(a, b));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + stride), _mm_unpackhi_epi64(a, b));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 2 * stride), _mm_unpacklo_epi64(c, d));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 3 * stride), _mm_unpackhi_epi64(c, d));
  }
}

// Eight words at rows[i] + offset, i < 8 -> 8 runs of 8 words, `stride` bytes apart.
LMN_INLINE void transpose_words(const std::byte* const (&rows)[8], int64_t offset, std::byte* y,
                                int64_t stride) {
  __m128i r[8];
  LMN_UNROLL
  for (int i = 0; i < 8; ++i)
    r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + offset));
  const __m128i a0 = _mm_unpacklo_epi16(r[0], r[1]), a1 = _mm_unpackhi_epi16(r[0], r[1]);
  const __m128i a2 = _mm_unpacklo_epi16(r[2], r[3]), a3 = _mm_unpackhi_epi16(r[2], r[3]);
  const __m128i a4 = _mm_unpacklo_epi16(r[4], r[5]), a5 = _mm_unpackhi_epi16(r[4], r[5]);
  const __m128i a6 = _mm_unpacklo_epi16(r[6], r[7]), a7 = _mm_unpackhi_epi16(r[6], r[7]);
  const __m128i b0 = _mm_unpacklo_epi32(a0, a2), b1 = _mm_unpackhi_epi32(a0, a2);
  const __m128i b2 = _mm_unpacklo_epi32(a4, a6), b3 = _mm_unpackhi_epi32(a4, a6);
  const __m128i b4 = _mm_unpacklo_epi32(a1, a3), b5 = _mm_unpackhi_epi32(a1, a3);
  const __m128i b6 = _mm_unpacklo_epi32(a5, a7), b7 = _mm_unpackhi_epi32(a5, a7);
  const auto put = [&](int i, __m128i v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i * stride), v);
  };
  put(0, _mm_unpacklo_epi64(b0, b2));
  put(1, _mm_unpackhi_epi64(b0, b2));
  put(2, _mm_unpacklo_epi64(b1, b3));
  put(3, _mm_unpackhi_epi64(b1, b3));
  put(4, _mm_unpacklo_epi64(b4, b6));
  put(5, _mm_unpackhi_epi64(b4, b6));
  put(6, _mm_unpacklo_epi64(b5, b7));
  put(7, _mm_unpackhi_epi64(b5, b7));
}
