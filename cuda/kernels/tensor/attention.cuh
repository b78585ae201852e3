// SPDX-License-Identifier: Apache-2.0
//
// lmnative.Attention: y = softmax(scale q k^T + mask) v of each batch and head, operands of any
// strides. A block takes kQueries rows, a warp four of them; keys pass by in tiles of 32, a lane
// each, with a running maximum and sum, so that no scores are in memory. Tiles begin at the first
// key whatever the row is, and each is added in one order.
#pragma once

#include "cuda/kernels/tensor/values.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kAttentionThreads = 128, kAttentionWarps = kAttentionThreads / simt::kWarp;
inline constexpr int kQueriesOfWarp = 4, kQueries = kQueriesOfWarp * kAttentionWarps;
inline constexpr int kKeys = simt::kWarp;
inline constexpr int kMostHeadDim = 128, kValuesOfLane = kMostHeadDim / simt::kWarp;

struct HeadStrides {
  uint32_t batch, head, row, column;
};

struct AttentionParams {
  const void* q;
  const void* k;
  const void* v;
  const void* mask;  // null: none
  const void* factors[2];
  void* y;
  DType q_type, k_type, v_type, mask_type, factor_types[2], y_type;
  HeadStrides q_strides, k_strides, v_strides, y_strides, mask_strides;
  uint32_t batches, heads, queries, keys, dim, value_dim;
  float scale;
};

inline uint32_t attention_shared_bytes(uint32_t dim, uint32_t value_dim) {
  return static_cast<uint32_t>(sizeof(float)) *
         (kQueries * dim + kKeys * (dim + 1) + kKeys * value_dim);
}

// Rows [first, first + kRows) of a head to shared memory; beyond `count` they are zeros.
template <int kRows>
LMN_DEVICE void fetch_rows(const void* x, DType type, const HeadStrides& s, uint32_t base,
                           uint32_t first, uint32_t count, uint32_t columns, uint32_t stride,
                           float* to) {
  for (uint32_t i = static_cast<uint32_t>(simt::thread_index()); i < kRows * columns;
       i += kAttentionThreads) {
    const uint32_t row = i / columns, column = i - row * columns;
    to[row * stride + column] =
        first + row < count ? load<float>(x, type, base + (first + row) * s.row + column * s.column)
                            : 0.0f;
  }
}

LMN_KERNEL(kAttentionThreads, 4) void dot_attention(AttentionParams p) {
  simt::wait_for_previous();
  float* q = reinterpret_cast<float*>(simt::shared_memory());  // [kQueries][dim]
  float* k = q + kQueries * p.dim;                             // [kKeys][dim + 1]
  float* v = k + kKeys * (p.dim + 1);                          // [kKeys][value_dim]
  auto block = static_cast<uint32_t>(simt::block_x());
  const uint32_t down = (p.queries + kQueries - 1) / kQueries;
  const uint32_t first = block % down * kQueries;
  block /= down;
  const uint32_t head = block % p.heads, batch = block / p.heads;
  const auto base = [&](const HeadStrides& s) { return batch * s.batch + head * s.head; };
  const auto lane = static_cast<uint32_t>(simt::lane());
  const uint32_t own = static_cast<uint32_t>(simt::warp()) * kQueriesOfWarp;
  float scale = p.scale;
  for (int i = 0; i < 2; ++i) {
    if (p.factors[i] != nullptr) scale *= load<float>(p.factors[i], p.factor_types[i], 0);
  }
  fetch_rows<kQueries>(p.q, p.q_type, p.q_strides, base(p.q_strides), first, p.queries, p.dim,
                       p.dim, q);
  float most[kQueriesOfWarp], sum[kQueriesOfWarp], y[kQueriesOfWarp][kValuesOfLane] = {};
  for (int r = 0; r < kQueriesOfWarp; ++r) {
    most[r] = -HUGE_VALF;
    sum[r] = 0;
  }
  for (uint32_t key = 0; key < p.keys; key += kKeys) {
    simt::sync_block();
    fetch_rows<kKeys>(p.k, p.k_type, p.k_strides, base(p.k_strides), key, p.keys, p.dim, p.dim + 1,
                      k);
    fetch_rows<kKeys>(p.v, p.v_type, p.v_strides, base(p.v_strides), key, p.keys, p.value_dim,
                      p.value_dim, v);
    simt::sync_block();
    float score[kQueriesOfWarp] = {};
    for (uint32_t d = 0; d < p.dim; ++d) {
      const float at = k[lane * (p.dim + 1) + d];
      for (int r = 0; r < kQueriesOfWarp; ++r) {
        score[r] = simt::fma(q[(own + static_cast<uint32_t>(r)) * p.dim + d], at, score[r]);
      }
    }
    for (int r = 0; r < kQueriesOfWarp; ++r) {
      const uint32_t row = first + own + static_cast<uint32_t>(r);
      float s = score[r] * scale;
      if (p.mask != nullptr && row < p.queries && key + lane < p.keys) {
        s += load<float>(
            p.mask, p.mask_type,
            base(p.mask_strides) + row * p.mask_strides.row + (key + lane) * p.mask_strides.column);
      }
      if (key + lane >= p.keys) s = -HUGE_VALF;
      const float peak = simt::warp_max(s);
      // Of a NaN the maximum knows nothing; the sum below does.
      const float next = peak > most[r] ? peak : most[r];
      const bool none = next == -HUGE_VALF;  // so far nothing is attended to
      const float power = none && s == s ? 0.0f : expf(s - next);
      const float keep = none ? 1.0f : expf(most[r] - next);
      sum[r] = sum[r] * keep + simt::warp_sum(power);
      most[r] = next;
      for (int c = 0; c < kValuesOfLane; ++c) y[r][c] *= keep;
      score[r] = power;
    }
    for (int i = 0; i < kKeys; ++i) {
      float value[kValuesOfLane];
      for (int c = 0; c < kValuesOfLane; ++c) {
        const uint32_t column = static_cast<uint32_t>(c * simt::kWarp) + lane;
        value[c] = column < p.value_dim ? v[static_cast<uint32_t>(i) * p.value_dim + column] : 0.0f;
      }
      for (int r = 0; r < kQueriesOfWarp; ++r) {
        const float power = simt::shuffle(score[r], i);
        for (int c = 0; c < kValuesOfLane; ++c) y[r][c] = simt::fma(power, value[c], y[r][c]);
      }
    }
  }
  for (int r = 0; r < kQueriesOfWarp; ++r) {
    const uint32_t row = first + own + static_cast<uint32_t>(r);
    if (row >= p.queries) break;
    for (int c = 0; c < kValuesOfLane; ++c) {
      const uint32_t column = static_cast<uint32_t>(c * simt::kWarp) + lane;
      if (column >= p.value_dim) break;
      store(p.y, p.y_type, base(p.y_strides) + row * p.y_strides.row + column * p.y_strides.column,
            y[r][c] / sum[r]);
    }
  }
}

}  // namespace lmn::cuda::tensor
