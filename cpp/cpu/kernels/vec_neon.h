// SPDX-License-Identifier: Apache-2.0
//
// The vector types and operations of 64-bit ARM, for three instruction sets: ARMv8.0, and with
// dotprod, and with i8mm (the file that includes this is compiled with their flags). Names are
// explained in vec_avx2.h; the integer products are in vec_neon_int-inl.h.
//
// A vector is a pair of registers: 8 lanes, as on AVX2, so that the panels and the order of every
// reduction are the same there and here. 32 registers of 128 bits hold as many pairs as AVX2 has
// registers.

constexpr int kLanes = 8;
constexpr bool kTallTile = true;      // 8 rows: 16 sums, 8 weights, an activation: 25 of 32
constexpr int kMaxFloatTileRows = 6;  // 24 sums, 4 weights, an activation: 29 of 32
constexpr int kAttentionQueries = 3;  // by 4 vectors: 24 sums, 3 queries, 2 operands: 29 of 32

struct F {
  float32x4_t lo, hi;
};
struct I {
  int32x4_t lo, hi;
};

LMN_INLINE F set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
LMN_INLINE F zero() { return set1(0.0f); }
LMN_INLINE F load1(const float* p) {
  const float32x4_t x = vld1q_dup_f32(p);
  return {x, x};
}
LMN_INLINE F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
LMN_INLINE void store(float* p, F x) {
  vst1q_f32(p, x.lo);
  vst1q_f32(p + 4, x.hi);
}
// There are no masked accesses: what is not whole goes lane by lane.
LMN_INLINE F load_n(const float* p, int64_t n) {
  if (n >= kLanes) return load(p);
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
LMN_INLINE void store_n(float* p, F x, int64_t n) {
  if (n >= kLanes) return store(p, x);
  float lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
LMN_INLINE F keep_n(F x, F other, int64_t n) {  // lanes below n of x, the rest of other
  const int32x4_t count = vdupq_n_s32(static_cast<int>(n));
  const int32x4_t lane = {0, 1, 2, 3};
  return {vbslq_f32(vcltq_s32(lane, count), x.lo, other.lo),
          vbslq_f32(vcltq_s32(vaddq_s32(lane, vdupq_n_s32(4)), count), x.hi, other.hi)};
}

LMN_INLINE F add(F a, F b) { return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
LMN_INLINE F sub(F a, F b) { return {vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
LMN_INLINE F mul(F a, F b) { return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
LMN_INLINE F div(F a, F b) { return {vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }
LMN_INLINE F fma(F a, F b, F c) {
  return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
// By comparison: fmax and fmin of ARM would return the NaN.
LMN_INLINE float32x4_t max4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
LMN_INLINE float32x4_t min4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
LMN_INLINE F max(F a, F b) { return {max4(a.lo, b.lo), max4(a.hi, b.hi)}; }
LMN_INLINE F min(F a, F b) { return {min4(a.lo, b.lo), min4(a.hi, b.hi)}; }
LMN_INLINE F select_less(F a, F b, F yes, F no) {
  return {vbslq_f32(vcltq_f32(a.lo, b.lo), yes.lo, no.lo),
          vbslq_f32(vcltq_f32(a.hi, b.hi), yes.hi, no.hi)};
}
LMN_INLINE float square_root(float x) { return __builtin_sqrtf(x); }

// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
LMN_INLINE float reduce_add(F x) {
  const float32x4_t s = vaddq_f32(x.lo, x.hi);
  const float32x2_t pair = vadd_f32(vget_low_f32(s), vget_high_f32(s));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
LMN_INLINE float reduce_max(F x) {
  float32x4_t m = max4(x.lo, x.hi);
  m = max4(m, vextq_f32(m, m, 2));
  m = max4(m, vextq_f32(m, m, 1));
  return vgetq_lane_f32(m, 0);
}

// float16 and bfloat16 in memory
LMN_INLINE F load_half(const void* p) {
  const uint16x8_t h = vld1q_u16(static_cast<const uint16_t*>(p));
  return {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))),
          vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h)))};
}
LMN_INLINE void store_half(void* p, F x) {
  const uint16x4_t lo = vreinterpret_u16_f16(vcvt_f16_f32(x.lo));
  const uint16x4_t hi = vreinterpret_u16_f16(vcvt_f16_f32(x.hi));
  vst1q_u16(static_cast<uint16_t*>(p), vcombine_u16(lo, hi));
}
LMN_INLINE F load_bfloat(const void* p) {
  const uint16x8_t h = vld1q_u16(static_cast<const uint16_t*>(p));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(h), 16))};
}
// kLanes small integers in memory, as floats
LMN_INLINE F load_u8(const void* p) {
  const uint16x8_t x = vmovl_u8(vld1_u8(static_cast<const uint8_t*>(p)));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(x))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(x)))};
}
LMN_INLINE F load_s8(const void* p) {
  const int16x8_t x = vmovl_s8(vld1_s8(static_cast<const int8_t*>(p)));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(x)))};
}

