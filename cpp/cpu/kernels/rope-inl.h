// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embeddings and the writing of keys and values to their pages. Work is split by
// heads first, so that two workers rarely write the same cache line of a transposed key page.

// Rotates one head in place: (x0, x1) -> (x0 c - x1 s, x0 s + x1 c), as x c + (other of the pair)
// (-s or s).
LMN_INLINE void rotate_head(float* x, const float* cos_sin, int64_t rot_dim, ops::RopeStyle style) {
  const int64_t half = rot_dim / 2;
  if (style == ops::RopeStyle::kInterleaved) {
    for (int64_t i = 0; i < rot_dim; i += kLanes) {
      const int64_t n = rot_dim - i;
      if (n >= kLanes) {
        const F v = load(x + i), c = load_pairs(cos_sin + i / 2),
                s = negate_even(load_pairs(cos_sin + half + i / 2));
        store(x + i, fma(swap_pairs(v), s, mul(v, c)));
      } else {
        float c[kLanes] = {}, s[kLanes] = {};
        for (int64_t j = 0; j < n / 2; ++j) {
          c[j] = cos_sin[i / 2 + j];
          s[j] = cos_sin[half + i / 2 + j];
        }
        const F v = load_n(x + i, n);
        store_n(x + i, fma(swap_pairs(v), negate_even(load_pairs(s)), mul(v, load_pairs(c))), n);
      }
    }
  } else {
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t n = half - i;
      const F v0 = load_n(x + i, n), v1 = load_n(x + half + i, n);
      const F c = load_n(cos_sin + i, n), s = load_n(cos_sin + half + i, n);
      store_n(x + i, fma(v1, sub(zero(), s), mul(v0, c)), n);
      store_n(x + half + i, fma(v0, s, mul(v1, c)), n);
    }
  }
}

void rope(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::RopeArgs*>(args);
  const Range range = part_of(a.rows * a.heads, worker);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t t = i / a.heads, h = i % a.heads;
    rotate_head(a.x + t * a.x_stride + h * a.head_dim, a.cos_sin + t * a.rot_dim, a.rot_dim,
                a.style);
  }
}

// A block of 32 keys or values as q8_0: its integers, and its scale as the float16 that they are
// multiples of. Where the scale is no number, all integers are zero.
struct QuantizedBlock {
  alignas(32) int8_t q[32];
  uint16_t scale;
};
LMN_INLINE QuantizedBlock quantize_block(const float* x) {
  QuantizedBlock y;
  F v[kBlockVectors];
  LMN_UNROLL
  for (int i = 0; i < kBlockVectors; ++i) v[i] = load(x + i * kLanes);
  const uint32_t bits = largest_magnitude(v);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  const float wanted = largest / 127.0f;
  uint16_t halves[kLanes];
  float scales[kLanes];
  store_half(halves, set1(wanted));
  store(scales, load_half(halves));
  const float scale = scales[0];
  y.scale = halves[0];
  const bool usable = scale > 0.0f && scale < __builtin_inff();
  const F inverse = set1(usable ? 1.0f / scale : 0.0f);
  LMN_UNROLL
  for (int i = 0; i < kBlockVectors; ++i) {
    // A scale that was rounded down, as small ones may be by much, must not carry out of a byte.
    const F n = max(set1(-127.0f), min(set1(127.0f), mul(v[i], inverse)));
    v[i] = usable ? n : zero();
  }
  store_integers(v, 1.0f, y.q, nullptr);
  return y;
}

// Where KV head h of a slot lives: keys are strided by page_tokens, values are contiguous.
LMN_INLINE int64_t page_of(const ops::KvLayer& kv, int64_t slot, int64_t head) {
  return (slot / kv.page_tokens * kv.kv_heads + head) * kv.head_dim * kv.page_tokens;
}

