// SPDX-License-Identifier: Apache-2.0
//
// Where a weight's bits lie in a packed matrix of this device: what pack.cc writes and kernels
// read. Plain numbers, no code of the device.
//
// Output channels in panels of 32, padded with zeros; a panel is contiguous, panel after panel. Its
// columns are steps of 128 (4 blocks of 32), two steps a split (256 columns): the unit of the sums
// (product.cuh). The last step of quantised rows may have fewer blocks.
//
// Inside a step, everything is in the order in which a warp's lanes hold the fragments of
// mma m16n8k32: with g = lane / 4 and t = lane % 4, a lane has channels g + 8c, c = 0 to 3, and of
// each block columns 4t to 4t + 3 and 16 + 4t to 19 + 4t. So 16 bytes a lane, 512 adjacent bytes a
// warp, are the weights of two matrix instructions, from memory straight to registers.
//
//   quants  [block][lane][16 bytes]: word c has channel g + 8c; byte i of it column 4t + i in its
//           low nibble and 16 + 4t + i in its high one. 8-bit: [block][half 2][lane][16 bytes],
//           byte i: column 16 half + 4t + i
//   high    5-bit: [lane][4 blocks][4 bytes]: bit 8i + 2c + half is bit 4 of column 16 half + 4t +
//   i
//           6-bit: [block pair][lane][2 blocks][8 bytes]: word c / 2, bits 8i + 4 (c % 2) + 2 half
//           and the next are bits 4 and 5
//   scales  [channel][8 bytes], always of 4 blocks: float16 d; K-quants: 4 scales, then 4 minimums,
//           unsigned bytes; q6_k: 8 signed bytes, two a block. With a minimum, [channel][16 bytes]:
//           float16 d, m of each block
//   super   behind the two steps of a split of K-quants, [g][c][4 bytes]: float16 d, dmin; q6_k:
//           float32 d
//
// q4_0, q5_0 and q6_k are stored as two's complement of their 4, 5 or 6 bits.
//
// float16 and bfloat16: [16 columns][channel half 2][lane][16 bytes], the fragments of mma
// m16n8k16; columns are padded to a multiple of 16. float32: [column][channel].
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lmn::cuda {

inline constexpr int kPanel = 32;      // channels
inline constexpr int kBlock = 32;      // columns that share a scale
inline constexpr int kStepBlocks = 4;  // blocks of a step
inline constexpr int kStep = kBlock * kStepBlocks;
inline constexpr int kSplit = 2 * kStep;  // columns that are summed before they join a total
inline constexpr int kSegmentAlign = 256;

struct WeightFormat {
  int bits;        // of an integer
  bool is_signed;  // stored as two's complement
  bool has_min;    // float16 minimums a block
  bool is_super;   // K-quants: scales of scales

  constexpr int quant_bytes() const { return bits == 8 ? 1024 : 512; }                 // a block
  constexpr int high_bytes() const { return bits == 5 ? 512 : bits == 6 ? 1024 : 0; }  // a step
  constexpr int scale_words() const { return has_min ? 4 : 2; }  // of a channel and step
  constexpr int scale_bytes() const { return kPanel * scale_words() * 4; }
  constexpr int fixed_bytes() const { return high_bytes() + scale_bytes(); }
  constexpr int step_bytes() const { return kStepBlocks * quant_bytes() + fixed_bytes(); }
  constexpr int super_bytes() const { return is_super ? kPanel * 4 : 0; }
  // A lane's integers are these times the weights: they lie in the upper bits of their byte.
  constexpr int unpacked_factor() const { return is_signed ? 1 << (8 - bits) : 1; }
};

constexpr WeightFormat weight_format(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {4, true, false, false};
    case DType::kQ4_1:
      return {4, false, true, false};
    case DType::kQ5_0:
      return {5, true, false, false};
    case DType::kQ5_1:
      return {5, false, true, false};
    case DType::kQ4_K:
      return {4, false, false, true};
    case DType::kQ5_K:
      return {5, false, false, true};
    case DType::kQ6_K:
      return {6, true, false, true};
    default:  // kQ8_0
      return {8, true, false, false};
  }
}

// From a panel's first byte to step `step` of its rows.
constexpr int64_t step_offset(WeightFormat f, int64_t step) {
  return step * f.step_bytes() + step / 2 * f.super_bytes();
}

constexpr int64_t panel_bytes(DType type, int64_t columns) {
  if (type == DType::kF32) return columns * kPanel * 4;
  if (!is_block_quantized(type)) return (columns + 15) / 16 * (16 * kPanel * 2);
  const WeightFormat f = weight_format(type);
  const int64_t rest = columns / kBlock % kStepBlocks;
  const int64_t steps = columns / kStep;
  return step_offset(f, steps) + (rest == 0 ? 0 : rest * f.quant_bytes() + f.fixed_bytes());
}

}  // namespace lmn::cuda