// For exp: nearest integer, and 2^n of an integral float in [-126, 127]
LMN_INLINE F round_nearest(F x) { return {vrndnq_f32(x.lo), vrndnq_f32(x.hi)}; }
LMN_INLINE float32x4_t power_of_2(float32x4_t n) {
  const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
}
LMN_INLINE F power_of_2(F n) { return {power_of_2(n.lo), power_of_2(n.hi)}; }

// For rotary embeddings: (x1, x0, x3, x2, ..); (p0, p0, p1, p1, ..); the same negated in even lanes
LMN_INLINE F swap_pairs(F x) { return {vrev64q_f32(x.lo), vrev64q_f32(x.hi)}; }
LMN_INLINE F load_pairs(const float* p) {
  const float32x4_t x = vld1q_f32(p);
  return {vzip1q_f32(x, x), vzip2q_f32(x, x)};
}
LMN_INLINE float32x4_t negate_even(float32x4_t x) {
  const uint32x4_t sign = {0x80000000u, 0, 0x80000000u, 0};
  return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), sign));
}
LMN_INLINE F negate_even(F x) { return {negate_even(x.lo), negate_even(x.hi)}; }

// For quantisation: the bits of the largest magnitude (as integers, so that a NaN is the largest of
// all), the rounded integers of 32 / kLanes vectors, stored as int8 or int16, and their sum.
LMN_INLINE uint32_t largest_magnitude(const F (&x)[32 / kLanes]) {
  uint32x4_t m = vdupq_n_u32(0);
  const auto take = [&m](float32x4_t v) {
    m = vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7FFFFFFF)));
  };
  LMN_UNROLL
  for (const F& v : x) {
    take(v.lo);
    take(v.hi);
  }
  return vmaxvq_u32(m);
}
LMN_INLINE int32_t store_integers(const F (&x)[32 / kLanes], float inverse, int8_t* q8,
                                  int16_t* q16) {
  int32x4_t total = vdupq_n_s32(0);
  LMN_UNROLL
  for (int i = 0; i < 32 / kLanes; ++i) {
    const int32x4_t lo = vcvtnq_s32_f32(vmulq_n_f32(x[i].lo, inverse));
    const int32x4_t hi = vcvtnq_s32_f32(vmulq_n_f32(x[i].hi, inverse));
    total = vaddq_s32(total, vaddq_s32(lo, hi));
    const int16x8_t words = vcombine_s16(vqmovn_s32(lo), vqmovn_s32(hi));
    if (q16 != nullptr) {
      vst1q_s16(q16 + kLanes * i, words);
    } else {
      vst1_s8(q8 + kLanes * i, vqmovn_s16(words));
    }
  }
  return vaddvq_s32(total);
}

LMN_INLINE F to_float(I x) { return {vcvtq_f32_s32(x.lo), vcvtq_f32_s32(x.hi)}; }
LMN_INLINE I zero_int() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
LMN_INLINE void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }  // second level

#include "cpu/kernels/transpose_neon-inl.h"
#include "cpu/kernels/vec_neon_int-inl.h"