void write_key(const ops::KvLayer& kv, int64_t slot, int64_t head, const float* k) {
  const int64_t stride = kv.page_tokens;
  const int64_t at = page_of(kv, slot, head) + slot % stride;
  if (kv.dtype == DType::kQ8_0) {
    std::byte* y = kv.k + page_of(kv, slot, head) / 32 * 34 + slot % stride;
    std::byte* scales = y + stride * kv.head_dim + slot % stride;
    for (int64_t d = 0; d < kv.head_dim; d += 32) {
      const QuantizedBlock block = quantize_block(k + d);
      for (int64_t i = 0; i < 32; ++i) y[(d + i) * stride] = static_cast<std::byte>(block.q[i]);
      __builtin_memcpy(scales + d / 32 * stride * 2, &block.scale, sizeof block.scale);
    }
    return;
  }
  if (kv.dtype == DType::kF32) {
    float* y = reinterpret_cast<float*>(kv.k) + at;
    for (int64_t d = 0; d < kv.head_dim; ++d) y[d * stride] = k[d];
    return;
  }
  uint16_t* y = reinterpret_cast<uint16_t*>(kv.k) + at;
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    const int64_t n = kv.head_dim - d < kLanes ? kv.head_dim - d : kLanes;
    uint16_t half[kLanes];
    store_half(half, load_n(k + d, n));
    for (int64_t i = 0; i < n; ++i) y[(d + i) * stride] = half[i];
  }
}

void write_value(const ops::KvLayer& kv, int64_t slot, int64_t head, const float* v) {
  const int64_t at = page_of(kv, slot, head) + slot % kv.page_tokens * kv.head_dim;
  if (kv.dtype == DType::kQ8_0) {
    const int64_t token = slot % kv.page_tokens;
    std::byte* page = kv.v + page_of(kv, slot, head) / 32 * 34;
    std::byte* scales = page + int64_t{kv.page_tokens} * kv.head_dim + token * 2;
    for (int64_t d = 0; d < kv.head_dim; d += 32) {
      const QuantizedBlock block = quantize_block(v + d);
      __builtin_memcpy(page + token * kv.head_dim + d, block.q, 32);
      __builtin_memcpy(scales + d / 32 * kv.page_tokens * 2, &block.scale, sizeof block.scale);
    }
    return;
  }
  if (kv.dtype == DType::kF32) {
    __builtin_memcpy(kv.v + 4 * at, v, static_cast<size_t>(4 * kv.head_dim));
    return;
  }
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    const int64_t n = kv.head_dim - d;
    if (n >= kLanes) {
      store_half(kv.v + 2 * (at + d), load(v + d));
    } else {
      uint16_t half[kLanes];
      store_half(half, load_n(v + d, n));
      __builtin_memcpy(kv.v + 2 * (at + d), half, static_cast<size_t>(2 * n));
    }
  }
}

void kv_write(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::KvWriteArgs*>(args);
  const ops::KvLayer& kv = *a.kv;
  const Range range = part_of(2 * kv.kv_heads * a.rows, worker);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t t = i % a.rows, h = i / a.rows;
    if (h < kv.kv_heads) {
      write_key(kv, a.slots[t], h, a.k + t * a.k_stride + h * kv.head_dim);
    } else {
      write_value(kv, a.slots[t], h - kv.kv_heads,
                  a.v + t * a.v_stride + (h - kv.kv_heads) * kv.head_dim);
    }
  }
}

void rope_kv_write(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::RopeKvWriteArgs*>(args);
  const ops::KvLayer& kv = *a.kv;
  const int64_t heads = a.heads + 2 * kv.kv_heads;
  const Range range = part_of(heads * a.rows, worker);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t t = i % a.rows, h = i / a.rows;
    float* x = a.qkv + (t * heads + h) * kv.head_dim;
    if (h < a.heads + kv.kv_heads) rotate_head(x, a.cos_sin + t * a.rot_dim, a.rot_dim, a.style);
    if (h < a.heads) continue;
    if (h < a.heads + kv.kv_heads) {
      write_key(kv, a.slots[t], h - a.heads, x);
    } else {
      write_value(kv, a.slots[t], h - a.heads - kv.kv_heads, x);
    }
  }
}
