// SPDX-License-Identifier: Apache-2.0
//
// The vector types and operations of AVX-512 (F, BW, DQ, VL) with VNNI. Names are explained in
// vec_avx2.h.

constexpr int kLanes = 16;
constexpr bool kTallTile = true;      // 8 rows: 8 integer sums, 8 float ones, 4 weights
constexpr int kMaxFloatTileRows = 8;  // 16 sums
constexpr int kAttentionQueries = 6;  // by 4 vectors: 24 sums

using F = __m512;
using I = __m512i;

LMN_INLINE F zero() { return _mm512_setzero_ps(); }
LMN_INLINE F set1(float x) { return _mm512_set1_ps(x); }
LMN_INLINE F load1(const float* p) { return _mm512_set1_ps(*p); }
LMN_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
LMN_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
LMN_INLINE __mmask16 lane_mask(int64_t n) {  // lanes below n
  return n >= kLanes ? __mmask16{0xFFFF}
         : n <= 0    ? __mmask16{0}
                     : static_cast<__mmask16>((1u << n) - 1u);
}
LMN_INLINE F load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(lane_mask(n), p); }
LMN_INLINE void store_n(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, lane_mask(n), x); }
LMN_INLINE F keep_n(F x, F other, int64_t n) {
  return _mm512_mask_blend_ps(lane_mask(n), other, x);
}

LMN_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
LMN_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
LMN_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
LMN_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
LMN_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
LMN_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
LMN_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
LMN_INLINE F select_less(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
LMN_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

// Halves onto each other until one lane is left.
LMN_INLINE float reduce_add(F x) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
LMN_INLINE float reduce_max(F x) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

LMN_INLINE F load_half(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
LMN_INLINE void store_half(void* p, F x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
LMN_INLINE F load_bfloat(const void* p) {
  const I wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
LMN_INLINE F load_u8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
LMN_INLINE F load_s8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}

LMN_INLINE F round_nearest(F x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LMN_INLINE F power_of_2(F n) {
  const I exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}

LMN_INLINE F swap_pairs(F x) { return _mm512_permute_ps(x, 0xB1); }
LMN_INLINE F load_pairs(const float* p) {
  const I index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
LMN_INLINE F negate_even(F x) {
  return _mm512_castsi512_ps(
      _mm512_xor_epi32(_mm512_castps_si512(x), _mm512_set1_epi64(0x80000000)));
}

LMN_INLINE uint32_t largest_magnitude(const F (&x)[32 / kLanes]) {
  const I mask = _mm512_set1_epi32(0x7FFFFFFF);
  const I m = _mm512_max_epu32(_mm512_and_epi32(_mm512_castps_si512(x[0]), mask),
                               _mm512_and_epi32(_mm512_castps_si512(x[1]), mask));
  return _mm512_reduce_max_epu32(m);
}
LMN_INLINE int32_t store_integers(const F (&x)[32 / kLanes], float inverse, int8_t* q8,
                                  int16_t* q16) {
  const F factor = set1(inverse);
  const I low = _mm512_cvtps_epi32(mul(x[0], factor)), high = _mm512_cvtps_epi32(mul(x[1], factor));
  if (q16 != nullptr) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q16), _mm512_cvtepi32_epi16(low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q16 + 16), _mm512_cvtepi32_epi16(high));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q8), _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q8 + 16), _mm512_cvtepi32_epi8(high));
  }
  return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
}

