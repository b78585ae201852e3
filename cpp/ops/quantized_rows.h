// SPDX-License-Identifier: Apache-2.0
//
// The activation formats of the integer kernels. A row of `columns` floats (a multiple of 32)
// becomes, per block of 32, one float scale and small integers, stored as planes so that a kernel
// streams each on its own:
//
//   kQA8    q [columns] int8     x ~ scale * q   scale = max|x| / 127      q in [-127, 127]
//   kQA16   q [columns] int16    x ~ scale * q   scale = max|x| / 32767    q in [-32767, 32767]
//   both    scales [columns / 32] float32, then sums [columns / 32] float32: scale * sum of the
//   integers of the block,
//           which a weight with a minimum (q4_1 and the like) multiplies once per block.
//
// Rounding is to nearest, ties to even, of x * (127 / max|x|). A block whose largest magnitude is
// under kQuantizeTiny counts as zero (scale 0). A block with an infinity or a NaN has a scale that
// is not finite and integers 0, so that every product with it is a NaN and nothing is silently
// repaired. Dot products of these integers with integer weights are exact in int32, so every
// instruction set gets the same ones.
//
// Why two formats: on SmolLM2-135M (Q4_1), int8 activations everywhere move the logits by up to
// 0.13 RMS, most of it by way of q, k, v and the output head; 16-bit ones by 0.002. Twice the
// integer work is free where memory is the limit. Why int16 and not two int8 planes: a multiply of
// 16-bit pairs (vpmaddwd, vpdpwssd, smlal) does as many products per cycle as two byte products,
// needs no second accumulator, and takes 8-bit signed weights at twice the speed of bytes.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/op_args.h"

namespace lmn::ops {

template <typename Byte>  // std::byte or const std::byte
struct QuantizedRow {
  Byte* q;       // int8 or int16 [columns]
  Byte* scales;  // float [columns / 32]
  Byte* sums;    // float [columns / 32]
};

template <typename Byte>
inline QuantizedRow<Byte> quantized_row(Byte* rows, DType type, int64_t columns, int64_t row) {
  Byte* base = rows + row * row_bytes(type, columns);
  Byte* scales = base + (type == DType::kQA16 ? 2 : 1) * columns;
  return {base, scales, scales + columns / 32 * static_cast<int64_t>(sizeof(float))};
}

}  // namespace lmn::ops
