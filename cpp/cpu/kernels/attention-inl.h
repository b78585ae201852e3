// SPDX-License-Identifier: Apache-2.0
//
// Attention over paged keys and values: online softmax (Milakov and Gimelshein, 2018), page by page
// in the order of positions, in chunks of kChunkTokens (16 where a page is no multiple of 32). Some
// consecutive rows of one sequence and some query heads of one KV head form a tile that reads every
// page once.
//
// For one query (a row's head) the order of operations is fixed by its position alone: a score is
// one accumulator over head_dim; a chunk's probabilities are added to kLanes partial sums and to
// the output accumulator token by token. Chunks beyond the query's position are not touched for it,
// and within its last chunk neither are the values beyond. So a row has the same bits whatever else
// is in the call, and nothing that a page holds past its tokens can reach a result.

constexpr int64_t kChunkTokens = 32;
constexpr int64_t kTileQueries =
    48;  // of a tile: what they need beside a chunk fills one to two first-level caches
constexpr int kValueVectors = 4;
// A tile of more queries than this turns a chunk into floats before it is read.
constexpr int64_t kExpandQueries = 2 * kAttentionQueries;

template <bool kFirst, typename A, typename B>
struct Choose {
  using Type = A;
};
template <typename A, typename B>
struct Choose<false, A, B> {
  using Type = B;
};

// Scratch of one worker, in floats.
struct AttentionScratch {
  int64_t width;   // head_dim, a whole number of vectors
  float* q;        // [queries, width], times `scale`
  float* acc;      // [queries, width]
  float* scores;   // [queries, kChunkTokens]
  float* scaled;   // [queries, kChunkTokens]: scores times the scales of a block of q8_0 values
  float* totals;   // [queries, kLanes]
  float* keys;     // [head_dim, kChunkTokens], of a chunk
  float* values;   // [kChunkTokens, width], of a chunk
  float* largest;  // [queries]

  static int64_t queries_of(int64_t group) { return group > kTileQueries ? group : kTileQueries; }
  static int64_t width_of(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }
  static int64_t floats(int64_t head_dim, int64_t group) {
    return queries_of(group) * (2 * width_of(head_dim) + 2 * kChunkTokens + kLanes + 1) +
           2 * kChunkTokens * width_of(head_dim);
  }
  AttentionScratch(std::byte* base, int64_t head_dim, int64_t group) : width(width_of(head_dim)) {
    const int64_t queries = queries_of(group);
    q = reinterpret_cast<float*>(base);
    acc = q + queries * width;
    scores = acc + queries * width;
    scaled = scores + queries * kChunkTokens;
    totals = scaled + queries * kChunkTokens;
    keys = totals + queries * kLanes;
    values = keys + width * kChunkTokens;
    largest = values + width * kChunkTokens;
  }
};

size_t attention_scratch_bytes(int64_t head_dim, int64_t heads_per_kv_head) {
  return static_cast<size_t>(AttentionScratch::floats(head_dim, heads_per_kv_head)) * sizeof(float);
}