LMN_INLINE F to_float(I x) { return _mm512_cvtepi32_ps(x); }
LMN_INLINE I zero_int() { return _mm512_setzero_si512(); }
LMN_INLINE I broadcast4(const std::byte* p) {
  int32_t dword;
  __builtin_memcpy(&dword, p, sizeof dword);
  return _mm512_set1_epi32(dword);
}
LMN_INLINE void prefetch(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

struct Bytes {  // operands of 4 unsigned bytes a lane
  using Weights = I;
  static constexpr int kInputBytes = 1, kUnitsPerSum = 8;
  static LMN_INLINE I dot(I sum, I w, I x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static LMN_INLINE I finish(I sum) { return sum; }
};
struct Words {  // operands of 2 signed words a lane
  using Weights = I;
  static constexpr int kInputBytes = 2, kUnitsPerSum = 16;
  static LMN_INLINE I dot(I sum, I w, I x) { return _mm512_dpwssd_epi32(sum, w, x); }
  static LMN_INLINE I finish(I sum) { return sum; }
};

LMN_INLINE I load_unit(const std::byte* quants, int unit) {
  return _mm512_loadu_si512(quants + 64 * unit);
}
// x | (y shifted & mask)
LMN_INLINE I insert_bits(I x, I y, int left, I mask) {
  const I shifted = left >= 0 ? _mm512_slli_epi16(y, static_cast<unsigned>(left))
                              : _mm512_srli_epi16(y, static_cast<unsigned>(-left));
  return _mm512_ternarylogic_epi32(x, shifted, mask, 0xF8);
}

struct Nibbles8 : Bytes {
  static constexpr int kBits = 4, kSteps = 4, kVectors = 2;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const I mask = _mm512_set1_epi8(15);
    const I v = load_unit(quants, step);
    w[0] = _mm512_and_si512(v, mask);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
  }
  static constexpr int column(int step, int vector) { return step * 4 + vector * 16; }
};

struct Fives8 : Nibbles8 {
  static constexpr int kBits = 5;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles8::unpack(quants, step, w);
    const I fifth = load_unit(quants, 4);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      w[v] = insert_bits(w[v], fifth, 4 - (2 * step + v), _mm512_set1_epi8(16));
  }
};

struct Nibbles16 : Words {
  static constexpr int kBits = 4, kSteps = 4, kVectors = 4;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const I mask = _mm512_set1_epi16(15);
    const I v = load_unit(quants, step);
    w[0] = _mm512_and_si512(v, mask);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    w[2] = _mm512_and_si512(_mm512_srli_epi16(v, 8), mask);
    w[3] = _mm512_srli_epi16(v, 12);
  }
  static constexpr int column(int step, int vector) {
    return step * 4 + vector % 2 * 16 + vector / 2 * 2;
  }
};

struct Fives16 : Nibbles16 {
  static constexpr int kBits = 5;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles16::unpack(quants, step, w);
    const I fifth = load_unit(quants, 4);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      w[v] = insert_bits(w[v], fifth, 4 - fifth_bit(step, v), _mm512_set1_epi16(16));
  }
};

struct Sixes16 : Nibbles16 {
  static constexpr int kBits = 6;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles16::unpack(quants, step, w);
    const I high = load_unit(quants, 4 + step / 2);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const I q = insert_bits(w[v], high, 4 - sixth_bits(step, v), _mm512_set1_epi16(48));
      w[v] = _mm512_sub_epi16(q, _mm512_set1_epi16(32));
    }
  }
  static constexpr int column(int step, int vector) {
    return step / 2 * 16 + step % 2 * 4 + vector % 2 * 8 + vector / 2 * 2;
  }
};

struct Bytes8 : Bytes {
  static constexpr int kBits = 8, kSteps = 4, kVectors = 2;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    w[0] = load_unit(quants, 2 * step);
    w[1] = load_unit(quants, 2 * step + 1);
  }
  static constexpr int column(int step, int vector) { return step * 8 + vector * 4; }
};

struct Bytes16 : Words {
  static constexpr int kBits = 8, kSteps = 4, kVectors = 4;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    LMN_UNROLL
    for (int v = 0; v < 4; ++v) {
      w[v] = _mm512_cvtepi8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quants) + 4 * step + v));
    }
  }
  static constexpr int column(int step, int vector) { return step * 8 + vector * 2; }
};

#include "cpu/kernels/transpose_sse-inl.h"
