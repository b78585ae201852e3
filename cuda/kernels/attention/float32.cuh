// SPDX-License-Identifier: Apache-2.0
//
// Attention over keys and values of float32, which who chooses them wants for their range and
// precision: plain arithmetic. A block takes one query head of a row. Its warps take a split each,
// four at a time, and merge them in ascending order; a row's order is its own.
//
// Floor: operations, 4 head_dim a position and query head, each by one lane; the group's heads read
// keys and values again, from the L2 cache.
#pragma once

#include "cuda/kernels/attention/split.cuh"

namespace lmn::cuda {

inline constexpr int kFloatWidth = 256;  // head_dim at most
inline constexpr int kFloatLanes = kFloatWidth / simt::kWarp;

// Q, then for each warp P, O, and m and l.
struct FloatShared {
  float q[kFloatWidth];
  float p[kAttentionWarps][kSplit];
  float o[kAttentionWarps][kFloatWidth];
  float m[kAttentionWarps], l[kAttentionWarps];
};

// m, l and O of the warp's split, into its part of shared memory.
LMN_DEVICE void float_split(const Attention& a, FloatShared& shared, const int32_t* pages,
                            int64_t kv_head, int split, int position) {
  const int d = a.kv.head_dim, page_tokens = a.kv.page_tokens, w = simt::warp();
  const int begin = split * kSplit;
  const int count = position - begin + 1 < kSplit ? position - begin + 1 : kSplit;
  const auto tile = [&](const std::byte* pool, int at) {
    return reinterpret_cast<const float*>(pool) +
           (int64_t{pages[at / page_tokens]} * a.kv.kv_heads + kv_head) * page_tokens * d;
  };
  float s[kSplit / simt::kWarp], m = simt::float_of_bits(kMinusInfinity);
  for (int j = 0; j < kSplit / simt::kWarp; ++j) {
    const int token = j * simt::kWarp + simt::lane();
    s[j] = simt::float_of_bits(kMinusInfinity);
    if (token >= count) continue;
    const float* key = tile(a.kv.k, begin + token) + (begin + token) % page_tokens;
    float sum = 0;
    for (int i = 0; i < d; ++i) sum = simt::fma(shared.q[i], key[int64_t{i} * page_tokens], sum);
    s[j] = sum;
    m = larger(m, sum);
  }
  m = simt::warp_max(m);
  float l = 0;
  for (int j = 0; j < kSplit / simt::kWarp; ++j) {
    const float p = simt::exp2_fast(s[j] - m);
    shared.p[w][j * simt::kWarp + simt::lane()] = p;
    l += p;
  }
  l = simt::warp_sum(l);
  simt::sync_warp();
  float o[kFloatLanes];
  for (int j = 0; j < kFloatLanes; ++j) o[j] = 0;
  for (int token = 0; token < count; ++token) {
    const float* value = tile(a.kv.v, begin + token) + int64_t{(begin + token) % page_tokens} * d;
    const float p = shared.p[w][token];
    for (int j = 0; j < kFloatLanes; ++j) {
      const int i = j * simt::kWarp + simt::lane();
      if (i < d) o[j] = simt::fma(p, value[i], o[j]);
    }
  }
  for (int j = 0; j < kFloatLanes; ++j) shared.o[w][j * simt::kWarp + simt::lane()] = o[j];
  if (simt::lane() == 0) {
    shared.m[w] = m;
    shared.l[w] = l;
  }
}

// grid: query heads, rows
LMN_KERNEL(kAttentionThreads, 4) void attention_float32(Attention a) {
  simt::wait_for_previous();
  auto& shared = *reinterpret_cast<FloatShared*>(simt::shared_memory());
  const int64_t row = a.first_row + simt::block_y(), head = simt::block_x();
  const int position = a.positions[row], d = a.kv.head_dim;
  float* y = a.y + (row * a.heads + head) * d;
  if (position < 0) {
    for (int i = simt::thread_index(); i < d; i += kAttentionThreads) y[i] = 0;
    return;
  }
  const float* q = a.q + row * a.q_stride + head * d;
  for (int i = simt::thread_index(); i < d; i += kAttentionThreads) shared.q[i] = q[i] * a.q_scale;
  const int32_t* pages = a.block_tables + a.sequence_index[row] * a.table_stride;
  float largest = 0, total = kNothing, out[2] = {kNothing, kNothing};
  const int splits = position / kSplit + 1;
  for (int begin = 0; begin < splits; begin += kAttentionWarps) {
    simt::sync_block();
    if (begin + simt::warp() < splits)
      float_split(a, shared, pages, head / a.group, begin + simt::warp(), position);
    simt::sync_block();
    for (int w = 0; w < kAttentionWarps && begin + w < splits; ++w) {
      const bool nothing = begin + w == 0;
      const float after = nothing ? shared.m[w] : larger(largest, shared.m[w]);
      const MergeFactors f = merge_factors(nothing, largest, shared.m[w], after);
      largest = after;
      total = merged(total, shared.l[w], f);
      for (int j = 0; j < 2; ++j) {
        const int i = simt::thread_index() + j * kAttentionThreads;
        if (i < d) out[j] = merged(out[j], shared.o[w][i], f);
      }
    }
  }
  for (int j = 0; j < 2; ++j) {
    const int i = simt::thread_index() + j * kAttentionThreads;
    if (i < d) y[i] = out[j] / total;
  }
}

}  // namespace lmn::cuda
