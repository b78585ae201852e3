// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding as model files describe it, brought to the one form kernels know: a
// list of inverse frequencies and a magnitude. Scalings: none; linear (positions divided by a
// factor, Chen et al. 2023, arXiv:2306.15595); YaRN (Peng et al. 2023, arXiv:2309.00071); and
// per-frequency factors of a tensor, as Llama 3 files carry them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "models/model_file.h"

namespace lmn::models {

enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeParameters {
  int64_t rot_dim = 0;  // even
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             // how many times longer the context became
  int64_t original_context = 0;  // YaRN: tokens before it did
  double attention_factor = 1;   // YaRN: on top of its own 1 + 0.1 ln(factor)
  // YaRN: full turns within the original context from which a frequency is kept
  double beta_fast = 32;
  double beta_slow = 1;         // YaRN: and up to which it is divided by the whole factor
  std::vector<float> divisors;  // [rot_dim / 2], or none: of each frequency
};

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rot_dim / 2]: radians per position
  float magnitude = 1;          // of cosines and sines
};
RopeFrequencies rope_frequencies(const RopeParameters& parameters);

// From the keys <architecture>.rope.* and the tensor rope_freqs.weight, if there is one.
Result<RopeParameters> read_rope(ModelFile* file, int64_t head_dim, int64_t context_length);

// "none", "linear", "yarn", or "llama3" where there are divisors and no other scaling.
std::string scaling_name(const RopeParameters& parameters);

}  // namespace lmn::models
