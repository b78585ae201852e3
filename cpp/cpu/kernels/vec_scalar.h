// SPDX-License-Identifier: Apache-2.0
//
// The vector types and operations of no instruction set at all: plain C++ over 8 lanes, the same
// algorithms and the same packed layout as AVX2, for machines without it and as the second opinion
// in tests. Names are explained in vec_avx2.h.

constexpr int kLanes = 8;
constexpr bool kTallTile = false;
constexpr int kMaxFloatTileRows = 2;
constexpr int kAttentionQueries = 2;

struct F {
  float v[kLanes];
};
struct I {
  int32_t v[kLanes];
};

template <typename Op>
LMN_INLINE F each(Op op) {
  F r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = op(i);
  return r;
}

LMN_INLINE F set1(float x) {
  return each([&](int) { return x; });
}
LMN_INLINE F zero() { return set1(0.0f); }
LMN_INLINE F load1(const float* p) { return set1(*p); }
LMN_INLINE F load(const float* p) {
  return each([&](int i) { return p[i]; });
}
LMN_INLINE void store(float* p, F x) {
  for (int i = 0; i < kLanes; ++i) p[i] = x.v[i];
}
LMN_INLINE F load_n(const float* p, int64_t n) {
  return each([&](int i) { return i < n ? p[i] : 0.0f; });
}
LMN_INLINE void store_n(float* p, F x, int64_t n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = x.v[i];
}
LMN_INLINE F keep_n(F x, F other, int64_t n) {
  return each([&](int i) { return i < n ? x.v[i] : other.v[i]; });
}

