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

// Scratch of one worker, in floats.
struct AttentionScratch {
  int64_t width;   // head_dim, a whole number of vectors
  float* q;        // [queries, width], times `scale`
  float* acc;      // [queries, width]
  float* scores;   // [queries, kChunkTokens]
  float* totals;   // [queries, kLanes]
  float* largest;  // [queries]

  static int64_t queries_of(int64_t group) { return group > kTileQueries ? group : kTileQueries; }
  static int64_t width_of(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }
  static int64_t floats(int64_t head_dim, int64_t group) {
    return queries_of(group) * (2 * width_of(head_dim) + kChunkTokens + kLanes + 1);
  }
  AttentionScratch(std::byte* base, int64_t head_dim, int64_t group) : width(width_of(head_dim)) {
    const int64_t queries = queries_of(group);
    q = reinterpret_cast<float*>(base);
    acc = q + queries * width;
    scores = acc + queries * width;
    totals = scores + queries * kChunkTokens;
    largest = totals + queries * kLanes;
  }
};

size_t attention_scratch_bytes(int64_t head_dim, int64_t heads_per_kv_head) {
  return static_cast<size_t>(AttentionScratch::floats(head_dim, heads_per_kv_head)) * sizeof(float);
}

template <DType kType>
constexpr int64_t kElementBytes = kType == DType::kF16 ? 2 : 4;

template <DType kType>
LMN_INLINE F load_kv(const std::byte* p) {
  if constexpr (kType == DType::kF16) return load_half(p);
  return load(reinterpret_cast<const float*>(p));
}
template <DType kType>
LMN_INLINE F load_kv_n(const std::byte* p, int64_t n) {
  if constexpr (kType == DType::kF32) return load_n(reinterpret_cast<const float*>(p), n);
  uint16_t half[kLanes] = {};
  __builtin_memcpy(half, p, static_cast<size_t>(2 * n));
  return load_half(half);
}

// scores[q][token] = sum over d of q[d] * key[d][token], for kQueries queries and kVectors * kLanes
// tokens. `next` is the chunk that will be wanted after this one.
template <DType kType, int kVectors, int kQueries>
LMN_INLINE void score_group(const float* q, int64_t width, int64_t head_dim, const std::byte* keys,
                            const std::byte* next, int64_t key_stride, float* scores) {
  F sum[kQueries][kVectors];
  LMN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[i][v] = zero();
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    LMN_UNROLL
    for (int i = 0; i < kVectors * kLanes * kElementBytes<kType>; i += 64) prefetch(next + i);
    F b[kQueries];  // these stay in registers and keys pass through one: 12 + 3 + 1 of 16
    LMN_UNROLL
    for (int i = 0; i < kQueries; ++i) b[i] = load1(q + i * width + d);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const F k = load_kv<kType>(keys + v * kLanes * kElementBytes<kType>);
      LMN_UNROLL
      for (int i = 0; i < kQueries; ++i) sum[i][v] = fma(b[i], k, sum[i][v]);
    }
    keys += key_stride;
    next += key_stride;
  }
  LMN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) store(scores + i * kChunkTokens + v * kLanes, sum[i][v]);
  }
}

// Any number of queries, in groups of at most kQueries.
template <DType kType, int kVectors, int kQueries = kAttentionQueries>
LMN_NOINLINE void score_queries(const float* q, int64_t width, int64_t head_dim,
                                const std::byte* keys, const std::byte* next, int64_t key_stride,
                                float* scores, int64_t queries) {
  for (; queries >= kQueries; queries -= kQueries) {
    score_group<kType, kVectors, kQueries>(q, width, head_dim, keys, next, key_stride, scores);
    q += kQueries * width;
    scores += kQueries * kChunkTokens;
    next = keys;
  }
  if constexpr (kQueries > 1) {
    if (queries == 0) return;
    score_queries<kType, kVectors, kQueries - 1>(q, width, head_dim, keys, next, key_stride, scores,
                                                 queries);
  }
}

// acc[q][d] += p[q][token] * value[token][d] for kQueries queries and kVectors vectors of d, token
// by token.
template <DType kType, int kVectors, int kQueries>
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
    LMN_UNROLL
    for (int i = 0; i < kVectors * kLanes * kElementBytes<kType>; i += 64) prefetch(next + i);
    F b[kQueries];
    LMN_UNROLL
    for (int i = 0; i < kQueries; ++i) b[i] = load1(p + i * kChunkTokens + t);
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::byte* at = values + v * kLanes * kElementBytes<kType>;
      const F x =
          kVectors > 1 || valid >= kLanes ? load_kv<kType>(at) : load_kv_n<kType>(at, valid);
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

