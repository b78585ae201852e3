// SPDX-License-Identifier: Apache-2.0
//
// Rotary embeddings and the way of keys and values into the cache. A block takes 16 rows of one
// head of q, k or v: 16 tokens of a key's dimension are one sector of 32 bytes in a page of
// float16. q is rotated where it lies; k and v go through shared memory, from where keys are
// written token by token and values dimension by dimension, as their pages have them.
//
// Floor: bytes. A row's q is read and written once, k and v are read once as float32 and written in
// the cache's type; at a decode step that is kilobytes, and the launch is what it costs.
//
// Rows whose slot is -1 write nothing.
#pragma once

#include "core/dtype.h"
#include "cuda/core/simt.cuh"
#include "ops/op_args.h"

namespace lmn::cuda {

inline constexpr int kRopeThreads = 128;
inline constexpr int kRopeRows = 16;

// A thread takes an angle. In double precision: at position 10^6 a float has no digits of the angle
// left behind the point.
LMN_KERNEL(kRopeThreads, 4) void rope_table(ops::RopeTableArgs a) {
  simt::wait_for_previous();
  const int64_t half = a.rot_dim / 2;
  const int64_t at = int64_t{simt::block_x()} * kRopeThreads + simt::thread_index();
  if (at >= a.rows * half) return;
  const int64_t row = at / half, i = at % half;
  const double angle = static_cast<double>(a.positions[row]) * static_cast<double>(a.inv_freq[i]);
  const double magnitude = static_cast<double>(a.magnitude);
  float* out = a.cos_sin + row * a.rot_dim + i;
  out[0] = static_cast<float>(simt::cosine(angle) * magnitude);
  out[half] = static_cast<float>(simt::sine(angle) * magnitude);
}

// What one launch does: heads of q are rotated, those of k rotated and written, those of v written.
// There may be none of either; rot_dim 0 rotates nothing.
struct RopeWrite {
  int64_t rows;
  float* q;        // [rows, q_heads, head_dim], row by row q_stride apart; k and v alike
  const float* k;  // [rows, kv.kv_heads, head_dim]
  const float* v;
  int64_t q_stride, k_stride, v_stride;
  const float* cos_sin;  // [rows, rot_dim]
  const int32_t* slots;  // [rows]
  ops::KvLayer kv;
  int64_t q_heads;
  int32_t head_dim, rot_dim;
  ops::RopeStyle style;
};

// Pair i of a head: where its two elements lie, and what they become.
struct RopePair {
  int first, second;

