// SPDX-License-Identifier: Apache-2.0
#include "engine/pacer.h"

#include <algorithm>
#include <limits>

namespace lmn::engine {
namespace {

// A quarter of the weight for the newest step, which follows a growing context. A step in which the
// machine was away counts as no more than twice the average.
void blend(double& average, double value) {
  if (average == 0) {
    average = value;
  } else {
    average += (std::clamp(value, average / 2, average * 2) - average) / 4;
  }
}

}  // namespace

int32_t Pacer::prefill_tokens(size_t answers, size_t prompts) const {
  if (mixed_ >= kLookEvery - 1) return 0;
  if (answers_ns_ == 0 && target_ns_ == 0) return kFirstChunk;
  if (token_ns_ == 0) return kFirstChunk;
  const double share = std::clamp(static_cast<double>(prompts) / static_cast<double>(answers),
                                  kLeastShare, kMostShare);
  const double room =
      target_ns_ > 0 ? static_cast<double>(target_ns_) - answers_ns_ : share * answers_ns_;
  const double tokens = room / token_ns_;
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp(tokens, double{kLeastChunk}, kMost));
}

void Pacer::record(int32_t answers, int32_t prompt_tokens, int64_t ns) {
  const auto took = static_cast<double>(std::max<int64_t>(ns, 1));
  if (prompt_tokens == 0) {
    if (answers > 0) blend(answers_ns_, took);
    mixed_ = 0;
  } else {
    if (answers > 0) ++mixed_;
    // Of a step of prompts alone the whole belongs to them; beside answers, what those leave.
    const double beside = answers > 0 ? answers_ns_ : 0;
    blend(token_ns_, std::max(took - beside, took / 16) / prompt_tokens);
  }
}

}  // namespace lmn::engine
