// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>

namespace lmn::engine {

void schedule(std::span<const SequenceView> sequences, const StepBudget& budget,
              std::vector<Slice>& step) {
  step.clear();
  StepBudget left = budget;
  const auto take = [&](size_t index, int32_t tokens) {
    const SequenceView& s = sequences[index];
    const bool last = s.computed + tokens == s.known;
    const int32_t outputs = s.score ? tokens : last ? 1 : 0;
    step.push_back({static_cast<int32_t>(index), s.computed, tokens, outputs});
    left.tokens -= tokens;
    left.sequences -= 1;
    left.outputs -= outputs;
  };

  for (size_t i = 0; i < sequences.size(); ++i) {
    if (left.tokens == 0 || left.sequences == 0 || left.outputs == 0) break;
    if (sequences[i].known - sequences[i].computed == 1) take(i, 1);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceView& s = sequences[i];
    const int32_t needed = s.known - s.computed;
    if (needed == 1) continue;
    if (left.sequences == 0) return;
    int32_t tokens = std::min({needed, s.chunk, left.tokens, left.prefill_tokens});
    if (s.score) tokens = std::min(tokens, left.outputs);
    if (!s.score && tokens == needed && left.outputs == 0)
      --tokens;  // its last token waits for a step with room
    if (tokens == 0) continue;
    take(i, tokens);
    left.prefill_tokens -= tokens;
  }
}

}  // namespace lmn::engine
