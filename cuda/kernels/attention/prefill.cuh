// SPDX-License-Identifier: Apache-2.0
//
// Attention of many rows of a sequence. A block takes 64 rows, each a query head of a token: as
// many consecutive tokens as fit, with the query heads of one KV head (or 64 of these). A warp owns
// 16 rows and does for each what split.cuh says, with S, P and O in its registers. The tokens may
// be those of several sequences, which the block goes through one after the other; splits behind
// the last position of its tokens are not visited.
//
// Floor: operations, 4 head_dim a row and position, half of them where a chunk attends to itself.
// Keys and values are read once a block: 64 rows do 32 operations a byte of the L2 cache in
// float16. In flight: values while S is computed, and the next keys while O is, 32 KB each at
// head_dim 128, two blocks a multiprocessor. At head_dim 256, and in q8_0, keys and values follow
// each other through one tile and a block waits for them, while another computes.
#pragma once

#include "cuda/kernels/attention/kv_tiles.cuh"

namespace lmn::cuda {

inline constexpr int kPrefillRows = 64;
inline constexpr int kWarpRows = kPrefillRows / kAttentionWarps;

template <DType kType, int kWidth>
inline constexpr bool kPrefillApart = kType == DType::kF16&& kWidth <= 128;

// Dimensions of O in a block: there are no registers for more. At head_dim 256 two blocks compute
// the same S.
template <int kWidth>
inline constexpr int kOutputs = kWidth < 128 ? kWidth : 128;

inline constexpr int kLoadsAtOnce = 2;  // of q8_0, beside O

// Tiles of keys, values and Q, and in q8_0 scales.
template <DType kType, int kWidth>
inline constexpr uint32_t kPrefillShared =
    kTileBytes<kWidth>*(kPrefillApart<kType, kWidth> ? 2 : 1) + kPrefillRows* kWidth * 2 +
    (kType == DType::kQ8_0 ? QuantizedTile<kWidth, true>::kScaleBytes : 0);

// Which row of the operator and which head row `index` of a block is.
struct PrefillBlock {
  int heads_at_once, heads, tokens;  // heads: of these that there are
  int kv_head, head, begin, end;     // head: the first; [begin, end): tokens

  LMN_DEVICE explicit PrefillBlock(const Attention& a) {
    heads_at_once = a.group < kPrefillRows ? a.group : kPrefillRows;
    tokens = kPrefillRows / heads_at_once;
    const int head_blocks = (a.group + heads_at_once - 1) / heads_at_once;
    const int first = simt::block_y() % head_blocks * heads_at_once;
    heads = a.group - first < heads_at_once ? a.group - first : heads_at_once;
    kv_head = simt::block_y() / head_blocks;
    head = kv_head * a.group + first;
    // The last tokens, which attend to most, come first.
    begin = static_cast<int>(a.first_row) + (simt::grid_x() - 1 - simt::block_x()) * tokens;
    end = begin + tokens < a.rows ? begin + tokens : static_cast<int>(a.rows);
  }
  LMN_DEVICE int token(int index) const { return begin + index / heads_at_once; }
  LMN_DEVICE bool there(int index) const {
    return token(index) < end && index % heads_at_once < heads;
  }
  LMN_DEVICE int head_of(int index) const { return head + index % heads_at_once; }
};

// What the warp's rows have so far: rows g and g + 8 in this lane.
template <int kWidth>
struct PrefillState {
  float o[kOutputs<kWidth> / 8][4];
  float largest[2] = {0, 0}, total[2] = {kNothing, kNothing};
  bool nothing[2] = {true, true};
  float m[2];        // of the split at hand
  uint32_t p[8][4];  // of the split at hand

  LMN_DEVICE PrefillState() {
    LMN_UNROLL
    for (int n = 0; n < kOutputs<kWidth> / 8; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = kNothing;
  }
  // S and P. Rows attend up to `limit` of the split, those with less than 0 to nothing.
  LMN_DEVICE void score(std::byte* q, std::byte* keys, int quarters, const int (&limit)[2]) {
    float s[kSplit / 8][4];
    scores<kWidth>(s, q, simt::warp() * kWarpRows, keys, 0, quarters);
    if (simt::ballot(limit[0] < kSplit - 1 || limit[1] < kSplit - 1) != 0)
      mask(s, simt::lane() % 4 * 2, limit);
    row_max(m, s);
    LMN_UNROLL
    for (int step = 0; step < 8; ++step) {
      LMN_UNROLL
      for (int half = 0; half < 2; ++half) {
        p[step][half] = weights(s[2 * step], half, m[half]);
        p[step][half + 2] = weights(s[2 * step + 1], half, m[half]);
      }
    }
  }
  // O, merged with what there was. A row that attends to nothing here stays as it is.
  LMN_DEVICE void add(std::byte* values, int quarters, const int (&limit)[2]) {
    const simt::F32x2 sums = weight_sums(p, quarters);
    MergeFactors f[2];
    LMN_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (limit[half] < 0) continue;
      const float after = nothing[half] ? m[half] : larger(largest[half], m[half]);
      f[half] = merge_factors(nothing[half], largest[half], m[half], after);
      total[half] = merged(total[half], half == 0 ? sums.x : sums.y, f[half]);
      largest[half] = after;
      nothing[half] = false;
    }
    constexpr int kTiles = 4;
    LMN_UNROLL
    for (int chunk = 0; chunk < kOutputs<kWidth> / 8; chunk += kTiles) {
      float next[kTiles][4];
      weighted_values<kOutputs<kWidth>>(next, p, values, chunk, quarters);
      LMN_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (limit[half] < 0) continue;
        LMN_UNROLL
        for (int n = 0; n < kTiles; ++n) {
          LMN_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i)
            o[chunk + n][i] = merged(o[chunk + n][i], next[n][i], f[half]);
        }
      }
    }
  }
};