template <DType kType, int kQueries>
LMN_INLINE void value_group_all(const float* p, const std::byte* values, const std::byte* next,
                                int64_t value_stride, int64_t tokens, int64_t head_dim, float* acc,
                                int64_t width) {
  constexpr int64_t kStep = kValueVectors * kLanes;
  int64_t d = 0;
  for (; d + kStep <= head_dim; d += kStep) {
    const int64_t at = d * kElementBytes<kType>;
    value_group<kType, kValueVectors, kQueries>(p, values + at, next + at, value_stride, tokens,
                                                kStep, acc + d, width);
  }
  for (; d < head_dim; d += kLanes) {
    const int64_t at = d * kElementBytes<kType>;
    value_group<kType, 1, kQueries>(p, values + at, next + at, value_stride, tokens, head_dim - d,
                                    acc + d, width);
  }
}

template <DType kType, int kQueries = kAttentionQueries>
LMN_NOINLINE void value_queries(const float* p, const std::byte* values, const std::byte* next,
                                int64_t value_stride, int64_t tokens, int64_t head_dim, float* acc,
                                int64_t width, int64_t queries) {
  for (; queries >= kQueries; queries -= kQueries) {
    value_group_all<kType, kQueries>(p, values, next, value_stride, tokens, head_dim, acc, width);
    p += kQueries * kChunkTokens;
    acc += kQueries * width;
    next = values;
  }
  if constexpr (kQueries > 1) {
    if (queries == 0) return;
    value_queries<kType, kQueries - 1>(p, values, next, value_stride, tokens, head_dim, acc, width,
                                       queries);
  }
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

// Rows [row, row + rows) of one sequence, query heads [head, head + heads) of one KV head.
template <DType kType, int64_t kChunk>
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

  const int32_t* blocks = a.block_tables + a.sequence_index[row] * a.table_stride;
  const int32_t* positions = a.positions + row;
  const int64_t last = positions[rows - 1];
  const int64_t key_stride = kv.page_tokens * kElementBytes<kType>,
                value_stride = head_dim * kElementBytes<kType>;
  const auto page_at =
      [&](int64_t token) {  // bytes into kv.k and kv.v, whose pages have the same size
        return (blocks[token / kv.page_tokens] * int64_t{kv.kv_heads} + kv_head) * head_dim *
               key_stride;
      };
  int64_t first_row = 0;  // rows before it end before this chunk
  for (int64_t begin = 0; begin <= last; begin += kChunk) {
    const int64_t offset = begin % kv.page_tokens;
    const int64_t next_begin = begin + kChunk <= last ? begin + kChunk : begin;
    const int64_t next_offset = next_begin % kv.page_tokens;
    const std::byte* keys = kv.k + page_at(begin) + offset * kElementBytes<kType>;
    const std::byte* values = kv.v + page_at(begin) + offset * value_stride;
    const std::byte* next_keys = kv.k + page_at(next_begin) + next_offset * kElementBytes<kType>;
    const std::byte* next_values = kv.v + page_at(next_begin) + next_offset * value_stride;

    while (positions[first_row] < begin) ++first_row;
    int64_t whole_row = first_row;  // rows from it on see the whole chunk
    while (whole_row < rows && positions[whole_row] < begin + kChunk - 1) ++whole_row;
    const int64_t first = first_row * heads, whole = whole_row * heads;

    score_queries<kType, kChunk / kLanes>(s.q + first * width, width, head_dim, keys, next_keys,
                                          key_stride, s.scores + first * kChunkTokens,
                                          queries - first);
    for (int64_t i = first; i < queries; ++i) {
      const int64_t visible = positions[i / heads] - begin + 1;
      softmax_step(s.scores + i * kChunkTokens, kChunk, visible, s.largest + i,
                   s.totals + i * kLanes, s.acc + i * width, width);
    }
    const auto add_values = [&](int64_t i, int64_t n, int64_t tokens) {
      value_queries<kType>(s.scores + i * kChunkTokens, values, next_values, value_stride, tokens,
                           head_dim, s.acc + i * width, width, n);
    };
    for (int64_t r = first_row; r < whole_row; ++r)
      add_values(r * heads, heads, positions[r] - begin + 1);
    if (whole < queries) add_values(whole, queries - whole, kChunk);
  }

  for (int64_t i = 0; i < queries; ++i) {
    float* y = a.y + ((row + i / heads) * a.heads + head + i % heads) * head_dim;
    const F inverse = set1(1.0f / reduce_add(load(s.totals + i * kLanes)));
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      store_n(y + d, mul(load(s.acc + i * width + d), inverse), head_dim - d);
    }
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
        if (kv.page_tokens % kChunkTokens == 0) {
          attend_tile<DType::kF16, kChunkTokens>(a, row, rows, h, stop - h, kv_head, scratch);
        } else {
          attend_tile<DType::kF16, 16>(a, row, rows, h, stop - h, kv_head, scratch);
        }
      } else if (kv.page_tokens % kChunkTokens == 0) {
        attend_tile<DType::kF32, kChunkTokens>(a, row, rows, h, stop - h, kv_head, scratch);
      } else {
        attend_tile<DType::kF32, 16>(a, row, rows, h, stop - h, kv_head, scratch);
      }
      h = stop;
    }
    before += tokens * a.heads;
  });
}
