// SPDX-License-Identifier: Apache-2.0
//
// The vector types and operations of one instruction set: AVX2 with FMA and F16C. Included once, by
// avx2.cc, inside namespace lmn::cpu::avx2 and an unnamed namespace. vec_scalar.h and vec_avx512.h
// define the same names; vec-doc is here.
//
//   F, I          kLanes floats; kLanes int32 (or their bytes)
//   load/store    unaligned; the _n forms touch only the first n lanes and read zero elsewhere
//   fma(a, b, c)  a * b + c, rounded once where the set can
//   max/min       return the second operand when either is a NaN
//   Nibbles8, Nibbles16, Fives16, Sixes16, Bytes16 (and Fives8, Bytes8 where LMN_BYTE_DOT has
//   them): how the integers of panel_layout.h, of kBits each, are multiplied.
//     A block has kSteps steps; unpack() makes the kVectors operands of one, units; column(step,
//     vector) is the first column of a unit; dot() adds the products with that many columns of an
//     activation row, of up to kUnitsPerSum units; finish() is the int32, and add() that of more.
//     Or a layout has kBringsSums, and sums<part, parts>() makes the sums of a part of a block for
//     all rows of a tile. Wide, where a layout has it, is how units are kept once they are unpacked
//     (linear_wide-inl.h); first() is dot() onto nothing.

constexpr int kLanes = 8;
constexpr bool kTallTile =
    true;  // 8 rows: 8 sums, 4 weights, a mask and a product are 14 of 16 registers
constexpr int kMaxFloatTileRows = 6;  // 12 sums, 2 weights, an activation: 15 of 16 registers
constexpr int kAttentionQueries = 3;  // by 4 vectors: 12 sums, up to 4 operands

using F = __m256;
using I = __m256i;

LMN_INLINE F zero() { return _mm256_setzero_ps(); }
LMN_INLINE F set1(float x) { return _mm256_set1_ps(x); }
LMN_INLINE F load1(const float* p) { return _mm256_broadcast_ss(p); }
LMN_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
LMN_INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x); }
LMN_INLINE I lane_mask(int64_t n) {  // lanes below n are all ones
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LMN_INLINE F load_n(const float* p,
                    int64_t n) {  // masked accesses are slow on AMD: only where they must be
  return n >= kLanes ? load(p) : _mm256_maskload_ps(p, lane_mask(n));
}
LMN_INLINE void store_n(float* p, F x, int64_t n) {
  if (n >= kLanes) return store(p, x);
  _mm256_maskstore_ps(p, lane_mask(n), x);
}
LMN_INLINE F keep_n(F x, F other, int64_t n) {  // lanes below n of x, the rest of other
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(lane_mask(n)));
}

