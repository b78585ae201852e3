// SPDX-License-Identifier: Apache-2.0
//
// Attention over one chunk of tokens of one KV head: scores, softmax, weighted values. What pages
// hold (float32, float16, or signed bytes in blocks of 32 with a scale) becomes floats where it is
// multiplied, or once for all queries of a tile: the same products either way.

constexpr int64_t kChunkTokens = 32;
constexpr int kValueVectors = 4;

// What keys and values are read from: elements of pages, for which the inner loops prefetch what
// comes next, or floats made from them.
struct FloatElements {
  static constexpr int64_t kBytes = 4;
  static constexpr bool kExpand = false;  // into floats: 5 % slower than to convert each time …
  static constexpr bool kPrefetch = true;
  static LMN_INLINE F get(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct HalfElements {
  static constexpr int64_t kBytes = 2;
  static constexpr bool kExpand = kLanes > 8;  // … here too with 8 lanes, 5 % faster with 16 …
  static constexpr bool kPrefetch = true;
  static LMN_INLINE F get(const std::byte* p) { return load_half(p); }
};
struct ByteElements {
  static constexpr int64_t kBytes = 1;
  static constexpr bool kExpand = true;  // … and 11 to 17 % faster here
  static constexpr bool kPrefetch = true;
  static LMN_INLINE F get(const std::byte* p) { return load_s8(p); }
};
struct ExpandedElements : FloatElements {
  static constexpr bool kPrefetch = false;
};
template <typename E>
LMN_INLINE F get_n(const std::byte* p, int64_t n) {
  alignas(64) std::byte some[kLanes * E::kBytes] = {};
  __builtin_memcpy(some, p, static_cast<size_t>(n * E::kBytes));
  return E::get(some);
}

// A chunk of one KV head. Strides in bytes.
struct Chunk {
  const std::byte* keys;    // of dimension 0, key_stride from one dimension to the next
  const std::byte* values;  // of the first token, value_stride from one token to the next
  int64_t key_stride, value_stride;
  const std::byte* next_keys;  // the same of the chunk that will be wanted after this one
  const std::byte* next_values;
  // Where elements come in blocks of 32 with a scale: float16 [head_dim / 32, tokens], scale_stride
  // from one block to the next. Null otherwise.
  const std::byte* key_scales;
  const std::byte* value_scales;
  int64_t scale_stride;
};

// scores[q][token] = sum over d of q[d] * key[d][token], for kQueries queries and kVectors * kLanes
// tokens. Blocks with a scale are summed apart, scaled, and added in order.
template <typename E, int kVectors, int kQueries>
LMN_INLINE void score_group(const float* q, int64_t width, int64_t head_dim, const Chunk& c,
                            bool prefetching, float* scores) {
  const std::byte* keys = c.keys;
  const std::byte* next = prefetching ? c.next_keys : c.keys;
  const int64_t block = c.key_scales != nullptr ? 32 : head_dim;
  for (int64_t begin = 0; begin < head_dim; begin += block) {
    F sum[kQueries][kVectors];
    LMN_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      LMN_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = zero();
    }
    for (int64_t d = begin; d < begin + block; ++d) {
      if constexpr (E::kPrefetch) {
        LMN_UNROLL
        for (int i = 0; i < kVectors * kLanes * E::kBytes; i += 64) prefetch(next + i);
      }
      F b[kQueries];  // these stay in registers and keys pass through one: 12 + 3 + 1 of 16
      LMN_UNROLL
      for (int i = 0; i < kQueries; ++i) b[i] = load1(q + i * width + d);
      LMN_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const F k = E::get(keys + v * kLanes * E::kBytes);
        LMN_UNROLL
        for (int i = 0; i < kQueries; ++i) sum[i][v] = fma(b[i], k, sum[i][v]);
      }
      keys += c.key_stride;
      next += c.key_stride;
    }
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (c.key_scales != nullptr) {
        const F scale = load_half(c.key_scales + begin / 32 * c.scale_stride + v * kLanes * 2);
        LMN_UNROLL
        for (int i = 0; i < kQueries; ++i) {
          float* y = scores + i * kChunkTokens + v * kLanes;
          sum[i][v] = begin == 0 ? mul(sum[i][v], scale) : fma(sum[i][v], scale, load(y));
        }
      }
      LMN_UNROLL
      for (int i = 0; i < kQueries; ++i) store(scores + i * kChunkTokens + v * kLanes, sum[i][v]);
    }
  }
}