// grid: blocks of tokens from a.first_row on, KV heads times blocks of their query heads, and
// blocks of dimensions.
template <DType kType, int kWidth>
LMN_KERNEL(kAttentionThreads, 2)
void attention_rows(Attention a) {
  constexpr bool kApart = kPrefillApart<kType, kWidth>;
  constexpr int kHere = kOutputs<kWidth>;
  const int first_output = simt::block_z() * kHere;
  std::byte* keys = simt::shared_memory();
  std::byte* values = kApart ? keys + kTileBytes<kWidth> : keys;
  std::byte* q = values + kTileBytes<kWidth>;
  [[maybe_unused]] std::byte* scales = q + kPrefillRows * kWidth * 2;
  const PrefillBlock block(a);
  simt::wait_for_previous();
  const int first = simt::warp() * kWarpRows;
  for (int i = first; i < first + kWarpRows; ++i) {
    const float* from =
        a.q + block.token(i) * a.q_stride + int64_t{block.head_of(i)} * a.kv.head_dim;
    bring_query<kWidth>(a, q, i, block.there(i) ? from : nullptr);
  }
  simt::sync_warp();
  int position[2];
  LMN_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int index = first + simt::lane() / 4 + 8 * half;
    position[half] = block.there(index) ? a.positions[block.token(index)] : -1;
  }

  PrefillState<kWidth> state;
  for (int begin = block.begin; begin < block.end;) {
    int end = begin + 1;  // of the tokens of a sequence
    if (a.positions[begin] < 0) {
      begin = end;
      continue;
    }
    const int32_t sequence = a.sequence_index[begin];
    while (end < block.end && a.positions[end] >= 0 && a.sequence_index[end] == sequence) ++end;
    const KvHead kv(a, sequence, block.kv_head, a.positions[end - 1]);
    // How far the lane's two rows attend in it, and the farthest of the warp.
    int reach[2], farthest = -1;
    LMN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int token = block.token(first + simt::lane() / 4 + 8 * half);
      reach[half] = token >= begin && token < end ? position[half] : -1;
    }
    const int warp_last = block.token(first + kWarpRows - 1);
    const int last = warp_last < end ? warp_last : end - 1;
    if (last >= begin && block.token(first) < end) farthest = a.positions[last];

    const int splits = kv.last / kSplit + 1;
    SplitPages pages(a, kv, 0);
    if constexpr (kApart) {  // what computed with the last keys has met a barrier since
      bring_keys<kWidth>(a, kv, pages, 0, keys);
      simt::copy_commit();
    }
    for (int split = 0; split < splits; ++split) {
      const int limit[2] = {reach[0] - split * kSplit, reach[1] - split * kSplit};
      const bool mine = farthest >= split * kSplit;
      const int quarters = mine ? quarters_of(farthest - split * kSplit) : 0;
      SplitPages next;
      if constexpr (kApart) {
        simt::copy_wait<0>();
        simt::sync_block();
        bring_values<kHere>(a, kv, pages, split, values, first_output);
        simt::copy_commit();
        if (split + 1 < splits) next = SplitPages(a, kv, split + 1);
      } else if constexpr (kType == DType::kF16) {
        simt::sync_block();
        bring_keys<kWidth>(a, kv, pages, split, keys);
        simt::copy_commit();
        simt::copy_wait<0>();
        simt::sync_block();
      } else {
        simt::sync_block();
        QuantizedTile<kWidth, true, kLoadsAtOnce>(a, kv, pages, split, scales).bring(keys);
        simt::sync_block();
      }
      if (mine) state.score(q, keys, quarters, limit);
      if constexpr (kApart) {
        simt::copy_wait<0>();
        simt::sync_block();
        if (split + 1 < splits) bring_keys<kWidth>(a, kv, next, split + 1, keys);
        simt::copy_commit();
      } else {
        simt::sync_block();
        if constexpr (kType == DType::kF16) {
          bring_values<kHere>(a, kv, pages, split, values, first_output);
          simt::copy_commit();
          simt::copy_wait<0>();
        } else {
          QuantizedTile<kHere, false, kLoadsAtOnce>(a, kv, pages, split, scales, first_output)
              .bring(values);
        }
        simt::sync_block();
        if (split + 1 < splits) next = SplitPages(a, kv, split + 1);
      }
      if (mine) state.add(values, quarters, limit);
      pages = next;
    }
    begin = end;
  }
  simt::copy_wait<0>();

  LMN_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int index = first + simt::lane() / 4 + 8 * half;
    if (!block.there(index)) continue;
    float* y = a.y + (int64_t{block.token(index)} * a.heads + block.head_of(index)) * a.kv.head_dim;
    LMN_UNROLL
    for (int n = 0; n < kHere / 8; ++n) {
      const int d = first_output + n * 8 + simt::lane() % 4 * 2;
      if (d >= a.kv.head_dim) continue;
      simt::F32x2 out{0, 0};
      if (position[half] >= 0)
        out = {state.o[n][2 * half] / state.total[half],
               state.o[n][2 * half + 1] / state.total[half]};
      *reinterpret_cast<simt::F32x2*>(y + d) = out;
    }
  }
}

}  // namespace lmn::cuda
