// SPDX-License-Identifier: Apache-2.0
//
// Attention over paged keys and values: online softmax (Milakov and Gimelshein, 2018), page by page
// in the order of positions, in chunks of kChunkTokens (16 where a page is no multiple of 32). Some
// consecutive rows of one sequence and some query heads of one KV head form a tile that reads every
// page once.
//
// For one query (a row's head) the order of operations is fixed by its position alone: a score is
// one accumulator over head_dim (in q8_0, one for each block of 32, added in order); a chunk's
// probabilities are added to kLanes partial sums and to the output accumulator token by token; a
// context is cut in splits at fixed positions, each a softmax of its own, which are merged in order
// (Dao et al., Flash-Decoding, 2023). Chunks beyond the query's position are not touched for it,
// and within its last chunk neither are the values beyond. So a row has the same bits whatever else
// is in the call and whoever computes its splits, and nothing that a page holds past its tokens can
// reach a result.

// Of a tile: what they need beside a chunk is a tenth of a second-level cache, and a chunk's
// conversion to floats is spread over so many (48: 2 % slower).
constexpr int64_t kTileQueries = 96;

// A tile of more queries than this turns a chunk into floats before it is read, where elements are
// such that this pays.
constexpr int64_t kExpandQueries = 2 * kAttentionQueries;

// Splits are of kSplitTokens, and twice, four times … as many where there would be more than
// kMostSplits: small enough that two workers have equal shares of one row, large enough that
// merging takes a hundredth of the time.
constexpr int64_t kSplitTokens = 512;
constexpr int64_t kMostSplits = 32;
LMN_INLINE int64_t split_tokens(int64_t position) {
  int64_t tokens = kSplitTokens;
  while (position / tokens >= kMostSplits) tokens *= 2;
  return tokens;
}

template <bool kFirst, typename A, typename B>
struct Choose {
  using Type = A;
};
template <typename A, typename B>
struct Choose<false, A, B> {
  using Type = B;
};

// Softmax of some queries over some of their tokens: probabilities relative to `largest`.
struct Sums {
  float* acc;      // [queries, width]: of probability times value
  float* totals;   // [queries, kLanes]: of probability
  float* largest;  // [queries]: score

  static int64_t floats(int64_t queries, int64_t width) { return queries * (width + kLanes + 1); }
  Sums(float* base, int64_t queries, int64_t width)
      : acc(base), totals(acc + queries * width), largest(totals + queries * kLanes) {}
};

// Scratch of one worker, in floats.
struct AttentionScratch {
  int64_t width;  // head_dim, a whole number of vectors
  float* q;       // [queries, width], times `scale`
  float* scores;  // [queries, kChunkTokens]
  float* scaled;  // [queries, kChunkTokens]: scores times the scales of a block of q8_0 values
  float* keys;    // [head_dim, kChunkTokens], of a chunk
  float* values;  // [kChunkTokens, width], of a chunk
  Sums split;     // of the split at hand
  Sums whole;     // of the splits before it

  static int64_t queries_of(int64_t group) { return group > kTileQueries ? group : kTileQueries; }
  static int64_t width_of(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }
  static int64_t floats(int64_t head_dim, int64_t group) {
    const int64_t queries = queries_of(group), width = width_of(head_dim);
    return queries * (width + 2 * kChunkTokens) + 2 * kChunkTokens * width +
           2 * Sums::floats(queries, width);
  }
  AttentionScratch(std::byte* base, int64_t head_dim, int64_t group)
      : width(width_of(head_dim)),
        q(reinterpret_cast<float*>(base)),
        scores(q + queries_of(group) * width),
        scaled(scores + queries_of(group) * kChunkTokens),
        keys(scaled + queries_of(group) * kChunkTokens),
        values(keys + width * kChunkTokens),
        split(values + width * kChunkTokens, queries_of(group), width),
        whole(values + width * kChunkTokens + Sums::floats(queries_of(group), width),
              queries_of(group), width) {}
};

size_t attention_scratch_bytes(int64_t head_dim, int64_t heads_per_kv_head) {
  return static_cast<size_t>(AttentionScratch::floats(head_dim, heads_per_kv_head)) * sizeof(float);
}

// What workers share: where the context of a row is cut between them, the sums of its splits. At
// most one row and KV head is cut after each worker but the last.
struct SharedRow {
  uint32_t* finished;  // how many workers have stored theirs; 0 between calls
  float* sums;         // [kMostSplits], of one KV head's queries