// Any number of queries, in groups of at most kQueries.
template <typename E, int kVectors, int kQueries = kAttentionQueries>
LMN_NOINLINE void score_queries(const float* q, int64_t width, int64_t head_dim, const Chunk& c,
                                bool prefetching, float* scores, int64_t queries) {
  for (; queries >= kQueries; queries -= kQueries) {
    score_group<E, kVectors, kQueries>(q, width, head_dim, c, prefetching, scores);
    q += kQueries * width;
    scores += kQueries * kChunkTokens;
    prefetching = false;
  }
  if constexpr (kQueries > 1) {
    if (queries == 0) return;
    score_queries<E, kVectors, kQueries - 1>(q, width, head_dim, c, prefetching, scores, queries);
  }
}

// acc[q][d] += p[q][token] * value[token][d] for kQueries queries and kVectors vectors of d, token
// by token.
template <typename E, int kVectors, int kQueries>
LMN_INLINE void value_group(const float* p, const std::byte* values, const std::byte* next,
                            int64_t value_stride, int64_t tokens, int64_t valid, float* acc,
                            int64_t width) {
  F sum[kQueries][kVectors];
  LMN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[i][v] = load(acc + i * width + v * kLanes);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    if constexpr (E::kPrefetch) {
      LMN_UNROLL
      for (int i = 0; i < kVectors * kLanes * E::kBytes; i += 64) prefetch(next + i);
    }
    F b[kQueries];
    LMN_UNROLL
    for (int i = 0; i < kQueries; ++i) b[i] = load1(p + i * kChunkTokens + t);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::byte* at = values + v * kLanes * E::kBytes;
      const F x = kVectors > 1 || valid >= kLanes ? E::get(at) : get_n<E>(at, valid);
      LMN_UNROLL
      for (int i = 0; i < kQueries; ++i) sum[i][v] = fma(b[i], x, sum[i][v]);
    }
    values += value_stride;
    next += value_stride;
  }
  LMN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) store(acc + i * width + v * kLanes, sum[i][v]);
  }
}

// Dimensions [begin, end).
template <typename E, int kQueries>
LMN_INLINE void value_group_all(const float* p, const Chunk& c, bool prefetching, int64_t tokens,
                                int64_t begin, int64_t end, float* acc, int64_t width) {
  const std::byte* next = prefetching ? c.next_values : c.values;
  int64_t d = begin;
  const auto step = [&]<int kVectors>() {
    const int64_t at = d * E::kBytes;
    value_group<E, kVectors, kQueries>(p, c.values + at, next + at, c.value_stride, tokens, end - d,
                                       acc + d, width);
    d += kVectors * kLanes;
  };
  while (d + kValueVectors * kLanes <= end) step.template operator()<kValueVectors>();
  if constexpr (kBlockVectors < kValueVectors) {
    while (d + kBlockVectors * kLanes <= end) step.template operator()<kBlockVectors>();
  }
  while (d < end) step.template operator()<1>();
}

template <typename E, int kQueries = kAttentionQueries>
LMN_NOINLINE void value_queries(const float* p, const Chunk& c, bool prefetching, int64_t tokens,
                                int64_t begin, int64_t end, float* acc, int64_t width,
                                int64_t queries) {
  for (; queries >= kQueries; queries -= kQueries) {
    value_group_all<E, kQueries>(p, c, prefetching, tokens, begin, end, acc, width);
    p += kQueries * kChunkTokens;
    acc += kQueries * width;
    prefetching = false;
  }
  if constexpr (kQueries > 1) {
    if (queries == 0) return;
    value_queries<E, kQueries - 1>(p, c, prefetching, tokens, begin, end, acc, width, queries);
  }
}

