// SPDX-License-Identifier: Apache-2.0
#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lmn::models {
namespace {

// YaRN, equation for the dimension whose frequency makes `turns` full turns within the original
// context.
double yarn_dimension(const RopeParameters& p, double turns) {
  return static_cast<double>(p.rot_dim) *
         std::log(static_cast<double>(p.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(p.base));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeParameters& p) {
  RopeFrequencies out;
  const int64_t pairs = p.rot_dim / 2;
  double low = 0, high = 0;
  if (p.scaling == RopeScaling::kYarn) {
    low = std::max(0.0, std::floor(yarn_dimension(p, p.beta_fast)));
    high = std::min(static_cast<double>(p.rot_dim - 1), std::ceil(yarn_dimension(p, p.beta_slow)));
    out.magnitude = static_cast<float>(p.attention_factor * (1 + 0.1 * std::log(p.factor)));
  }
  for (int64_t i = 0; i < pairs; ++i) {
    double frequency =
        std::pow(p.base, -2.0 * static_cast<double>(i) / static_cast<double>(p.rot_dim));
    if (!p.divisors.empty()) frequency /= p.divisors[static_cast<size_t>(i)];
    if (p.scaling == RopeScaling::kLinear) frequency /= p.factor;
    if (p.scaling == RopeScaling::kYarn) {
      // 0: a fast frequency, kept; 1: a slow one, stretched; in between a blend.
      const double stretched =
          std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
      frequency = frequency * (1 - stretched) + frequency / p.factor * stretched;
    }
    out.inv_freq.push_back(static_cast<float>(frequency));
  }
  return out;
}

Result<RopeParameters> read_rope(ModelFile* file, int64_t head_dim, int64_t context_length) {
  RopeParameters p;
  LMN_ASSIGN_OR_RETURN(p.rot_dim, file->size_or("rope.dimension_count", head_dim));
  if (p.rot_dim > head_dim || p.rot_dim % 2 != 0) {
    return file->about(Code::kCorrupt, file->architecture() + ".rope.dimension_count is " +
                                           std::to_string(p.rot_dim) +
                                           ", expected an even number up to the head size, " +
                                           std::to_string(head_dim));
  }
  LMN_ASSIGN_OR_RETURN(p.base, file->positive_or("rope.freq_base", 10000.0f));
  if (p.base <= 1) {
    return file->about(Code::kCorrupt, file->architecture() + ".rope.freq_base is " +
                                           std::to_string(p.base) + ", expected a number above 1");
  }
  // Files from before rope.scaling.* say rope.scale_linear; a factor without a type is linear too.
  const char* factor_key =
      file->has_key("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  LMN_ASSIGN_OR_RETURN(p.factor, file->positive_or(factor_key, 1.0f));
  LMN_ASSIGN_OR_RETURN(const std::string type,
                       file->text_or("rope.scaling.type", p.factor == 1 ? "none" : "linear"));
  if (type == "linear") {
    p.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    p.scaling = RopeScaling::kYarn;
    LMN_ASSIGN_OR_RETURN(p.original_context,
                         file->size_or("rope.scaling.original_context_length", context_length));
    LMN_ASSIGN_OR_RETURN(p.attention_factor, file->positive_or("rope.scaling.attn_factor", 1.0f));
    LMN_ASSIGN_OR_RETURN(p.beta_fast, file->positive_or("rope.scaling.yarn_beta_fast", 32.0f));
    LMN_ASSIGN_OR_RETURN(p.beta_slow, file->positive_or("rope.scaling.yarn_beta_slow", 1.0f));
  } else if (type != "none") {
    return file->about(Code::kUnsupported, file->architecture() + ".rope.scaling.type is '" + type +
                                               "', supported are none, linear and yarn");
  }
  if (file->has_tensor("rope_freqs.weight")) {
    LMN_ASSIGN_OR_RETURN(p.divisors, file->numbers("rope_freqs.weight", p.rot_dim / 2));
    for (float divisor : p.divisors) {
      if (!std::isfinite(divisor) || divisor <= 0) {
        return file->about(Code::kCorrupt, "tensor 'rope_freqs.weight' holds " +
                                               std::to_string(divisor) +
                                               ", expected positive numbers");
      }
    }
  }
  return p;
}

std::string scaling_name(const RopeParameters& p) {
  if (p.scaling == RopeScaling::kYarn) return "yarn";
  if (p.scaling == RopeScaling::kLinear && p.factor != 1) return "linear";
  return p.divisors.empty() ? "none" : "llama3";
}

}  // namespace lmn::models
