// SPDX-License-Identifier: Apache-2.0
//
// Attention of rows that are each the only one of their sequence (and of any others, to the same
// bits). A block takes a split of one row and KV head, with up to 16 of the head's query heads as
// the rows of its products: warps share the tokens of S and then the dimensions of O. What several
// splits leave in the workspace is merged by attention_merge.
//
// Floor: bytes. Keys and values of the row's context are read once, 4 kv_heads head_dim bytes a
// position in float16; partial results add 8 (head_dim + 2) heads bytes a split, written and read.
// In flight: all of a split's keys and values, 64 KB a block at head_dim 128 and three blocks a
// multiprocessor, where 4.8 TB/s times 700 ns over 132 of them ask for 25 KB. In q8_0: 32 KB a
// block. At head_dim 256 values follow keys, through the same memory.
#pragma once

#include "cuda/kernels/attention/kv_tiles.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace lmn::cuda {

inline constexpr int kDecodeHeads = 16;  // query heads of a block

template <int kWidth>
inline constexpr bool kDecodeApart = kWidth <= 128;  // keys and values have a tile each

// Tiles of keys, values, Q and P, the warps' largest scores, and in q8_0 scales.
template <DType kType, int kWidth>
inline constexpr uint32_t kDecodeShared =
    kTileBytes<kWidth>*(kDecodeApart<kWidth> ? 2 : 1) + kDecodeHeads*(kWidth + kSplit) * 2 +
    kAttentionWarps* kDecodeHeads * 4 +
    (kType == DType::kQ8_0
         ? QuantizedTile<kWidth, true>::kScaleBytes * (kDecodeApart<kWidth> ? 2 : 1)
         : 0);

// S and P of a block, whose tiles are filled between.
template <int kWidth>
struct DecodeBlock {
  std::byte *keys, *values, *q, *p;
  float* largest;     // [warps, 16]
  std::byte* scales;  // of keys, then of values
  float s[4][4];      // of the warp's 32 tokens

  LMN_DEVICE DecodeBlock()
      : keys(simt::shared_memory()),
        values(kDecodeApart<kWidth> ? keys + kTileBytes<kWidth> : keys),
        q(values + kTileBytes<kWidth>),
        p(q + kDecodeHeads * kWidth * 2),
        largest(reinterpret_cast<float*>(p + kDecodeHeads * kSplit * 2)),
        scales(reinterpret_cast<std::byte*>(largest + kAttentionWarps * kDecodeHeads)) {}

  // Keys and Q are there; all rows attend up to `limit` of the split.
  LMN_DEVICE void score(int limit) {
    const bool mine = simt::warp() < quarters_of(limit);
    scores<kWidth>(s, q, 0, keys, simt::warp(), mine ? 1 : 0);
    const int limits[2] = {limit, limit};
    mask(s, simt::warp() * kQuarter + simt::lane() % 4 * 2, limits);
    float m[2];
    row_max(m, s);
    if (simt::lane() % 4 != 0) return;
    LMN_UNROLL
    for (int half = 0; half < 2; ++half)
      largest[simt::warp() * kDecodeHeads + simt::lane() / 4 + 8 * half] = m[half];
  }
  // m of rows g and g + 8, and P in shared memory; a barrier lies between this and score().
  LMN_DEVICE void weigh(float (&m)[2]) {
    LMN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = simt::lane() / 4 + 8 * half;
      m[half] = largest[row];
      for (int w = 1; w < kAttentionWarps; ++w)
        m[half] = larger(m[half], largest[w * kDecodeHeads + row]);
      LMN_UNROLL
      for (int n = 0; n < 4; ++n) {
        *reinterpret_cast<uint32_t*>(chunk_at<kSplitChunks>(p, row, simt::warp() * 4 + n) +
                                     simt::lane() % 4 * 4) = weights(s[n], half, m[half]);
      }
    }
  }
};