LMN_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
LMN_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
LMN_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
LMN_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
LMN_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
LMN_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
LMN_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
// a < b ? yes : no
LMN_INLINE F select_less(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
LMN_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
LMN_INLINE float reduce_add(F x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
LMN_INLINE float reduce_max(F x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// float16 and bfloat16 in memory
LMN_INLINE F load_half(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
LMN_INLINE void store_half(void* p, F x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
LMN_INLINE F load_bfloat(const void* p) {
  const I wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
// kLanes small integers in memory, as floats
LMN_INLINE F load_u8(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
LMN_INLINE F load_s8(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}

// For exp: nearest integer, and 2^n of an integral float in [-126, 127]
LMN_INLINE F round_nearest(F x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LMN_INLINE F power_of_2(F n) {
  const I exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

// For rotary embeddings: (x1, x0, x3, x2, ..); (p0, p0, p1, p1, ..); the same negated in even lanes
LMN_INLINE F swap_pairs(F x) { return _mm256_permute_ps(x, 0xB1); }
LMN_INLINE F load_pairs(const float* p) {
  const I index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), index);
}
LMN_INLINE F negate_even(F x) {
  return _mm256_xor_ps(x, _mm256_setr_ps(-0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f));
}

// For quantisation: the bits of the largest magnitude (as integers, so that a NaN is the largest of
// all), the rounded integers of 32 / kLanes vectors, stored as int8 or int16, and their sum.
LMN_INLINE uint32_t largest_magnitude(const F (&x)[32 / kLanes]) {
  const I mask = _mm256_set1_epi32(0x7FFFFFFF);
  I m = _mm256_and_si256(_mm256_castps_si256(x[0]), mask);
  LMN_UNROLL
  for (int i = 1; i < 32 / kLanes; ++i)
    m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(x[i]), mask));
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(s));
}
LMN_INLINE int32_t store_integers(const F (&x)[32 / kLanes], float inverse, int8_t* q8,
                                  int16_t* q16) {
  const F factor = set1(inverse);
  I n[4];
  LMN_UNROLL
  for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(mul(x[i], factor));
  const I total = _mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
  const I low = _mm256_packs_epi32(n[0], n[1]), high = _mm256_packs_epi32(n[2], n[3]);
  if (q16 != nullptr) {
    _mm256_storeu_si256(reinterpret_cast<I*>(q16), _mm256_permute4x64_epi64(low, 0xD8));
    _mm256_storeu_si256(reinterpret_cast<I*>(q16 + 16), _mm256_permute4x64_epi64(high, 0xD8));
  } else {
    const I bytes = _mm256_packs_epi16(low, high);  // groups of 4 in the order 0 2 4 6 1 3 5 7
    _mm256_storeu_si256(
        reinterpret_cast<I*>(q8),
        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  }
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

LMN_INLINE F to_float(I x) { return _mm256_cvtepi32_ps(x); }
LMN_INLINE I zero_int() { return _mm256_setzero_si256(); }
LMN_INLINE I broadcast4(const std::byte* p) {  // 4 bytes to every lane
  int32_t dword;
  __builtin_memcpy(&dword, p, sizeof dword);
  return _mm256_set1_epi32(dword);
}
// To the second level only, which has more misses in flight than the first: 18 against 9 GB/s in
// attention over a cold cache, a fifth more in matrix-vector products.
LMN_INLINE void prefetch(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

// Hides how a sum came about. Without it, GCC turns a chain of integer additions into a tree, which
// keeps dozens of products alive at once and spills nearly all of them (150 against 300 GOP/s).
LMN_INLINE I keep(I sum) {
  __asm__("" : "+x"(sum));
  return sum;
}

LMN_INLINE I load_unit(const std::byte* quants, int unit) {
  return _mm256_loadu_si256(reinterpret_cast<const I*>(quants) + unit);
}
LMN_INLINE I shift_words(I x, int left) {
  return left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
}

// Vectors of operands, and sums of their products in 32 bits.
struct Units {
  using Weights = I;
  static constexpr int kWideRows =
      4;  // by 2 panels: 8 sums, 2 weights, an activation, a product, a mask
  static constexpr int64_t kManyRows = 32;
  static LMN_INLINE I get(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const I*>(p));
  }
  static LMN_INLINE void put(std::byte* p, I x) { _mm256_storeu_si256(reinterpret_cast<I*>(p), x); }
  static LMN_INLINE I add(I a, I b) { return _mm256_add_epi32(a, b); }
};
// Units of 4 bytes a lane, unsigned weights and signed activations. dot() makes two 16-bit sums a
// lane.
struct Bytes : Units {
  using Wide = Bytes;
  static constexpr int kInputBytes = 1;
  static LMN_INLINE I first(I w, I x) { return keep(_mm256_maddubs_epi16(w, x)); }
  static LMN_INLINE I dot(I sum, I w, I x) {
    return keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x)));
  }
  static LMN_INLINE I finish(I sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};
// Units of 2 signed words a lane.
struct Words : Units {
  using Wide = Words;
  static constexpr int kInputBytes = 2;
  static LMN_INLINE I first(I w, I x) { return keep(_mm256_madd_epi16(w, x)); }
  static LMN_INLINE I dot(I sum, I w, I x) { return keep(add(sum, _mm256_madd_epi16(w, x))); }
  static LMN_INLINE I finish(I sum) { return sum; }
};

// 4-bit weights, kQA8: 16-bit sums hold a whole block: 32 / 4 units of at most 2 * 15 * 127 each is
// 30480.
struct Nibbles8 : Bytes {
  static constexpr int kBits = 4, kSteps = 4, kVectors = 2, kUnitsPerSum = 8;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const I mask = _mm256_set1_epi8(15);
    const I v = load_unit(quants, step);
    w[0] = _mm256_and_si256(v, mask);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
  }
  static constexpr int column(int step, int vector) { return step * 4 + vector * 16; }
};

// 5-bit weights, kQA8: 16-bit sums hold half a block, 16 / 4 units of at most 2 * 31 * 127 each.
struct Fives8 : Nibbles8 {
  static constexpr int kBits = 5, kUnitsPerSum = 4;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles8::unpack(quants, step, w);
    const I fifth = load_unit(quants, 4);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const I bit = shift_words(fifth, 4 - (2 * step + v));
      w[v] = _mm256_or_si256(w[v], _mm256_and_si256(bit, _mm256_set1_epi8(16)));
    }
  }
};

// 4-bit weights, kQA16
struct Nibbles16 : Words {
  static constexpr int kBits = 4, kSteps = 4, kVectors = 4, kUnitsPerSum = 16;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const I mask = _mm256_set1_epi16(15);
    const I v = load_unit(quants, step);
    w[0] = _mm256_and_si256(v, mask);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    w[2] = _mm256_and_si256(_mm256_srli_epi16(v, 8), mask);
    w[3] = _mm256_srli_epi16(v, 12);
  }
  static constexpr int column(int step, int vector) {
    return step * 4 + vector % 2 * 16 + vector / 2 * 2;
  }
};

// 5-bit weights, kQA16
struct Fives16 : Nibbles16 {
  static constexpr int kBits = 5;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles16::unpack(quants, step, w);
    const I fifth = load_unit(quants, 4);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const I bit =
          _mm256_and_si256(shift_words(fifth, 4 - fifth_bit(step, v)), _mm256_set1_epi16(16));
      w[v] = _mm256_or_si256(w[v], bit);
    }
  }
};

// 6-bit weights, kQA16
struct Sixes16 : Nibbles16 {
  static constexpr int kBits = 6;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles16::unpack(quants, step, w);
    const I high = load_unit(quants, 4 + step / 2);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const I bits =
          _mm256_and_si256(shift_words(high, 4 - sixth_bits(step, v)), _mm256_set1_epi16(48));
      w[v] = _mm256_sub_epi16(_mm256_or_si256(w[v], bits), _mm256_set1_epi16(32));
    }
  }
  static constexpr int column(int step, int vector) {
    return step / 2 * 16 + step % 2 * 4 + vector % 2 * 8 + vector / 2 * 2;
  }
};

// 8-bit weights, kQA16
struct Bytes16 : Words {
  static constexpr int kBits = 8, kSteps = 4, kVectors = 4, kUnitsPerSum = 16;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    LMN_UNROLL
    for (int v = 0; v < 4; ++v) {
      w[v] = _mm256_cvtepi8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(quants) + 4 * step + v));
    }
  }
  static constexpr int column(int step, int vector) { return step * 8 + vector * 2; }
};

#include "cpu/kernels/transpose_sse-inl.h"
