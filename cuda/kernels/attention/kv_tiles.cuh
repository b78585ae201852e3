// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of a split, from the pages to tiles of float16 in shared memory (split.cuh). The
// whole block takes part. What lies behind the last position of the sequence is not read: zeros up
// to the end of its quarter of the split, and nothing is brought behind that.
//
// float16 is copied beside the kernel: bring_keys() and bring_values() begin, the caller commits
// and waits. q8_0 goes through registers: load() has as many loads in flight as fit there, store()
// makes float16 of them, once the scales, which are copied, are there.
#pragma once

#include "cuda/kernels/attention/split.cuh"

namespace lmn::cuda {

// One KV head of a sequence up to position `last`.
struct KvHead {
  const int32_t* pages;
  int head, last;

  LMN_DEVICE KvHead(const Attention& a, int64_t sequence, int kv_head, int last_position)
      : pages(a.block_tables + sequence * a.table_stride), head(kv_head), last(last_position) {}
  LMN_DEVICE int quarters(int split) const { return quarters_of(last - split * kSplit); }
};

// Where the tokens of a split lie. Pages hold a multiple of 16: lane i of every warp knows of
// tokens 16 (i % 8) to 16 (i % 8) + 15.
struct SplitPages {
  int page = 0, offset = 0;  // the first token's

  SplitPages() = default;
  LMN_DEVICE SplitPages(const Attention& a, const KvHead& kv, int split) {
    const int position = split * kSplit + simt::lane() % 8 * 16;
    if (position > kv.last) return;
    const auto page_tokens = static_cast<uint32_t>(a.kv.page_tokens);
    page = kv.pages[static_cast<uint32_t>(position) / page_tokens];
    offset = static_cast<int>(static_cast<uint32_t>(position) % page_tokens);
  }
};

// A token's place: the tile of its page and KV head, counted in tiles, and its number there.
struct TokenPlace {
  int64_t tile;
  int64_t token;

  LMN_DEVICE TokenPlace(const Attention& a, const KvHead& kv, const SplitPages& pages, int token_)
      : tile(int64_t{simt::shuffle(pages.page, token_ / 16)} * a.kv.kv_heads + kv.head),
        token(simt::shuffle(pages.offset, token_ / 16) + token_ % 16) {}
};

template <int kWidth>
LMN_DEVICE void bring_keys(const Attention& a, const KvHead& kv, const SplitPages& pages, int split,
                           std::byte* tile) {
  const int chunk = simt::thread_index() % kSplitChunks;
  const TokenPlace place(a, kv, pages, chunk * 8);
  if (chunk / 4 >= kv.quarters(split)) return;
  const bool there = split * kSplit + chunk * 8 <= kv.last;
  const int64_t pitch = int64_t{a.kv.page_tokens} * 2;
  const std::byte* from = a.kv.k + place.tile * a.kv.head_dim * pitch + place.token * 2;
  for (int d = simt::thread_index() / kSplitChunks; d < kWidth;
       d += kAttentionThreads / kSplitChunks) {
    simt::copy_async(chunk_at<kSplitChunks>(tile, d, chunk), from + d * pitch,
                     there && d < a.kv.head_dim);
  }
}

// kWidth dimensions from `first` on.
template <int kWidth>
LMN_DEVICE void bring_values(const Attention& a, const KvHead& kv, const SplitPages& pages,
                             int split, std::byte* tile, int first = 0) {
  constexpr int kChunks = kWidth / 8;
  const int64_t pitch = int64_t{a.kv.head_dim} * 2;
  const int quarters = kv.quarters(split);
  for (int i = 0; i < kChunks; ++i) {
    const int at = i * kAttentionThreads + simt::thread_index();
    const int token = at / kChunks, chunk = at % kChunks;
    const TokenPlace place(a, kv, pages, token);
    if (token / kQuarter >= quarters) continue;
    const std::byte* from =
        a.kv.v + (place.tile * a.kv.page_tokens + place.token) * pitch + first * 2 + chunk * 16;
    simt::copy_async(chunk_at<kChunks>(tile, token, chunk), from,
                     split * kSplit + token <= kv.last && first + chunk * 8 < a.kv.head_dim);
  }
}

// The same in q8_0, of keys or of values, kWidth dimensions from `first` on. A thread loads kLoads
// times 16 bytes, as many as a token has, kBatch of them at once.
template <int kWidth, bool kKeys, int kAtOnce = 8>
class QuantizedTile {
 public:
  static constexpr int kLoads = kWidth / 16;
  static constexpr int kBatch = kLoads > kAtOnce ? kAtOnce : kLoads;
  static constexpr int kScaleBytes = kWidth / 32 * kSplit * 2;

