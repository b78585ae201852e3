// SPDX-License-Identifier: Apache-2.0
//
// What a lane holds of a step of quantised weights (packed_layout.h), and how that becomes the
// fragments of matrix instructions and floats: the same for every kernel.
#pragma once

#include "cuda/core/simt.cuh"
#include "cuda/kernels/linear/packed_layout.h"

namespace lmn::cuda {

// A constant of `v`'s words.
LMN_DEVICE uint32_t word_of(const simt::U32x4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Left, or right where `by` is negative.
LMN_DEVICE uint32_t shifted(uint32_t v, int by) { return by >= 0 ? v << by : v >> -by; }

LMN_DEVICE float low_half(uint32_t v) { return simt::half_to_float(static_cast<uint16_t>(v)); }
LMN_DEVICE float high_half(uint32_t v) {
  return simt::half_to_float(static_cast<uint16_t>(v >> 16));
}

template <DType kType>
struct StepWeights {
  static constexpr WeightFormat kFormat = weight_format(kType);
  static constexpr int kQuants = kStepBlocks * kFormat.quant_bytes() / 512;
  static constexpr int kHighs = kFormat.high_bytes() / 512;
  static constexpr int kWords = kFormat.scale_words();
  static constexpr bool kHasMin = kFormat.has_min || (kFormat.is_super && !kFormat.is_signed);
  static constexpr int kScales = kFormat.bits == 6 ? 2 : 1;  // of a block

  simt::U32x4 quants[kQuants];
  simt::U32x4 high[kHighs > 0 ? kHighs : 1];
  uint32_t scales[4][kWords];
  uint32_t super[4];

  // kOnce: from global memory, which nobody reads again; else from shared memory. `blocks` are
  // stored; those missing of the four read as the last (activations have zeros there).
  template <bool kOnce>
  LMN_DEVICE void load(const std::byte* step, int blocks, const std::byte* super_scales) {
    constexpr int kPerBlock = kQuants / kStepBlocks;
    const int lane = simt::lane();
    LMN_UNROLL
    for (int i = 0; i < kQuants; ++i) {
      const int block = i / kPerBlock < blocks ? i / kPerBlock : blocks - 1;
      quants[i] = fetch<kOnce, simt::U32x4>(step + block * kFormat.quant_bytes() +
                                            i % kPerBlock * 512 + lane * 16);
    }
    const std::byte* fixed = step + blocks * kFormat.quant_bytes();
    LMN_UNROLL
    for (int i = 0; i < kHighs; ++i)
      high[i] = fetch<kOnce, simt::U32x4>(fixed + i * 512 + lane * 16);
    const std::byte* mine = fixed + kFormat.high_bytes() + lane / 4 * (kWords * 4);
    LMN_UNROLL
    for (int c = 0; c < 4; ++c) {
      const std::byte* at = mine + c * 8 * (kWords * 4);
      if constexpr (kWords == 4) {
        const auto v = fetch<kOnce, simt::U32x4>(at);
        scales[c][0] = v.x;
        scales[c][1] = v.y;
        scales[c][2] = v.z;
        scales[c][3] = v.w;
      } else {
        const auto v = fetch<kOnce, simt::U32x2>(at);
        scales[c][0] = v.x;
        scales[c][1] = v.y;
      }
    }
    if constexpr (kFormat.is_super) {
      const auto v = fetch<kOnce, simt::U32x4>(super_scales + lane / 4 * 16);
      super[0] = v.x;
      super[1] = v.y;
      super[2] = v.z;
      super[3] = v.w;
    }
  }

  // Of block b: a[m] is the 16 x 32 fragment of channels 16m to 16m + 15.
  LMN_DEVICE void fragments(int b, uint32_t (&a)[2][4]) const {
    LMN_UNROLL
    for (int c = 0; c < 4; ++c) {
      uint32_t first, second;  // columns 4t to 4t + 3; 16 + 4t to 19 + 4t
      if constexpr (kFormat.bits == 8) {
        first = word_of(quants[2 * b], c);
        second = word_of(quants[2 * b + 1], c);
      } else {
        // A number's lower four bits lie at kAt of its byte, the others above.
        constexpr int kAt = kFormat.is_signed ? 8 - kFormat.bits : 0;
        constexpr uint32_t kNibble = 0x0F0F0F0Fu << kAt;
        const uint32_t q = word_of(quants[b], c);
        first = q << kAt & kNibble;
        second = q >> (4 - kAt) & kNibble;
        if constexpr (kFormat.bits == 5) {
          const uint32_t bits = word_of(high[0], b);
          constexpr uint32_t kMask = 0x10101010u << kAt;
          first |= shifted(bits, 4 + kAt - 2 * c) & kMask;
          second |= shifted(bits, 3 + kAt - 2 * c) & kMask;
        }
        if constexpr (kFormat.bits == 6) {
          const uint32_t bits = word_of(high[b / 2], b % 2 * 2 + c / 2);
          first |= shifted(bits, 6 - c % 2 * 4) & 0xC0C0C0C0u;
          second |= shifted(bits, 4 - c % 2 * 4) & 0xC0C0C0C0u;
        }
      }
      a[c / 2][c % 2] = first;
      a[c / 2][2 + c % 2] = second;
    }
  }

  // What an integer of channel g + 8c in block b counts, but for unpacked_factor(); q6_k: in its
  // half h.
  LMN_DEVICE float scale(int c, int b, int h) const {
    if constexpr (kFormat.bits == 6) {
      const auto s = static_cast<int8_t>(scales[c][b / 2] >> (b % 2 * 16 + h * 8));
      return simt::float_of_bits(super[c]) * static_cast<float>(s);
    } else if constexpr (kFormat.is_super) {
      return low_half(super[c]) * static_cast<float>(scales[c][0] >> 8 * b & 0xFFu);
    } else if constexpr (kFormat.has_min) {
      return low_half(scales[c][b]);
    } else {
      return b % 2 == 0 ? low_half(scales[c][b / 2]) : high_half(scales[c][b / 2]);
    }
  }
  // What is added to each weight of the block.
  LMN_DEVICE float minimum(int c, int b) const {
    if constexpr (kFormat.is_super) {
      return -(high_half(super[c]) * static_cast<float>(scales[c][1] >> 8 * b & 0xFFu));
    } else {
      return high_half(scales[c][b]);
    }
  }

 private:
  template <bool kOnce, typename T>
  LMN_DEVICE static T fetch(const std::byte* from) {
    const T* at = reinterpret_cast<const T*>(from);
    if constexpr (kOnce) {
      return simt::load_once(at);
    } else {
      return *at;
    }
  }
};

}  // namespace lmn::cuda