  static int64_t bytes(int64_t head_dim, int64_t group) {
    const int64_t width = AttentionScratch::width_of(head_dim);
    return 64 + kMostSplits * Sums::floats(group, width) * static_cast<int64_t>(sizeof(float));
  }
  SharedRow(std::byte* base, int64_t index, int64_t head_dim, int64_t group)
      : finished(reinterpret_cast<uint32_t*>(base + index * bytes(head_dim, group))),
        sums(reinterpret_cast<float*>(base + index * bytes(head_dim, group) + 64)) {}
};

size_t attention_shared_bytes(int64_t head_dim, int64_t heads_per_kv_head, int workers) {
  return static_cast<size_t>(SharedRow::bytes(head_dim, heads_per_kv_head) * (workers - 1));
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

// Adds the sums of a query over later tokens to those over earlier ones.
LMN_NOINLINE void merge(const Sums& whole, const Sums& later, int64_t query, int64_t width,
                        bool first) {
  float* acc = whole.acc + query * width;
  float* totals = whole.totals + query * kLanes;
  const float* later_acc = later.acc + query * width;
  const float* later_totals = later.totals + query * kLanes;
  const float x = later.largest[query];
  if (first) {
    whole.largest[query] = x;
    store(totals, load(later_totals));
    for (int64_t d = 0; d < width; d += kLanes) store(acc + d, load(later_acc + d));
    return;
  }
  const float y = whole.largest[query];
  const float largest = y > x ? y : x;
  const F factor = exponential(set1(y - largest)), later_factor = exponential(set1(x - largest));
  whole.largest[query] = largest;
  store(totals, fma(load(later_totals), later_factor, mul(load(totals), factor)));
  for (int64_t d = 0; d < width; d += kLanes)
    store(acc + d, fma(load(later_acc + d), later_factor, mul(load(acc + d), factor)));
}

// Rows [row, row + rows) of one sequence, with splits of one length, and query heads [head, head +
// heads) of one KV head.
struct Tile {
  int64_t row, rows, head, heads, kv_head;
  int64_t queries() const { return rows * heads; }
};

void load_queries(const ops::AttentionArgs& a, const Tile& t, const AttentionScratch& s) {
  const int64_t head_dim = a.kv->head_dim;
  for (int64_t i = 0; i < t.queries(); ++i) {
    const float* q = a.q + (t.row + i / t.heads) * a.q_stride + (t.head + i % t.heads) * head_dim;
    for (int64_t d = 0; d < s.width; d += kLanes)
      store(s.q + i * s.width + d, mul(load_n(q + d, head_dim - d), set1(a.scale)));
  }
}

// s.split becomes the sums over tokens [begin, end) of the queries that see any of them.
// E: elements in the pages. kDirect: they are read from there by every group of queries, else
// expanded.
template <typename E, int64_t kChunk, bool kDirect>
void attend_split(const ops::AttentionArgs& a, const Tile& t, int64_t split_begin, int64_t end,
                  const AttentionScratch& s) {
  using Read = typename Choose<kDirect, E, ExpandedElements>::Type;
  const ops::KvLayer& kv = *a.kv;
  const int64_t head_dim = kv.head_dim, width = s.width, queries = t.queries(), heads = t.heads;
  const ChunkFinder<E> find{kv, a.block_tables + a.sequence_index[t.row] * a.table_stride,
                            t.kv_head};
  const int32_t* positions = a.positions + t.row;
  const int64_t last = positions[t.rows - 1], stop = last < end ? last + 1 : end;
  int64_t first_row = 0;  // rows before it end before this chunk
  while (positions[first_row] < split_begin) ++first_row;
  for (int64_t i = first_row * heads; i < queries; ++i) {
    for (int64_t d = 0; d < width; d += kLanes) store(s.split.acc + i * width + d, zero());
    store(s.split.totals + i * kLanes, zero());
    s.split.largest[i] = -__builtin_inff();
  }
  for (int64_t begin = split_begin; begin < stop; begin += kChunk) {
    Chunk chunk = find.at(begin, begin + kChunk <= last ? begin + kChunk : begin);
    const int64_t here = stop - begin < kChunk ? stop - begin : kChunk;
    if constexpr (!kDirect)
      chunk = expand<E>(chunk, kChunk, here, head_dim, s.keys, s.values, width);

    while (positions[first_row] < begin) ++first_row;
    int64_t whole_row = first_row;  // rows from it on see the whole chunk
    while (whole_row < t.rows && positions[whole_row] < begin + kChunk - 1) ++whole_row;
    const int64_t first = first_row * heads, whole = whole_row * heads;

    score_queries<Read, kChunk / kLanes>(s.q + first * width, width, head_dim, chunk, true,
                                         s.scores + first * kChunkTokens, queries - first);
    for (int64_t i = first; i < queries; ++i) {
      const int64_t visible = positions[i / heads] - begin + 1;
      softmax_step(s.scores + i * kChunkTokens, kChunk, visible, s.split.largest + i,
                   s.split.totals + i * kLanes, s.split.acc + i * width, width);
    }
    const auto add_rows_values = [&](int64_t i, int64_t n, int64_t tokens) {
      add_values<Read>(s.scores + i * kChunkTokens, s.scaled, chunk, tokens, head_dim,
                       s.split.acc + i * width, width, n);
    };
    for (int64_t r = first_row; r < whole_row; ++r)
      add_rows_values(r * heads, heads, positions[r] - begin + 1);
    if (whole < queries) add_rows_values(whole, queries - whole, kChunk);
  }
}

template <typename E>
LMN_INLINE void attend(const ops::AttentionArgs& a, const Tile& t, int64_t begin, int64_t end,
                       const AttentionScratch& s) {
  if (a.kv->page_tokens % kChunkTokens != 0) {
    attend_split<E, 16, false>(a, t, begin, end, s);
  } else if (E::kExpand && t.queries() > kExpandQueries) {
    attend_split<E, kChunkTokens, !E::kExpand>(a, t, begin, end, s);
  } else {
    attend_split<E, kChunkTokens, true>(a, t, begin, end, s);
  }
}
LMN_NOINLINE void attend(const ops::AttentionArgs& a, const Tile& t, int64_t begin, int64_t end,
                         const AttentionScratch& s) {
  switch (a.kv->dtype) {
    case DType::kF16:
      return attend<HalfElements>(a, t, begin, end, s);
    case DType::kQ8_0:
      return attend<ByteElements>(a, t, begin, end, s);
    default:
      return attend<FloatElements>(a, t, begin, end, s);
  }
}

void write_outputs(const ops::AttentionArgs& a, const Tile& t, const AttentionScratch& s) {
  const int64_t head_dim = a.kv->head_dim;
  for (int64_t i = 0; i < t.queries(); ++i) {
    float* y = a.y + ((t.row + i / t.heads) * a.heads + t.head + i % t.heads) * head_dim;
    const F inverse = set1(1.0f / reduce_add(load(s.whole.totals + i * kLanes)));
    for (int64_t d = 0; d < head_dim; d += kLanes)
      store_n(y + d, mul(load(s.whole.acc + i * s.width + d), inverse), head_dim - d);
  }
}

void attend_tile(const ops::AttentionArgs& a, const Tile& t, const AttentionScratch& s) {
  load_queries(a, t, s);
  const int32_t* positions = a.positions + t.row;
  const int64_t last = positions[t.rows - 1], split = split_tokens(last);
  for (int64_t begin = 0; begin <= last; begin += split) {
    attend(a, t, begin, begin + split, s);
    for (int64_t i = 0; i < t.queries(); ++i) {
      if (positions[i / t.heads] >= begin) merge(s.whole, s.split, i, s.width, begin == 0);
    }
  }
  write_outputs(a, t, s);
}

// One row, its splits shared out: this worker computes splits [first, end) of `splits`. The last of
// `workers` to be done merges them, in order; nobody waits.
void attend_shared(const ops::AttentionArgs& a, const Tile& t, int64_t first, int64_t end,
                   int64_t splits, int64_t workers, const SharedRow& shared,
                   const AttentionScratch& s) {
  const int64_t split = split_tokens(a.positions[t.row]), stride = Sums::floats(t.heads, s.width);
  load_queries(a, t, s);
  for (int64_t i = first; i < end; ++i) {
    attend(a, t, i * split, (i + 1) * split, s);
    const Sums stored(shared.sums + i * stride, t.heads, s.width);
    for (int64_t h = 0; h < t.heads; ++h) merge(stored, s.split, h, s.width, true);
  }
  // Each worker's release makes its sums visible to the one that acquires the last count.
  if (__atomic_add_fetch(shared.finished, 1u, __ATOMIC_ACQ_REL) != workers) return;
  __atomic_store_n(shared.finished, 0u, __ATOMIC_RELAXED);  // whoever adds next is past a barrier
  for (int64_t i = 0; i < splits; ++i) {
    const Sums stored(shared.sums + i * stride, t.heads, s.width);
    for (int64_t h = 0; h < t.heads; ++h) merge(s.whole, stored, h, s.width, i == 0);
  }
  write_outputs(a, t, s);
}

// Calls body(first row, rows, tokens seen by them in all) for every tile: up to `most` consecutive
// rows of one sequence, with splits of one length.
template <typename Body>
LMN_INLINE void for_tiles(const ops::AttentionArgs& a, int64_t most, Body body) {
  for (int64_t row = 0; row < a.rows;) {
    const int64_t split = split_tokens(a.positions[row]);
    int64_t rows = 0, tokens = 0;
    while (rows < most && row + rows < a.rows &&
           a.sequence_index[row + rows] == a.sequence_index[row] &&
           (rows == 0 || a.positions[row + rows] > a.positions[row + rows - 1]) &&
           split_tokens(a.positions[row + rows]) == split) {
      tokens += a.positions[row + rows] + kChunkTokens;
      ++rows;
    }
    body(row, rows, tokens);
    row += rows;
  }
}

// A worker's share of the work of a call, in tokens that a query head reads.
struct Share {
  int64_t total, part, parts;
  LMN_INLINE int64_t bound(int64_t i) const { return total * i / parts; }
  LMN_INLINE int64_t begin() const { return bound(part); }
  LMN_INLINE int64_t end() const { return bound(part + 1); }
  LMN_INLINE int64_t owner(int64_t at) const {
    int64_t i = at * parts / total;  // or one beside it
    while (i > 0 && bound(i) > at) --i;
    while (i < parts - 1 && bound(i + 1) <= at) ++i;
    return i;
  }
};

// One row of several splits, that begins `before` tokens into the work: each split of each KV head
// belongs to the worker in whose share its middle lies.
void attend_row(const ops::AttentionArgs& a, int64_t row, int64_t tokens, int64_t before,
                const Share& share, std::byte* shared, const AttentionScratch& s) {
  const int64_t group = a.heads / a.kv->kv_heads, position = a.positions[row];
  const int64_t split = split_tokens(position), splits = position / split + 1;
  for (int64_t k = 0; k < a.kv->kv_heads; ++k) {
    const int64_t begin = before + k * group * tokens;
    if (begin >= share.end() || begin + group * tokens <= share.begin()) continue;
    int64_t first = splits, end = 0, workers = 0, previous = -1, lowest = 0;
    for (int64_t i = 0; i < splits; ++i) {
      const int64_t stop = i + 1 < splits ? (i + 1) * split : position + 1;
      const int64_t owner = share.owner(begin + group * (i * split + stop) / 2);
      if (owner != previous) ++workers;
      if (i == 0) lowest = owner;
      previous = owner;
      if (owner != share.part) continue;
      first = first < i ? first : i;
      end = i + 1;
    }
    const Tile tile{row, 1, k * group, group, k};
    if (first >= end) continue;
    if (workers == 1) {
      attend_tile(a, tile, s);
    } else {
      attend_shared(a, tile, first, end, splits, workers,
                    SharedRow(shared, lowest, a.kv->head_dim, group), s);
    }
  }
}

// Work is shared out by (tile, query head), in order, by the tokens that each reads; a row alone
// that has several splits by (KV head, split), where workers have memory in common.
void attention(const void* args, const ops::Worker& worker) {
  const auto& a = *static_cast<const ops::AttentionArgs*>(args);
  const int64_t group = a.heads / a.kv->kv_heads;
  const AttentionScratch scratch(worker.scratch, a.kv->head_dim, group);
  const int64_t most = group >= kTileQueries ? 1 : kTileQueries / group;
  int64_t total = 0;
  for_tiles(a, most, [&](int64_t, int64_t, int64_t tokens) { total += tokens * a.heads; });
  const Share share{total, worker.part, worker.parts};
  int64_t before = 0;
  for_tiles(a, most, [&](int64_t row, int64_t rows, int64_t tokens) {
    if (rows == 1 && a.positions[row] >= kSplitTokens && worker.shared != nullptr) {
      attend_row(a, row, tokens, before, share, worker.shared, scratch);
      before += tokens * a.heads;
      return;
    }
    // A head belongs to the worker in whose share its middle lies.
    const auto head_from = [&](int64_t bound) {
      const int64_t h = (2 * (bound - before) + tokens - 1) / (2 * tokens);
      return bound <= before ? 0 : h < a.heads ? h : a.heads;
    };
    const int64_t end = head_from(share.end());
    for (int64_t h = head_from(share.begin()); h < end;) {
      const int64_t kv_head = h / group;
      const int64_t stop = (kv_head + 1) * group < end ? (kv_head + 1) * group : end;
      attend_tile(a, {row, rows, h, stop - h, kv_head}, scratch);
      h = stop;
    }
    before += tokens * a.heads;
  });
}