// grid: splits of the longest context, KV heads times blocks of their query heads, rows.
template <DType kType, int kWidth>
LMN_KERNEL(kAttentionThreads, kWidth <= 64 ? 4 : 3)
void attention_split(Attention a) {
  simt::wait_for_previous();
  const int head_blocks = (a.group + kDecodeHeads - 1) / kDecodeHeads;
  const int64_t row = a.first_row + simt::block_z();
  const int split = simt::block_x(), kv_head = simt::block_y() / head_blocks;
  const int first = simt::block_y() % head_blocks * kDecodeHeads;  // of the group
  const int heads = a.group - first < kDecodeHeads ? a.group - first : kDecodeHeads;
  const int64_t head = int64_t{kv_head} * a.group + first;
  const int position = a.positions[row], limit = position - split * kSplit;
  const int d = a.kv.head_dim;
  float* y = a.y + (row * a.heads + head) * d;
  if (position < 0 && split == 0) {
    for (int i = simt::thread_index(); i < heads * d; i += kAttentionThreads) y[i] = 0;
  }
  if (limit < 0) return;

  DecodeBlock<kWidth> block;
  const KvHead kv(a, a.sequence_index[row], kv_head, position);
  const SplitPages pages(a, kv, split);
  const auto query = [&] {
    const float* q = a.q + row * a.q_stride + head * d;
    for (int i = simt::warp(); i < kDecodeHeads; i += kAttentionWarps)
      bring_query<kWidth>(a, block.q, i, i < heads ? q + i * d : nullptr);
  };
  float m[2];
  if constexpr (kType == DType::kQ8_0) {
    constexpr int kScaleBytes = QuantizedTile<kWidth, true>::kScaleBytes;
    QuantizedTile<kWidth, true> keys(a, kv, pages, split, block.scales);
    QuantizedTile<kWidth, false> values(a, kv, pages, split,
                                        block.scales + (kDecodeApart<kWidth> ? kScaleBytes : 0));
    if constexpr (kDecodeApart<kWidth>) {
      keys.bring_scales();
      values.bring_scales();
      simt::copy_commit();
      keys.load(0);
      values.load(0);
      query();
      simt::copy_wait<0>();
      simt::sync_block();
      keys.store(0, block.keys);
    } else {
      query();
      keys.bring(block.keys);
    }
    simt::sync_block();
    block.score(limit);
    simt::sync_block();
    if constexpr (kDecodeApart<kWidth>) {
      values.store(0, block.values);
    } else {
      values.bring(block.values);
    }
  } else {
    bring_keys<kWidth>(a, kv, pages, split, block.keys);
    simt::copy_commit();
    if constexpr (kDecodeApart<kWidth>) {
      bring_values<kWidth>(a, kv, pages, split, block.values);
      simt::copy_commit();
    }
    query();
    simt::copy_wait<kDecodeApart<kWidth> ? 1 : 0>();
    simt::sync_block();
    block.score(limit);
    simt::sync_block();
    if constexpr (!kDecodeApart<kWidth>) {
      bring_values<kWidth>(a, kv, pages, split, block.values);
      simt::copy_commit();
    }
  }
  block.weigh(m);
  simt::copy_wait<0>();
  simt::sync_block();

  uint32_t p[8][4];
  for (int step = 0; step < 8; ++step) load_rows<kSplitChunks>(p[step], block.p, 0, step);
  const simt::F32x2 l = weight_sums(p, quarters_of(limit));
  constexpr int kTiles = kWidth / 8 / kAttentionWarps;
  float o[kTiles][4];
  weighted_values<kWidth>(o, p, block.values, simt::warp() * kTiles, quarters_of(limit));

  const bool alone = position < kSplit && a.quantized == nullptr;
  const int64_t at = (int64_t{simt::block_z()} * a.splits + split) * a.heads + head;
  LMN_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int i = simt::lane() / 4 + 8 * half;
    if (i >= heads) continue;
    const float sum = half == 0 ? l.x : l.y;
    if (!alone && simt::thread_index() % 4 == 0 && simt::warp() == 0)
      a.sums[at + i] = {m[half], sum};
    float* out = alone ? y + i * d : a.outputs + (at + i) * d;
    LMN_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      const int column = (simt::warp() * kTiles + n) * 8 + simt::lane() % 4 * 2;
      if (column >= d) continue;
      float low = o[n][2 * half], high = o[n][2 * half + 1];
      if (alone) {
        low = low / sum;
        high = high / sum;
      }
      *reinterpret_cast<simt::F32x2*>(out + column) = {low, high};
    }
  }
}

// A block takes a query head of a row, a thread a dimension; rows of one split are done, unless
// they are to be quantised. Every warp has the factors of 32 splits at a time, one a lane.
//
// Floor: the partial results, once; 128 bytes a warp and split, 32 splits in flight.
inline constexpr int kMergeThreads = 256;
LMN_KERNEL(kMergeThreads, 4) void attention_merge(Attention a) {
  simt::wait_for_previous();
  const int64_t row = a.first_row + simt::block_y(), head = simt::block_x();
  const int position = a.positions[row];
  if (position < kSplit && a.quantized == nullptr) return;
  const int splits = position < 0 ? 0 : position / kSplit + 1, d = simt::thread_index();
  const bool there = d < a.kv.head_dim;
  const int64_t base = int64_t{simt::block_y()} * a.splits * a.heads + head;
  float largest = 0, total = kNothing, out = kNothing;
  for (int begin = 0; begin < splits; begin += simt::kWarp) {
    const int count = splits - begin < simt::kWarp ? splits - begin : simt::kWarp;
    float next[simt::kWarp];
    for (int i = 0; i < simt::kWarp; ++i) {
      next[i] = 0;
      if (i < count && there)
        next[i] = a.outputs[(base + int64_t{begin + i} * a.heads) * a.kv.head_dim + d];
    }
    simt::F32x2 mine{0, 0};
    if (simt::lane() < count) mine = a.sums[base + int64_t{begin + simt::lane()} * a.heads];
    // The largest up to each split.
    float after = mine.x;
    if (begin > 0 && simt::lane() == 0) after = larger(largest, after);
    for (int step = 1; step < simt::kWarp; step *= 2) {
      const float left = simt::shuffle(after, (simt::lane() + simt::kWarp - step) % simt::kWarp);
      if (simt::lane() >= step) after = larger(left, after);
    }
    float before = simt::shuffle(after, (simt::lane() + simt::kWarp - 1) % simt::kWarp);
    if (simt::lane() == 0) before = largest;
    const MergeFactors factors =
        merge_factors(begin == 0 && simt::lane() == 0, before, mine.x, after);
    largest = simt::shuffle(after, count - 1);
    for (int i = 0; i < simt::kWarp; ++i) {
      if (i >= count) break;
      const MergeFactors f{simt::shuffle(factors.keep, i), simt::shuffle(factors.take, i)};
      total = merged(total, simt::shuffle(mine.y, i), f);
      out = merged(out, next[i], f);
    }
  }
  const float y = splits == 0 ? 0 : out / total;
  if (there) a.y[(row * a.heads + head) * a.kv.head_dim + d] = y;
  if (a.quantized == nullptr) return;
  // A warp has 32 dimensions: a block of what the next product reads.
  const int64_t columns = int64_t{a.heads} * a.kv.head_dim;
  const int64_t block = (head * a.kv.head_dim + d) / 32;
  if (a.quantized_wide) {
    quantize_block(y, QuantizedRow<true>(a.quantized, columns, row), block);
  } else {
    quantize_block(y, QuantizedRow<false>(a.quantized, columns, row), block);
  }
}

}  // namespace lmn::cuda
