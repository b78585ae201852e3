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
  const double answers_ns = answers_ns_[size_class(answers)];
  if (mixed_ >= kLookEvery - 1 || answers_ns == 0) return 0;
  if (token_ns_ == 0) return kFirstChunk;
  const double share = std::clamp(static_cast<double>(prompts) / static_cast<double>(answers),
                                  kLeastShare, kMostShare);
  const double room =
      target_ns_ > 0 ? static_cast<double>(target_ns_) - answers_ns : share * answers_ns;
  const double tokens = room / token_ns_;
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp(tokens, double{kLeastChunk}, kMost));
}

void Pacer::record(int32_t answers, int32_t prompt_tokens, int64_t ns) {
  const auto took = static_cast<double>(std::max<int64_t>(ns, 1));
  double unused = 0;
  double& answers_ns = answers > 0 ? answers_ns_[size_class(static_cast<size_t>(answers))] : unused;
  if (prompt_tokens == 0) {
    blend(answers_ns, took);
    mixed_ = 0;
  } else {
    if (answers > 0) ++mixed_;
    // Of a step of prompts alone the whole belongs to them; beside answers, what those leave.
    blend(token_ns_, std::max(took - answers_ns, took / 16) / prompt_tokens);
  }
}

}  // namespace lmn::engine