LMN_INLINE F add(F a, F b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
LMN_INLINE F sub(F a, F b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
LMN_INLINE F mul(F a, F b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
LMN_INLINE F div(F a, F b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
LMN_INLINE F fma(F a, F b, F c) {
  return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
LMN_INLINE F max(F a, F b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
LMN_INLINE F min(F a, F b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
LMN_INLINE F select_less(F a, F b, F yes, F no) {
  return each([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
LMN_INLINE float square_root(float x) { return __builtin_sqrtf(x); }

LMN_INLINE float reduce_add(F x) {
  return ((x.v[0] + x.v[4]) + (x.v[2] + x.v[6])) + ((x.v[1] + x.v[5]) + (x.v[3] + x.v[7]));
}
LMN_INLINE float reduce_max(F x) {
  float m = x.v[0];
  for (int i = 1; i < kLanes; ++i) m = m > x.v[i] ? m : x.v[i];
  return m;
}

template <typename T>
LMN_INLINE T element(const void* p, int i) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(p) + i * static_cast<int>(sizeof(T)),
                   sizeof value);
  return value;
}
LMN_INLINE F load_half(const void* p) {
  return each([&](int i) { return f16_to_f32(element<uint16_t>(p, i)); });
}
LMN_INLINE void store_half(void* p, F x) {
  for (int i = 0; i < kLanes; ++i) {
    const uint16_t h = f32_to_f16(x.v[i]);
    __builtin_memcpy(static_cast<char*>(p) + 2 * i, &h, sizeof h);
  }
}
LMN_INLINE F load_bfloat(const void* p) {
  return each([&](int i) { return bf16_to_f32(element<uint16_t>(p, i)); });
}
LMN_INLINE F load_u8(const void* p) {
  return each([&](int i) { return float(element<uint8_t>(p, i)); });
}
LMN_INLINE F load_s8(const void* p) {
  return each([&](int i) { return float(element<int8_t>(p, i)); });
}

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even, for magnitudes
// below 2^22.
LMN_INLINE F round_nearest(F x) {
  return each([&](int i) { return (x.v[i] + 12582912.0f) - 12582912.0f; });
}
LMN_INLINE F power_of_2(F n) {
  return each([&](int i) {
    const int32_t e = n.v[i] == n.v[i] ? static_cast<int32_t>(n.v[i]) : 0;
    const uint32_t bits = static_cast<uint32_t>(e + 127) << 23;
    float r;
    __builtin_memcpy(&r, &bits, sizeof r);
    return r;
  });
}

LMN_INLINE F swap_pairs(F x) {
  return each([&](int i) { return x.v[i ^ 1]; });
}
LMN_INLINE F load_pairs(const float* p) {
  return each([&](int i) { return p[i / 2]; });
}
LMN_INLINE F negate_even(F x) {
  return each([&](int i) { return i % 2 == 0 ? -x.v[i] : x.v[i]; });
}

LMN_INLINE uint32_t largest_magnitude(const F (&x)[32 / kLanes]) {
  uint32_t m = 0;
  for (const F& f : x) {
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t bits = element<uint32_t>(f.v, i) & 0x7FFFFFFFu;
      m = m > bits ? m : bits;
    }
  }
  return m;
}
LMN_INLINE int32_t store_integers(const F (&x)[32 / kLanes], float inverse, int8_t* q8,
                                  int16_t* q16) {
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) {
    const float scaled =
        x[i / kLanes].v[i % kLanes] * inverse;  // at most 32767 in magnitude, never a NaN
    const int32_t n = static_cast<int32_t>((scaled + 12582912.0f) - 12582912.0f);
    sum += n;
    if (q16 != nullptr) q16[i] = static_cast<int16_t>(n);
    if (q8 != nullptr) q8[i] = static_cast<int8_t>(n);
  }
  return sum;
}

LMN_INLINE F to_float(I x) {
  return each([&](int i) { return static_cast<float>(x.v[i]); });
}
LMN_INLINE I zero_int() { return I{}; }
LMN_INLINE uint32_t broadcast4(const std::byte* p) { return element<uint32_t>(p, 0); }
LMN_INLINE void prefetch(const std::byte*) {}

struct Nibbles8 {
  struct Weights {
    uint8_t v[4 * kLanes];
  };
  static constexpr int kBits = 4, kSteps = 4, kVectors = 2, kInputBytes = 1, kUnitsPerSum = 8;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const std::byte* p = quants + 4 * kLanes * step;
    for (int i = 0; i < 4 * kLanes; ++i) {
      w[0].v[i] = static_cast<uint8_t>(p[i]) & 15;
      w[1].v[i] = static_cast<uint8_t>(p[i]) >> 4;
    }
  }
  static constexpr int column(int step, int vector) { return step * 4 + vector * 16; }
  static LMN_INLINE I dot(I sum, const Weights& w, uint32_t x) {
    for (int c = 0; c < kLanes; ++c) {
      for (int i = 0; i < 4; ++i) sum.v[c] += w.v[4 * c + i] * element<int8_t>(&x, i);
    }
    return sum;
  }
  static LMN_INLINE I finish(I sum) { return sum; }
};

struct Pairs16 {  // int16 operands, two columns each
  struct Weights {
    int16_t v[2 * kLanes];
  };
  static LMN_INLINE I dot(I sum, const Weights& w, uint32_t x) {
    for (int c = 0; c < kLanes; ++c) {
      for (int i = 0; i < 2; ++i) sum.v[c] += w.v[2 * c + i] * element<int16_t>(&x, i);
    }
    return sum;
  }
  static LMN_INLINE I finish(I sum) { return sum; }
};

struct Nibbles16 : Pairs16 {
  static constexpr int kBits = 4, kSteps = 4, kVectors = 4, kInputBytes = 2, kUnitsPerSum = 16;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const std::byte* p = quants + 4 * kLanes * step;
    for (int i = 0; i < 2 * kLanes; ++i) {
      const uint16_t word = element<uint16_t>(p, i);
      for (int v = 0; v < kVectors; ++v) w[v].v[i] = static_cast<int16_t>((word >> (4 * v)) & 15);
    }
  }
  static constexpr int column(int step, int vector) {
    return step * 4 + vector % 2 * 16 + vector / 2 * 2;
  }
};

struct Fives16 : Nibbles16 {
  static constexpr int kBits = 5;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles16::unpack(quants, step, w);
    for (int i = 0; i < 2 * kLanes; ++i) {
      const uint32_t fifth = element<uint16_t>(quants + 16 * kLanes, i);
      for (int v = 0; v < kVectors; ++v)
        w[v].v[i] = static_cast<int16_t>(w[v].v[i] | (fifth >> fifth_bit(step, v) & 1) << 4);
    }
  }
};

struct Sixes16 : Nibbles16 {
  static constexpr int kBits = 6;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    Nibbles16::unpack(quants, step, w);
    for (int i = 0; i < 2 * kLanes; ++i) {
      const uint32_t high = element<uint16_t>(quants + (16 + 4 * (step / 2)) * kLanes, i);
      for (int v = 0; v < kVectors; ++v) {
        const uint32_t bits = high >> sixth_bits(step, v) & 3;
        w[v].v[i] = static_cast<int16_t>(static_cast<int>(w[v].v[i] | bits << 4) - 32);
      }
    }
  }
  static constexpr int column(int step, int vector) {
    return step / 2 * 16 + step % 2 * 4 + vector % 2 * 8 + vector / 2 * 2;
  }
};

struct Bytes16 : Pairs16 {
  static constexpr int kBits = 8, kSteps = 4, kVectors = 4, kInputBytes = 2, kUnitsPerSum = 16;
  static LMN_INLINE void unpack(const std::byte* quants, int step, Weights (&w)[kVectors]) {
    const std::byte* p = quants + 8 * kLanes * step;
    for (int v = 0; v < kVectors; ++v) {
      for (int i = 0; i < 2 * kLanes; ++i) w[v].v[i] = element<int8_t>(p, v * 2 * kLanes + i);
    }
  }
  static constexpr int column(int step, int vector) { return step * 8 + vector * 2; }
};

// Transposes for packing: transpose_sse-inl.h says what they do.
enum class ByteChange { kNone, kSwapMiddle, kAdd };

LMN_INLINE void transpose_dwords(const std::byte* const (&rows)[8], int64_t offset, std::byte* y,
                                 int64_t stride, ByteChange change, int constant) {
  for (int run = 0; run < 4; ++run) {
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 4; ++j) {
        const int from = change == ByteChange::kSwapMiddle && (j == 1 || j == 2) ? 3 - j : j;
        const int added = change == ByteChange::kAdd ? constant : 0;
        const int byte = static_cast<uint8_t>(rows[i][offset + 4 * run + from]) + added;
        y[run * stride + 4 * i + j] = static_cast<std::byte>(byte & 255);
      }
    }
  }
}
LMN_INLINE void transpose_words(const std::byte* const (&rows)[8], int64_t offset, std::byte* y,
                                int64_t stride) {
  for (int run = 0; run < 8; ++run) {
    for (int i = 0; i < 8; ++i)
      __builtin_memcpy(y + run * stride + 2 * i, rows[i] + offset + 2 * run, 2);
  }
}
