// SPDX-License-Identifier: Apache-2.0
//
// The packed layout of a weight: panels of `lanes` output channels. A panel is one stream, read
// from front to back:
//
//   float weights       values [columns][lanes]
//   quantised weights   per block of 32 columns: what ScaleKind says, [lanes] each; then the quants
//   of the block (below).
//                       K-quants have, before the first of every 8 blocks, their supers, [lanes]
//                       each
//
// Quants of one block, as units of `lanes` x 4 bytes (one vector; lane c belongs to channel c; k
// counts within the block):
//   4-bit, kQA8    4 units; byte i of unit j holds k = 4j + i in its low nibble and 16 + 4j + i in
//                  its high one
//   4-bit, kQA16   the same with the middle bytes of each lane swapped, so that masking 16-bit
//                  halves gives neighbouring pairs: unit j shifted by 4v (v = 0, 1, 2, 3) gives
//                  k = 4j + 16 (v % 2) + v / 2 * 2 and the k after it
//   5-bit          the low four bits as 4-bit; then one unit of fifth bits: bit 2j + h of byte i
//                  belongs to the low (h = 0) or the high nibble of byte i of unit j
//   6-bit, kQA16   the low four bits as 4-bit, of the columns 0 to 15 in the first two units and 16
//                  to 31 in the others: unit j shifted by 4v gives k = 16 (j / 2) + 4 (j % 2) +
//                  8 (v % 2) + v / 2 * 2 and the k after it; then two units of high bits: bits
//                  4 (j % 2) + 2h and the next of byte i of the (j / 2)th belong to the low (h = 0)
//                  or the high nibble of byte i of unit j
//   8-bit, kQA8    8 units; byte i of unit j is k = 4j + i, unsigned (q + 128), or signed where
//                  the instruction set multiplies signed bytes
//   8-bit, kQA16   16 half units of `lanes` x 2 bytes; byte i of half unit j is k = 2j + i, signed
//
// Bytes per weight are the file's, but for q4_k and q5_k, which are wider by a fortieth.
//
// Plain data and internal linkage: fenced kernel files include this header.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lmn::cpu {
namespace {

enum class ScaleKind : uint8_t {
  kNone,     // float weights
  kHalf,     // f16 scale per block
  kHalfMin,  // f16 scale, f16 minimum per block
  kSuper,  // u8 scale, u8 minimum per block; f16 d and f16 -dmin per 256: scale = d * u8, minimum =
           // -dmin * u8
  kSuper16,  // two s8 scales per block, one for each 16 columns; f16 d per 256
};

struct WeightKind {
  int bits = 0;  // of a stored integer or float: 4, 5, 6, 8, 16, 32
  int zero = 0;  // what the file's integers are offset by: 8 for q4_0, 16 for q5_0, 32 for q6_k
  ScaleKind scales = ScaleKind::kNone;
};

[[maybe_unused]] constexpr WeightKind weight_kind(DType type) {
  switch (type) {
    case DType::kF32:
      return {32, 0, ScaleKind::kNone};
    case DType::kF16:
    case DType::kBF16:
      return {16, 0, ScaleKind::kNone};
    case DType::kQ4_0:
      return {4, 8, ScaleKind::kHalf};
    case DType::kQ4_1:
      return {4, 0, ScaleKind::kHalfMin};
    case DType::kQ4_K:
      return {4, 0, ScaleKind::kSuper};
    case DType::kQ8_0:
      return {8, 0, ScaleKind::kHalf};
    case DType::kQ5_0:
      return {5, 16, ScaleKind::kHalf};
    case DType::kQ5_1:
      return {5, 0, ScaleKind::kHalfMin};
    case DType::kQ5_K:
      return {5, 0, ScaleKind::kSuper};
    case DType::kQ6_K:
      return {6, 32, ScaleKind::kSuper16};
    default:
      return {};
  }
}

// Where the high bits of the 16-bit halves begin that unit j gives, shifted by 4v.
[[maybe_unused]] constexpr int fifth_bit(int j, int v) { return v / 2 * 8 + 2 * j + v % 2; }
[[maybe_unused]] constexpr int sixth_bits(int j, int v) {
  return v / 2 * 8 + j % 2 * 4 + v % 2 * 2;
}

// Bytes of the scales of one block and of the supers of 256 columns, per lane.
[[maybe_unused]] constexpr int scale_bytes(ScaleKind kind) {
  return kind == ScaleKind::kNone ? 0 : kind == ScaleKind::kHalfMin ? 4 : 2;
}
[[maybe_unused]] constexpr int super_bytes(ScaleKind kind) {
  return kind == ScaleKind::kSuper ? 4 : kind == ScaleKind::kSuper16 ? 2 : 0;
}

[[maybe_unused]] constexpr int64_t block_bytes(DType type, int64_t lanes) {
  return lanes * (4 * weight_kind(type).bits + scale_bytes(weight_kind(type).scales));
}

// Bytes of a panel, a multiple of 64.
[[maybe_unused]] constexpr int64_t panel_bytes(DType type, int64_t columns, int64_t lanes) {
  const WeightKind kind = weight_kind(type);
  const int64_t bytes = kind.scales == ScaleKind::kNone
                            ? columns * lanes * kind.bits / 8
                            : columns / 32 * block_bytes(type, lanes) +
                                  columns / 256 * lanes * super_bytes(kind.scales);
  return (bytes + 63) / 64 * 64;
}

// Where block b of a panel begins: its scales. The supers of its group of 8 begin super_offset(b)
// bytes in.
[[maybe_unused]] constexpr int64_t block_offset(DType type, int64_t lanes, int64_t b) {
  return b * block_bytes(type, lanes) + (b / 8 + 1) * lanes * super_bytes(weight_kind(type).scales);
}
[[maybe_unused]] constexpr int64_t super_offset(DType type, int64_t lanes, int64_t b) {
  return block_offset(type, lanes, b / 8 * 8) - lanes * super_bytes(weight_kind(type).scales);
}

}  // namespace
}  // namespace lmn::cpu