// Scales of values are multiplied into the probabilities, block of 32 dimensions by block.
template <typename E>
LMN_INLINE void add_values(const float* p, float* scaled, const Chunk& c, int64_t tokens,
                           int64_t head_dim, float* acc, int64_t width, int64_t queries) {
  if (c.value_scales == nullptr)
    return value_queries<E>(p, c, true, tokens, 0, head_dim, acc, width, queries);
  for (int64_t begin = 0; begin < head_dim; begin += 32) {
    const std::byte* scales = c.value_scales + begin / 32 * c.scale_stride;
    for (int64_t t = 0; t < tokens; t += kLanes) {
      const F scale = load_half(scales + t * 2);
      for (int64_t i = 0; i < queries; ++i) {
        store(scaled + i * kChunkTokens + t, mul(load(p + i * kChunkTokens + t), scale));
      }
    }
    value_queries<E>(scaled, c, true, tokens, begin, begin + 32, acc, width, queries);
  }
}

// Elements of a chunk to floats: `keys` [head_dim, kChunkTokens], `values` [kChunkTokens, width].
template <typename E>
LMN_NOINLINE void expand_rows(const std::byte* x, const std::byte* next, int64_t x_stride,
                              int64_t rows, int64_t columns, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      if (i * E::kBytes % 64 == 0) prefetch(next + i * E::kBytes);
      store(y + i, E::get(x + i * E::kBytes));
    }
    if (i < columns) store(y + i, get_n<E>(x + i * E::kBytes, columns - i));
    x += x_stride;
    next += x_stride;
    y += y_stride;
  }
}

template <typename E>
LMN_INLINE Chunk expand(const Chunk& c, int64_t chunk, int64_t tokens, int64_t head_dim,
                        float* keys, float* values, int64_t width) {
  expand_rows<E>(c.keys, c.next_keys, c.key_stride, head_dim, chunk, keys, kChunkTokens);
  expand_rows<E>(c.values, c.next_values, c.value_stride, tokens, head_dim, values, width);
  Chunk y = c;
  y.keys = reinterpret_cast<const std::byte*>(keys);
  y.key_stride = kChunkTokens * 4;
  y.values = reinterpret_cast<const std::byte*>(values);
  y.value_stride = width * 4;
  return y;
}

// Turns one query's scores of a chunk into probabilities relative to its largest score so far; sums
// made under an older largest score are scaled down first. Tokens from `visible` on count as if
// they were not there.
template <bool kWhole>
LMN_INLINE void softmax_scores(float* scores, int64_t chunk, int64_t visible, float* largest,
                               float* totals, float* acc, int64_t width) {
  const F nothing = set1(-__builtin_inff());
  F top = nothing;
  for (int64_t i = 0; i < chunk; i += kLanes) {
    const F x = load(scores + i);
    top = max(top, kWhole ? x : keep_n(x, nothing, visible - i));
  }
  const float chunk_largest = reduce_max(top);
  if (chunk_largest > *largest) {
    const F factor = exponential(set1(*largest - chunk_largest));
    *largest = chunk_largest;
    store(totals, mul(load(totals), factor));
    for (int64_t d = 0; d < width; d += kLanes) store(acc + d, mul(load(acc + d), factor));
  }
  const F base = set1(*largest);
  F total = load(totals);
  for (int64_t i = 0; i < chunk; i += kLanes) {
    const F e = exponential(sub(load(scores + i), base));
    const F p = kWhole ? e : keep_n(e, zero(), visible - i);
    total = add(total, p);
    store(scores + i, p);
  }
  store(totals, total);
}

LMN_NOINLINE void softmax_step(float* scores, int64_t chunk, int64_t visible, float* largest,
                               float* totals, float* acc, int64_t width) {
  if (visible >= chunk) {
    softmax_scores<true>(scores, chunk, visible, largest, totals, acc, width);
  } else {
    softmax_scores<false>(scores, chunk, visible, largest, totals, acc, width);
  }
}
