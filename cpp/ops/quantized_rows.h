// SPDX-License-Identifier: Apache-2.0
//
// The activation formats of the integer kernels. A row of `columns` floats (a multiple of 32) becomes, per block of 32,
// one float scale and small integers, stored as planes so that a kernel streams each on its own:
//
//   kQA8    q [columns] int8                          x ~ scale * q             scale = max|x| / 127
//   kQA16   hi [columns] int8, lo [columns] int8      x ~ scale * (256 hi + lo) scale = max|x| / 32512 (127 * 256)
//   both    scales [columns / 32] float32, then sums [columns / 32] float32: scale * sum of the integers of the block,
//           which a weight with a minimum (q4_1 and the like) multiplies once per block.
//
// lo is in [-128, 127], hi in [-127, 127]. Rounding is to nearest, ties to even. An all-zero block has scale 0.
// Dot products of these integers with integer weights are exact in int32, so every instruction set gets the same ones.
//
// Why two formats: on SmolLM2-135M (Q4_1), int8 activations everywhere move the logits by up to 0.13 RMS, most of it by
// way of q, k, v and the output head; 16-bit ones by 0.001. Twice the integer work is free where memory is the limit.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace lmn::ops {

template <typename Byte>  // std::byte or const std::byte
struct QuantizedRow {
  Byte* hi;      // the only plane of kQA8
  Byte* lo;      // null for kQA8
  Byte* scales;  // float [columns / 32]
  Byte* sums;    // float [columns / 32]
};

template <typename Byte>
inline QuantizedRow<Byte> quantized_row(Byte* rows, DType type, int64_t columns, int64_t row) {
  const int64_t planes = type == DType::kQA16 ? 2 : 1;
  Byte* base = rows + row * row_bytes(type, columns);
  Byte* scales = base + planes * columns;
  return {base, planes == 2 ? base + columns : nullptr, scales,
          scales + columns / 32 * static_cast<int64_t>(sizeof(float))};
}

}  // namespace lmn::ops
