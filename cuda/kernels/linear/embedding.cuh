// SPDX-License-Identifier: Apache-2.0
//
// Rows of a packed table as floats, the values of ops/dequantize.h. A block takes 256 columns of a
// row, a thread a column: what it reads is spread over the panel, but it is little.
#pragma once

#include "cuda/kernels/linear/weights.cuh"

namespace lmn::cuda {

struct EmbeddingParams {
  const std::byte* weights;  // of a segment
  int64_t panel_bytes;
  int64_t row_begin, rows;  // of the segment in the table
  const int32_t* ids;
  float* y;
  int64_t columns;
};

// Column k of channel `channel` of a panel.
template <DType kType>
LMN_DEVICE float weight_at(const std::byte* panel, int channel, int64_t k, int64_t columns) {
  if constexpr (kType == DType::kF32) {
    return reinterpret_cast<const float*>(panel)[k * kPanel + channel];
  } else if constexpr (kType == DType::kF16 || kType == DType::kBF16) {
    const auto in_chunk = static_cast<int>(k % 16);
    const int lane = channel % 8 * 4 + in_chunk % 8 / 2;
    const int word = channel / 8 % 2 + in_chunk / 8 * 2;
    const std::byte* at = panel + (k / 16 * 2 + channel / 16) * 512 + lane * 16 + word * 4;
    const uint16_t bits = reinterpret_cast<const uint16_t*>(at)[in_chunk % 2];
    return kType == DType::kF16 ? simt::half_to_float(bits) : simt::bfloat_to_float(bits);
  } else {
    constexpr WeightFormat kFormat = weight_format(kType);
    const int64_t step = k / kStep;
    const int64_t rest = columns / kBlock - step * kStepBlocks;
    const int blocks = rest < kStepBlocks ? static_cast<int>(rest) : kStepBlocks;
    const std::byte* at = panel + step_offset(kFormat, step);
    const std::byte* high = at + blocks * kFormat.quant_bytes();
    const std::byte* scales = high + kFormat.high_bytes() + channel * kFormat.scale_words() * 4;
    const std::byte* super = panel + step_offset(kFormat, step / 2 * 2) + 2 * kFormat.step_bytes() +
                             (channel % 8 * 4 + channel / 8) * 4;
    const int b = static_cast<int>(k % kStep) / kBlock, i = static_cast<int>(k % kBlock);
    const int half = i / 16, lane = channel % 8 * 4 + i % 16 / 4, c = channel / 8;
    const auto word = [](const std::byte* from) {
      return *reinterpret_cast<const uint32_t*>(from);
    };
    const int shift = i % 4 * 8;
    int q;
    if constexpr (kFormat.bits == 8) {
      q = static_cast<int8_t>(word(at + b * 1024 + half * 512 + lane * 16 + c * 4) >> shift);
    } else {
      q = static_cast<int>(word(at + b * 512 + lane * 16 + c * 4) >> (shift + half * 4) & 15);
      if constexpr (kFormat.bits == 5) {
        q |= static_cast<int>(word(high + lane * 16 + b * 4) >> (shift + 2 * c + half) & 1) << 4;
      }
      if constexpr (kFormat.bits == 6) {
        const uint32_t bits = word(high + b / 2 * 512 + lane * 16 + b % 2 * 8 + c / 2 * 4);
        q |= static_cast<int>(bits >> (shift + c % 2 * 4 + half * 2) & 3) << 4;
      }
      constexpr int kSign = 1 << (kFormat.bits - 1);
      if constexpr (kFormat.is_signed) q = (q ^ kSign) - kSign;
    }
    const auto v = static_cast<float>(q);
    if constexpr (kFormat.bits == 6) {
      const auto s = static_cast<int8_t>(word(scales + b / 2 * 4) >> (b % 2 * 16 + half * 8));
      return simt::float_of_bits(word(super)) * static_cast<float>(s) * v;
    } else if constexpr (kFormat.is_super) {
      const float d = low_half(word(super)), d_min = high_half(word(super));
      return d * static_cast<float>(word(scales) >> 8 * b & 0xFFu) * v -
             d_min * static_cast<float>(word(scales + 4) >> 8 * b & 0xFFu);
    } else if constexpr (kFormat.has_min) {
      return low_half(word(scales + b * 4)) * v + high_half(word(scales + b * 4));
    } else {
      return simt::half_to_float(reinterpret_cast<const uint16_t*>(scales)[b]) * v;
    }
  }
}

inline constexpr int kEmbeddingThreads = 256;

template <DType kType>
LMN_KERNEL(kEmbeddingThreads, 4)
void embedding(EmbeddingParams p) {
  simt::wait_for_previous();
  const int64_t row = simt::block_y();
  const int64_t k = int64_t{simt::block_x()} * kEmbeddingThreads + simt::thread_index();
  const int64_t at = p.ids[row] - p.row_begin;
  if (at < 0 || at >= p.rows || k >= p.columns) return;
  p.y[row * p.columns + k] = weight_at<kType>(p.weights + at / kPanel * p.panel_bytes,
                                              static_cast<int>(at % kPanel), k, p.columns);
}

}  // namespace lmn::cuda
