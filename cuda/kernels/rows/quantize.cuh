// SPDX-License-Identifier: Apache-2.0
//
// Blocks of 32 floats to the formats of ops/quantized_rows.h: a warp takes a block, a lane an
// element.
#pragma once

#include "core/dtype.h"
#include "cuda/core/simt.cuh"
#include "ops/op_args.h"

namespace lmn::cuda {

// Where a quantised row lies (ops/quantized_rows.h). kWide: kQA16, else kQA8.
template <bool kWide>
struct QuantizedRow {
  std::byte* q;
  float* scales;
  float* sums;

  LMN_DEVICE QuantizedRow(std::byte* rows, int64_t columns, int64_t row) {
    const int64_t size = columns * (kWide ? 2 : 1);
    q = rows + row * (size + columns / 32 * 8);
    scales = reinterpret_cast<float*>(q + size);
    sums = scales + columns / 32;
  }
};

LMN_DEVICE bool is_finite(float v) { return v - v == 0; }

// The warp's block: lane i brings element i.
template <bool kWide>
LMN_DEVICE void quantize_block(float v, const QuantizedRow<kWide>& row, int64_t block) {
  constexpr float kLimit = kWide ? 32767.0f : 127.0f;
  const bool finite = simt::ballot(!is_finite(v)) == 0;
  const float largest = finite ? simt::warp_max(v < 0 ? -v : v) : 0;
  const bool zero = largest < ops::kQuantizeTiny;
  const float q = zero ? 0 : simt::round_even(v * (kLimit / largest));
  const int value = static_cast<int>(q);
  int sum = value;
  for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) sum += simt::shuffle_xor(sum, mask);
  const int64_t at = block * 32 + simt::lane();
  if constexpr (kWide) {
    reinterpret_cast<int16_t*>(row.q)[at] = static_cast<int16_t>(value);
  } else {
    reinterpret_cast<int8_t*>(row.q)[at] = static_cast<int8_t>(value);
  }
  if (simt::lane() == 0) {
    const float scale = !finite ? simt::float_of_bits(0x7FC00000) : zero ? 0 : largest / kLimit;
    row.scales[block] = scale;
    row.sums[block] = scale * static_cast<float>(sum);
  }
}

}  // namespace lmn::cuda