  LMN_DEVICE RopePair(const RopeWrite& a, int i) {
    const bool halves = a.style == ops::RopeStyle::kHalves;
    first = halves ? i : 2 * i;
    second = halves ? i + a.rot_dim / 2 : 2 * i + 1;
  }
  LMN_DEVICE simt::F32x2 rotated(const float* x, float cosine, float sine) const {
    const float x0 = x[first], x1 = x[second];
    return {simt::fma(x0, cosine, -(x1 * sine)), simt::fma(x0, sine, x1 * cosine)};
  }
};

LMN_DEVICE float absolute(float v) { return v < 0 ? -v : v; }

// A warp's block of 32 elements in the cache's q8_0 (ops::KvLayer): the byte of this lane, which
// brings element `v`, as a float, and the scale of all.
struct KvBlock {
  float byte;
  uint16_t scale;
};
LMN_DEVICE KvBlock quantize_kv(float v) {
  const bool nan = simt::ballot(v != v) != 0;
  const float largest = nan ? simt::float_of_bits(0x7FC00000) : simt::warp_max(absolute(v));
  const uint16_t half = simt::float_to_half(largest / 127.0f);
  const float scale = simt::half_to_float(half);
  float n = 0;
  if (scale > 0 && scale - scale == 0) n = simt::round_even(v * (1.0f / scale));
  n = n > 127.0f ? 127.0f : n < -127.0f ? -127.0f : n;
  return {n, half};
}

// grid: blocks of rows, heads of q, k and v. Shared memory: float [kRopeRows, head_dim + 1]
LMN_KERNEL(kRopeThreads, 4) void rope_write(RopeWrite a) {
  simt::wait_for_previous();
  const int64_t begin = int64_t{simt::block_x()} * kRopeRows;
  const int rows = static_cast<int>(a.rows - begin < kRopeRows ? a.rows - begin : kRopeRows);
  const int d = a.head_dim, pairs = a.rot_dim / 2;
  const int64_t part = simt::block_y();
  const float* angles = a.cos_sin + begin * a.rot_dim;

  if (part < a.q_heads) {
    float* q = a.q + begin * a.q_stride + part * d;
    for (int at = simt::thread_index(); at < rows * pairs; at += kRopeThreads) {
      const int row = at / pairs, i = at % pairs;
      const RopePair pair(a, i);
      float* x = q + row * a.q_stride;
      const float* c = angles + row * a.rot_dim + i;
      const simt::F32x2 y = pair.rotated(x, c[0], c[pairs]);
      x[pair.first] = y.x;
      x[pair.second] = y.y;
    }
    return;
  }

  auto* tile = reinterpret_cast<float*>(simt::shared_memory());
  const int pitch = d + 1;
  const bool key = part < a.q_heads + a.kv.kv_heads;
  const int64_t head = part - a.q_heads - (key ? 0 : a.kv.kv_heads);
  const int64_t stride = key ? a.k_stride : a.v_stride;
  const float* from = (key ? a.k : a.v) + begin * stride + head * d;
  const int rotated = key ? a.rot_dim : 0;
  for (int at = simt::thread_index(); key && at < rows * pairs; at += kRopeThreads) {
    const int row = at / pairs, i = at % pairs;
    const RopePair pair(a, i);
    const float* c = angles + row * a.rot_dim + i;
    const simt::F32x2 y = pair.rotated(from + row * stride, c[0], c[pairs]);
    tile[row * pitch + pair.first] = y.x;
    tile[row * pitch + pair.second] = y.y;
  }
  for (int at = simt::thread_index(); at < rows * (d - rotated); at += kRopeThreads) {
    const int row = at / (d - rotated), i = rotated + at % (d - rotated);
    tile[row * pitch + i] = from[row * stride + i];
  }
  simt::sync_block();

  const int64_t page_tokens = a.kv.page_tokens, elements = page_tokens * d;
  const int64_t size = a.kv.dtype == DType::kF32 ? 4 : a.kv.dtype == DType::kF16 ? 2 : 1;
  const int64_t page_bytes = elements * size + (size == 1 ? elements / 32 * 2 : 0);
  std::byte* cache = key ? a.kv.k : a.kv.v;
  const auto page_of = [&](int64_t slot) {
    return cache + (slot / page_tokens * a.kv.kv_heads + head) * page_bytes;
  };
  if (size == 1) {
    const int blocks = d / 32;
    for (int b = simt::warp(); b < rows * blocks; b += kRopeThreads / simt::kWarp) {
      const int row = b / blocks, block = b % blocks;
      float* mine = tile + row * pitch + block * 32 + simt::lane();
      const KvBlock q = quantize_kv(*mine);
      *mine = q.byte;
      const int64_t slot = a.slots[begin + row];
      if (simt::lane() != 0 || slot < 0) continue;
      reinterpret_cast<uint16_t*>(page_of(slot) +
                                  elements)[block * page_tokens + slot % page_tokens] = q.scale;
    }
    simt::sync_block();
  }
  for (int at = simt::thread_index(); at < rows * d; at += kRopeThreads) {
    const int row = key ? at % rows : at / d, i = key ? at / rows : at % d;
    const int64_t slot = a.slots[begin + row];
    if (slot < 0) continue;
    const float v = tile[row * pitch + i];
    const int64_t token = slot % page_tokens;
    std::byte* to = page_of(slot) + (key ? i * page_tokens + token : token * d + i) * size;
    if (size == 4) {
      *reinterpret_cast<float*>(to) = v;
    } else if (size == 2) {
      *reinterpret_cast<uint16_t*>(to) = simt::float_to_half(v);
    } else {
      *reinterpret_cast<int8_t*>(to) = static_cast<int8_t>(v);
    }
  }
}

}  // namespace lmn::cuda
