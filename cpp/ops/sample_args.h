// SPDX-License-Identifier: Apache-2.0
//
// SampleArgs: rows of logits to tokens, on a device (KernelTable::sample). Plain data. No operator
// of a graph: what it does is engine::Sampler's steps 4 to 9 (engine/sampler.h), to the same token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sampling.h"

namespace lmn::ops {

// More tokens than this a device does not sample: sums of weights are exact up to here.
inline constexpr int64_t kMaxSampledVocab = int64_t{1} << 18;

struct SampleArgs {
  int64_t rows;              // of samples and choices
  const float* logits;       // [any, stride]
  int64_t stride;            // at least vocab
  int64_t vocab;             // 1 to kMaxSampledVocab
  const SampleRow* samples;  // [rows]; of those with row -1 nothing is written
  SampleChoice* choices;     // [rows]
  // KernelTable::sample_bytes, aligned to 256 bytes; what it holds before and after is unspecified.
  std::byte* workspace;
  bool greedy;  // no sample has a scale: one pass over the logits, and nothing else is launched
};

}  // namespace lmn::ops
