// SPDX-License-Identifier: Apache-2.0
#include "ops/dequantize.h"

#include <cstring>

#include "core/check.h"
#include "core/float16.h"

namespace lmn::ops {
namespace {

uint8_t byte_at(const std::byte* p, int64_t i) { return static_cast<uint8_t>(p[i]); }
int8_t signed_at(const std::byte* p, int64_t i) { return static_cast<int8_t>(p[i]); }

uint16_t half_at(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

// Q8_0: f16 d, 32 int8. y = d q.
void block_q8_0(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  for (int i = 0; i < 32; ++i) y[i] = d * signed_at(p + 2, i);
}

// Q4_0: f16 d, 16 bytes whose low nibbles are elements 0..15 and high nibbles 16..31. y = d (q -
// 8).
void block_q4_0(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  for (int i = 0; i < 16; ++i) {
    const int b = byte_at(p + 2, i);
    y[i] = d * static_cast<float>((b & 15) - 8);
    y[i + 16] = d * static_cast<float>((b >> 4) - 8);
  }
}

// Q4_1: f16 d, f16 m, nibbles as Q4_0. y = d q + m.
void block_q4_1(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  const float m = f16_to_f32(half_at(p + 2));
  for (int i = 0; i < 16; ++i) {
    const int b = byte_at(p + 4, i);
    y[i] = d * static_cast<float>(b & 15) + m;
    y[i + 16] = d * static_cast<float>(b >> 4) + m;
  }
}

// The fifth bits of Q5_0 and Q5_1: 32 bits, little endian, bit i belongs to element i.
int fifth_bit(const std::byte* bits, int i) { return (byte_at(bits, i / 8) >> (i % 8)) & 1; }

// Q5_0: f16 d, 32 fifth bits, nibbles as Q4_0. y = d (q - 16).
void block_q5_0(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  for (int i = 0; i < 16; ++i) {
    const int b = byte_at(p + 6, i);
    y[i] = d * static_cast<float>(((b & 15) | fifth_bit(p + 2, i) << 4) - 16);
    y[i + 16] = d * static_cast<float>(((b >> 4) | fifth_bit(p + 2, i + 16) << 4) - 16);
  }
}

// Q5_1: f16 d, f16 m, 32 fifth bits, nibbles as Q4_0. y = d q + m.
void block_q5_1(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  const float m = f16_to_f32(half_at(p + 2));
  for (int i = 0; i < 16; ++i) {
    const int b = byte_at(p + 8, i);
    y[i] = d * static_cast<float>((b & 15) | fifth_bit(p + 4, i) << 4) + m;
    y[i + 16] = d * static_cast<float>((b >> 4) | fifth_bit(p + 4, i + 16) << 4) + m;
  }
}

// The 6-bit scale and minimum of sub-block j (0..7) of Q4_K and Q5_K, from their 12 packed bytes.
void k_scale_min(const std::byte* s, int j, int* scale, int* min) {
  if (j < 4) {
    *scale = byte_at(s, j) & 63;
    *min = byte_at(s, j + 4) & 63;
  } else {
    *scale = (byte_at(s, j + 4) & 15) | (byte_at(s, j - 4) >> 6) << 4;
    *min = (byte_at(s, j + 4) >> 4) | (byte_at(s, j) >> 6) << 4;
  }
}

// Q4_K: f16 d, f16 dmin, 12 bytes of scales, 128 bytes: each 32 bytes hold sub-block 2g in their
// low nibbles and 2g + 1 in their high ones. y = d scale q - dmin min.
void block_q4_k(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  const float dmin = f16_to_f32(half_at(p + 2));
  for (int j = 0; j < 8; ++j) {
    int scale, min;
    k_scale_min(p + 4, j, &scale, &min);
    const float ds = d * static_cast<float>(scale);
    const float dm = dmin * static_cast<float>(min);
    const std::byte* q = p + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int nibble = j % 2 ? byte_at(q, i) >> 4 : byte_at(q, i) & 15;
      y[j * 32 + i] = ds * static_cast<float>(nibble) - dm;
    }
  }
}

// Q5_K: as Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte i belongs to element
// i of sub-block j.
void block_q5_k(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p));
  const float dmin = f16_to_f32(half_at(p + 2));
  const std::byte* high = p + 16;
  for (int j = 0; j < 8; ++j) {
    int scale, min;
    k_scale_min(p + 4, j, &scale, &min);
    const float ds = d * static_cast<float>(scale);
    const float dm = dmin * static_cast<float>(min);
    const std::byte* q = p + 48 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int nibble = j % 2 ? byte_at(q, i) >> 4 : byte_at(q, i) & 15;
      const int bit = (byte_at(high, i) >> j) & 1;
      y[j * 32 + i] = ds * static_cast<float>(nibble | bit << 4) - dm;
    }
  }
}

// Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales (one per 16 elements), f16
// d. Each half of 128 elements uses 64 low and 32 high bytes. y = d scale (q - 32).
void block_q6_k(const std::byte* p, float* y) {
  const float d = f16_to_f32(half_at(p + 208));
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = p + half * 64;
    const std::byte* high = p + 128 + half * 32;
    const std::byte* scales = p + 192 + half * 8;
    for (int i = 0; i < 128; ++i) {
      const int group = i / 32,
                l = i % 32;  // groups 0, 1: low nibbles of low[0..63]; 2, 3: their high nibbles
      const int byte = byte_at(low, group % 2 * 32 + l);
      const int nibble = group < 2 ? byte & 15 : byte >> 4;
      const int q = nibble | ((byte_at(high, l) >> (2 * group)) & 3) << 4;
      y[half * 128 + i] =
          d * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>(q - 32);
    }
  }
}

using BlockFn = void (*)(const std::byte*, float*);

BlockFn block_function(DType type) {
  switch (type) {
    case DType::kF32:
      return [](const std::byte* p, float* y) { std::memcpy(y, p, sizeof *y); };
    case DType::kF16:
      return [](const std::byte* p, float* y) { *y = f16_to_f32(half_at(p)); };
    case DType::kBF16:
      return [](const std::byte* p, float* y) { *y = bf16_to_f32(half_at(p)); };
    case DType::kQ8_0:
      return block_q8_0;
    case DType::kQ4_0:
      return block_q4_0;
    case DType::kQ4_1:
      return block_q4_1;
    case DType::kQ5_0:
      return block_q5_0;
    case DType::kQ5_1:
      return block_q5_1;
    case DType::kQ4_K:
      return block_q4_k;
    case DType::kQ5_K:
      return block_q5_k;
    case DType::kQ6_K:
      return block_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_dequantize(DType type) { return block_function(type) != nullptr; }

void dequantize(DType type, const std::byte* source, int64_t count, float* y) {
  const BlockFn block = block_function(type);
  LMN_CHECK(block != nullptr);
  const int64_t elements = info(type).block_elements;
  for (int64_t i = 0; i < count; i += elements) {
    block(source, y + i);
    source += info(type).block_bytes;
  }
}

}  // namespace lmn::ops
