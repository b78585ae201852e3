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

// kChannels: 4, whose scales a lane keeps: those of its fragments; or 1: channel g + 8t.
template <DType kType, int kChannels>
struct StepWeights {
  static constexpr WeightFormat kFormat = weight_format(kType);
  static constexpr int kQuants = kStepBlocks * kFormat.quant_bytes() / 512;
  static constexpr int kHighs = kFormat.high_bytes() / 512;
  static constexpr int kWords = kFormat.scale_words();
  static constexpr bool kHasMin = kFormat.has_min || (kFormat.is_super && !kFormat.is_signed);
  static constexpr int kScales = kFormat.bits == 6 ? 2 : 1;  // of a block

  simt::U32x4 quants[kQuants];
  simt::U32x4 high[kHighs > 0 ? kHighs : 1];
  uint32_t scales[kChannels][kWords];

  // Of which channel c of the lane is.
  LMN_DEVICE static int channel(int c) {
    const int lane = simt::lane();
    return lane / 4 + 8 * (kChannels == 1 ? lane % 4 : c);
  }

  // Of a step in global memory, which nobody reads again. `blocks` are stored; those missing of the
  // four read as the last (activations have zeros there).
  LMN_DEVICE void load(const std::byte* step, int blocks) {
    constexpr int kPerBlock = kQuants / kStepBlocks;
    const int lane = simt::lane();
    LMN_UNROLL
    for (int i = 0; i < kQuants; ++i) {
      const int block = i / kPerBlock < blocks ? i / kPerBlock : blocks - 1;
      quants[i] = simt::load_once(reinterpret_cast<const simt::U32x4*>(
          step + block * kFormat.quant_bytes() + i % kPerBlock * 512 + lane * 16));
    }
    const std::byte* fixed = step + blocks * kFormat.quant_bytes();
    LMN_UNROLL
    for (int i = 0; i < kHighs; ++i) {
      high[i] = simt::load_once(reinterpret_cast<const simt::U32x4*>(fixed + i * 512 + lane * 16));
    }
    load_scales<true>(fixed + kFormat.high_bytes());
  }

  // What block b needs that those before it did not, of a step in shared memory.
  LMN_DEVICE void load_block(const std::byte* step, const std::byte* all_scales, int b) {
    constexpr int kPerBlock = kQuants / kStepBlocks;
    const auto* from = reinterpret_cast<const simt::U32x4*>(step) + simt::lane();
    LMN_UNROLL
    for (int i = b * kPerBlock; i < (b + 1) * kPerBlock; ++i) quants[i] = from[i * 32];
    if (kFormat.bits == 5 && b == 0) high[0] = from[kQuants * 32];
    if (kFormat.bits == 6 && b % 2 == 0) high[b / 2] = from[(kQuants + b / 2) * 32];
    constexpr int kBlocksOfWord = kFormat.has_min                        ? 1
                                  : kFormat.bits < 6 && kFormat.is_super ? 4
                                                                         : 2;
    if (b % kBlocksOfWord != 0) return;
    const auto* words = reinterpret_cast<const uint32_t*>(all_scales) + b / kBlocksOfWord;
    LMN_UNROLL
    for (int c = 0; c < kChannels; ++c) scales[c][b / kBlocksOfWord] = words[channel(c) * kWords];
  }
  // kOnce: from global memory, which nobody reads again.
  template <bool kOnce>
  LMN_DEVICE void load_scales(const std::byte* from) {
    LMN_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      const std::byte* at = from + channel(c) * (kWords * 4);
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

  // t + x_scale * dot * what an integer of channel c counts in block b (q6_k: in its half h), but
  // for unpacked_factor() and what a super-block has in common.
  LMN_DEVICE float weighted(int c, int b, int h, int dot, float x_scale, float t) const {
    if constexpr (kFormat.bits == 6) {
      const auto s = static_cast<int8_t>(scales[c][b / 2] >> (b % 2 * 16 + h * 8));
      return simt::fma(static_cast<float>(s) * x_scale, static_cast<float>(dot), t);
    } else if constexpr (kFormat.is_super) {  // |dot| <= 31 * 32 * 32767, times 63: below 2^31
      const auto s = static_cast<int>(scales[c][0] >> 8 * b & 0xFFu);
      return simt::fma(x_scale, static_cast<float>(dot * s), t);
    } else {
      const uint32_t word = scales[c][kFormat.has_min ? b : b / 2];
      const float d = kFormat.has_min || b % 2 == 0 ? low_half(word) : high_half(word);
      return simt::fma(d * x_scale, static_cast<float>(dot), t);
    }
  }
  // The minimum of the block, but for what a super-block has in common.
  LMN_DEVICE float minimum(int c, int b) const {
    if constexpr (kFormat.is_super) {
      return static_cast<float>(scales[c][1] >> 8 * b & 0xFFu);
    } else {
      return high_half(scales[c][b]);
    }
  }
  // Of a split with the sums t of products and m of minimums. `super` is the channel's word.
  LMN_DEVICE static float finish(uint32_t super, float t, float m) {
    constexpr float kUnit = 1.0f / static_cast<float>(kFormat.unpacked_factor());
    if constexpr (kFormat.bits == 6) {
      return simt::float_of_bits(super) * (t * kUnit);
    } else if constexpr (kFormat.is_super) {
      return simt::fma(-high_half(super), m, low_half(super) * t);
    } else {
      return kHasMin ? t + m : t * kUnit;
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