// What keys and values are read from: elements of pages, for which the inner loops prefetch what
// comes next, or floats made from them.
struct FloatElements {
  static constexpr int64_t kBytes = 4;
  static constexpr bool kPrefetch = true;
  static LMN_INLINE F get(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct HalfElements {
  static constexpr int64_t kBytes = 2;
  static constexpr bool kPrefetch = true;
  static LMN_INLINE F get(const std::byte* p) { return load_half(p); }
};
struct ByteElements {
  static constexpr int64_t kBytes = 1;
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

// Elements of a chunk to floats in scratch: worth it where more queries read them than a group has.
// The products are those of the elements themselves, so results are the same bits.
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
                        const AttentionScratch& s) {
  expand_rows<E>(c.keys, c.next_keys, c.key_stride, head_dim, chunk, s.keys, kChunkTokens);
  expand_rows<E>(c.values, c.next_values, c.value_stride, tokens, head_dim, s.values, s.width);
  Chunk y = c;
  y.keys = reinterpret_cast<const std::byte*>(s.keys);
  y.key_stride = kChunkTokens * 4;
  y.values = reinterpret_cast<const std::byte*>(s.values);
  y.value_stride = s.width * 4;
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

// Where chunks are, of one KV head and one sequence. Asking for one prefetches the next one's
// scales; its elements are prefetched by who reads this one's.
template <typename E>
struct ChunkFinder {
  const ops::KvLayer& kv;
  const int32_t* blocks;
  int64_t kv_head;

  LMN_INLINE Chunk at(int64_t begin, int64_t next_begin) const {
    const bool scales = kv.dtype == DType::kQ8_0;
    const int64_t elements = int64_t{kv.head_dim} * kv.page_tokens * E::kBytes;
    const int64_t head_bytes = scales ? elements / 32 * 34 : elements;
    const auto head_at = [&](int64_t token) {  // bytes into kv.k and kv.v, whose pages are alike
      return (blocks[token / kv.page_tokens] * int64_t{kv.kv_heads} + kv_head) * head_bytes;
    };
    const int64_t here = head_at(begin), offset = begin % kv.page_tokens;
    const int64_t there = head_at(next_begin), next_offset = next_begin % kv.page_tokens;
    Chunk c;
    c.key_stride = kv.page_tokens * E::kBytes;
    c.value_stride = kv.head_dim * E::kBytes;
    c.keys = kv.k + here + offset * E::kBytes;
    c.values = kv.v + here + offset * c.value_stride;
    c.next_keys = kv.k + there + next_offset * E::kBytes;
    c.next_values = kv.v + there + next_offset * c.value_stride;
    c.key_scales = scales ? kv.k + here + elements + offset * 2 : nullptr;
    c.value_scales = scales ? kv.v + here + elements + offset * 2 : nullptr;
    c.scale_stride = kv.page_tokens * 2;
    if (scales) {
      for (int64_t b = 0; b < kv.head_dim / 32; ++b) {
        const int64_t at = there + elements + next_offset * 2 + b * c.scale_stride;
        prefetch(kv.k + at);
        prefetch(kv.v + at);
      }
    }
    return c;
  }
};

// Rows [row, row + rows) of one sequence, query heads [head, head + heads) of one KV head, elements
// E in the pages. kDirect: they are read from there by every group of queries, else expanded.
template <typename E, int64_t kChunk, bool kDirect>
void attend_tile(const ops::AttentionArgs& a, int64_t row, int64_t rows, int64_t head,
                 int64_t heads, int64_t kv_head, const AttentionScratch& s) {
  const ops::KvLayer& kv = *a.kv;
  const int64_t head_dim = kv.head_dim, width = s.width, queries = rows * heads;
  for (int64_t i = 0; i < queries; ++i) {
    const float* q = a.q + (row + i / heads) * a.q_stride + (head + i % heads) * head_dim;
    for (int64_t d = 0; d < width; d += kLanes) {
      store(s.q + i * width + d, mul(load_n(q + d, head_dim - d), set1(a.scale)));
      store(s.acc + i * width + d, zero());
    }
    store(s.totals + i * kLanes, zero());
    s.largest[i] = -__builtin_inff();
  }

  using Read = typename Choose<kDirect, E, ExpandedElements>::Type;
  const ChunkFinder<E> find{kv, a.block_tables + a.sequence_index[row] * a.table_stride, kv_head};
  const int32_t* positions = a.positions + row;
  const int64_t last = positions[rows - 1];
  int64_t first_row = 0;  // rows before it end before this chunk
  for (int64_t begin = 0; begin <= last; begin += kChunk) {
    Chunk chunk = find.at(begin, begin + kChunk <= last ? begin + kChunk : begin);
    const int64_t here = last - begin + 1 < kChunk ? last - begin + 1 : kChunk;
    if constexpr (!kDirect) chunk = expand<E>(chunk, kChunk, here, head_dim, s);

    while (positions[first_row] < begin) ++first_row;
    int64_t whole_row = first_row;  // rows from it on see the whole chunk
    while (whole_row < rows && positions[whole_row] < begin + kChunk - 1) ++whole_row;
    const int64_t first = first_row * heads, whole = whole_row * heads;

    score_queries<Read, kChunk / kLanes>(s.q + first * width, width, head_dim, chunk, true,
                                         s.scores + first * kChunkTokens, queries - first);
    for (int64_t i = first; i < queries; ++i) {
      const int64_t visible = positions[i / heads] - begin + 1;
      softmax_step(s.scores + i * kChunkTokens, kChunk, visible, s.largest + i,
                   s.totals + i * kLanes, s.acc + i * width, width);
    }
    const auto add_rows_values = [&](int64_t i, int64_t n, int64_t tokens) {
      add_values<Read>(s.scores + i * kChunkTokens, s.scaled, chunk, tokens, head_dim,
                       s.acc + i * width, width, n);
    };
    for (int64_t r = first_row; r < whole_row; ++r)
      add_rows_values(r * heads, heads, positions[r] - begin + 1);
    if (whole < queries) add_rows_values(whole, queries - whole, kChunk);
  }

  for (int64_t i = 0; i < queries; ++i) {
    float* y = a.y + ((row + i / heads) * a.heads + head + i % heads) * head_dim;
    const F inverse = set1(1.0f / reduce_add(load(s.totals + i * kLanes)));
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      store_n(y + d, mul(load(s.acc + i * width + d), inverse), head_dim - d);
    }
  }
}

template <typename E>
LMN_INLINE void attend(const ops::AttentionArgs& a, int64_t row, int64_t rows, int64_t head,
                       int64_t heads, int64_t kv_head, const AttentionScratch& s) {
  if (a.kv->page_tokens % kChunkTokens != 0) {
    attend_tile<E, 16, false>(a, row, rows, head, heads, kv_head, s);
  } else if (rows * heads > kExpandQueries) {
    attend_tile<E, kChunkTokens, false>(a, row, rows, head, heads, kv_head, s);
  } else {
    attend_tile<E, kChunkTokens, true>(a, row, rows, head, heads, kv_head, s);
  }
}

// Calls body(first row, rows, tokens seen by them in all) for every tile: up to `most` consecutive
// rows of one sequence.
template <typename Body>
LMN_INLINE void for_tiles(const ops::AttentionArgs& a, int64_t most, Body body) {
  for (int64_t row = 0; row < a.rows;) {
    int64_t rows = 0, tokens = 0;
    while (rows < most && row + rows < a.rows &&
           a.sequence_index[row + rows] == a.sequence_index[row] &&
           (rows == 0 || a.positions[row + rows] > a.positions[row + rows - 1])) {
      tokens += a.positions[row + rows] + kChunkTokens;
      ++rows;
    }
    body(row, rows, tokens);
    row += rows;
  }
}

// Work is shared out by (tile, query head), in order, by the tokens that each reads.
void attention(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::AttentionArgs*>(args);
  const ops::KvLayer& kv = *a.kv;
  const int64_t group = a.heads / kv.kv_heads;
  const AttentionScratch scratch(worker.scratch, kv.head_dim, group);
  const int64_t most = group >= kTileQueries ? 1 : kTileQueries / group;
  int64_t total = 0;
  for_tiles(a, most, [&](int64_t, int64_t, int64_t tokens) { total += tokens * a.heads; });
  const Range share = part_of(total, worker);
  int64_t before = 0;
  for_tiles(a, most, [&](int64_t row, int64_t rows, int64_t tokens) {
    // A head belongs to the worker in whose share its middle lies.
    const auto head_from = [&](int64_t bound) {
      const int64_t h = (2 * (bound - before) + tokens - 1) / (2 * tokens);
      return bound <= before ? 0 : h < a.heads ? h : a.heads;
    };
    const int64_t end = head_from(share.end);
    for (int64_t h = head_from(share.begin); h < end;) {
      const int64_t kv_head = h / group;
      const int64_t stop = (kv_head + 1) * group < end ? (kv_head + 1) * group : end;
      if (kv.dtype == DType::kF16) {
        attend<HalfElements>(a, row, rows, h, stop - h, kv_head, scratch);
      } else if (kv.dtype == DType::kQ8_0) {
        attend<ByteElements>(a, row, rows, h, stop - h, kv_head, scratch);
      } else {
        attend<FloatElements>(a, row, rows, h, stop - h, kv_head, scratch);
      }
      h = stop;
    }
    before += tokens * a.heads;
  });
}