  LMN_DEVICE QuantizedTile(const Attention& a, const KvHead& kv, const SplitPages& pages, int split,
                           std::byte* scales, int first = 0)
      : a_(a),
        kv_(kv),
        pages_(pages),
        begin_(split * kSplit),
        quarters_(kv.quarters(split)),
        scales_(scales),
        first_(first) {}

  // float16 [kWidth / 32, kSplit], to be waited for.
  LMN_DEVICE void bring_scales() const {
    const int chunk = simt::thread_index() % kSplitChunks;
    const TokenPlace place(a_, kv_, pages_, chunk * 8);
    const std::byte* from = tile_at(place) + elements() + place.token * 2;
    if (chunk / 4 >= quarters_) return;
    for (int block = simt::thread_index() / kSplitChunks; block < kWidth / 32;
         block += kAttentionThreads / kSplitChunks) {
      simt::copy_async(scales_ + (block * kSplitChunks + chunk) * 16,
                       from + int64_t{first_ / 32 + block} * a_.kv.page_tokens * 2,
                       begin_ + chunk * 8 <= kv_.last && first_ + block * 32 < a_.kv.head_dim);
    }
  }
  LMN_DEVICE void load(int batch) {
    LMN_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const Piece piece = piece_of(batch * kBatch + i);
      const TokenPlace place(a_, kv_, pages_, piece.token);
      const int d = first_ + piece.d;
      const std::byte* from = tile_at(place) + (kKeys ? d * a_.kv.page_tokens + place.token
                                                      : place.token * a_.kv.head_dim + d);
      raw_[i] = {0, 0, 0, 0};
      if (begin_ + piece.token <= kv_.last && d < a_.kv.head_dim)
        raw_[i] = *reinterpret_cast<const simt::U32x4*>(from);
    }
  }
  LMN_DEVICE void store(int batch, std::byte* tile) const {
    LMN_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const Piece piece = piece_of(batch * kBatch + i);
      if (piece.token / kQuarter >= quarters_) continue;
      const auto* scales = reinterpret_cast<const uint32_t*>(
          scales_ + (piece.d / 32 * kSplit + piece.token / 2 * 2) * 2);
      const uint32_t words[4] = {raw_[i].x, raw_[i].y, raw_[i].z, raw_[i].w};
      const bool there = begin_ + piece.token <= kv_.last;  // else its scale may be anything
      const uint32_t own = kKeys || !there ? 0 : scales[0] >> piece.token % 2 * 16 & 0xFFFF;
      uint32_t out[8];
      LMN_UNROLL
      for (int pair = 0; pair < 8; ++pair) {
        const uint32_t both = kKeys ? scales[pair] : own | own << 16;
        const uint32_t bytes = words[pair / 2] >> pair % 2 * 16;
        out[pair] = simt::halves(value(bytes, both), value(bytes >> 8, both >> 16));
      }
      const int row = kKeys ? piece.d : piece.token;
      const int chunk = kKeys ? piece.token / 8 : piece.d / 8;
      constexpr int kChunks = kKeys ? kSplitChunks : kWidth / 8;
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<simt::U32x4*>(chunk_at<kChunks>(tile, row, chunk + half)) = {
            out[4 * half], out[4 * half + 1], out[4 * half + 2], out[4 * half + 3]};
      }
    }
  }
  // All of it, with its scales; the block waits in here.
  LMN_DEVICE void bring(std::byte* tile) {
    bring_scales();
    simt::copy_commit();
    simt::copy_wait<0>();
    simt::sync_block();
    LMN_ROLL
    for (int batch = 0; batch < kLoads / kBatch; ++batch) {
      load(batch);
      store(batch, tile);
    }
  }

 private:
  // 16 bytes: of dimension d, tokens from `token` on, or of a token, dimensions from d on.
  struct Piece {
    int token, d;
  };
  LMN_DEVICE static Piece piece_of(int load) {
    const int i = load * kAttentionThreads + simt::thread_index();
    if (kKeys) return {i % 8 * 16, i / 8};
    return {i / kLoads, i % kLoads * 16};
  }
  LMN_DEVICE int64_t elements() const { return int64_t{a_.kv.page_tokens} * a_.kv.head_dim; }
  LMN_DEVICE const std::byte* tile_at(const TokenPlace& place) const {
    return (kKeys ? a_.kv.k : a_.kv.v) + place.tile * (elements() / 16 * 17);
  }
  LMN_DEVICE static float value(uint32_t byte, uint32_t scale) {
    return static_cast<float>(static_cast<int8_t>(byte & 0xFF)) *
           simt::half_to_float(static_cast<uint16_t>(scale & 0xFFFF));
  }

  const Attention& a_;
  const KvHead& kv_;
  const SplitPages& pages_;
  int begin_, quarters_;
  std::byte* scales_;
  int first_;
  simt::U32x4 raw_[kBatch];
};

}  // namespace lmn::cuda
