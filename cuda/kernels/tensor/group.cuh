// SPDX-License-Identifier: Apache-2.0
//
// Threads that make one output together, of many terms: each takes the terms first, first + step
// and so on, in that order, and combine() joins what they have, in one order that the form decides.
// The form follows from the shape of one row, never from the number of outputs.
#pragma once

#include "cuda/kernels/tensor/values.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kGroupThreads = 256, kGroupWarps = kGroupThreads / simt::kWarp;
inline constexpr uint32_t kGroupShared = kGroupThreads * sizeof(int64_t);

enum class Form : uint8_t {
  kWarp,    // terms are neighbours, and few: a warp takes an output
  kBlock,   // terms are neighbours, and many: a block does
  kColumns  // outputs are neighbours: a block takes 32 of them, a warp every eighth term
};

// Rows up to this length are a warp's: 32 elements a lane.
inline constexpr int64_t kWarpTerms = 1024;
inline Form row_form(int64_t terms) { return terms <= kWarpTerms ? Form::kWarp : Form::kBlock; }

inline int64_t group_blocks(Form form, int64_t outputs) {
  return form == Form::kWarp      ? simt::div_up(outputs, kGroupWarps)
         : form == Form::kColumns ? simt::div_up(outputs, simt::kWarp)
                                  : outputs;
}

enum class Merge : uint8_t { kSum, kProduct, kMax, kMin };

template <typename C>
LMN_DEVICE C merge(Merge how, C a, C b) {
  switch (how) {
    case Merge::kProduct:
      return a * b;
    case Merge::kMax:  // a NaN wins
      return b > a || b != b ? b : a;
    case Merge::kMin:
      return b < a || b != b ? b : a;
    default:
      return a + b;
  }
}

struct Group {
  Form form;
  uint32_t output, first, step;

  LMN_DEVICE explicit Group(Form how) : form(how) {
    const auto block = static_cast<uint32_t>(simt::block_x());
    const auto lane = static_cast<uint32_t>(simt::lane());
    const auto warp = static_cast<uint32_t>(simt::warp());
    if (form == Form::kWarp) {
      output = block * kGroupWarps + warp;
      first = lane;
      step = simt::kWarp;
    } else if (form == Form::kBlock) {
      output = block;
      first = static_cast<uint32_t>(simt::thread_index());
      step = kGroupThreads;
    } else {
      output = block * simt::kWarp + lane;
      first = warp;
      step = kGroupWarps;
    }
  }

  // For all threads of the block, those without an output among them; every thread of an output
  // gets the result.
  template <typename C>
  LMN_DEVICE C combine(Merge how, C v) const {
    if (form != Form::kColumns) {
      for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) {
        const C other = shuffle_xor_any(v, mask);
        // The lower lane's comes first, so that all lanes have the same bits.
        v = (simt::lane() & mask) == 0 ? merge(how, v, other) : merge(how, other, v);
      }
    }
    if (form == Form::kWarp) return v;
    C* partial = reinterpret_cast<C*>(simt::shared_memory());
    const bool columns = form == Form::kColumns;
    const int stride = columns ? simt::kWarp : 1, at = columns ? simt::lane() : 0;
    if (columns || simt::lane() == 0) partial[simt::warp() * stride + at] = v;
    simt::sync_block();
    v = partial[at];
    for (int w = 1; w < kGroupWarps; ++w) v = merge(how, v, partial[w * stride + at]);
    simt::sync_block();
    return v;
  }
};

}  // namespace lmn::cuda::tensor
