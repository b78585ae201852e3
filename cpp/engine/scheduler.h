// SPDX-License-Identifier: Apache-2.0
//
// The scheduler: a pure function from sequences that may go on and a budget to the next step. No
// clock, no memory, no device.
//
// Sequences that need one more token go first, so that a long prompt never holds back running
// answers; what is left of the budget goes to prompts, in the order in which they started, in
// chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lmn::engine {

struct SequenceView {
  int32_t known = 0;     // tokens that exist: prompt and generated
  int32_t computed = 0;  // of those, in the KV cache; less than known while the sequence runs
  int32_t chunk = 0;     // tokens in one step at most
  bool score = false;    // wants the logits of every token, not of the last one only
};

struct StepBudget {
  int32_t tokens = 0;
  int32_t prefill_tokens = 0;  // of `tokens`, for sequences that need more than one
  int32_t sequences = 0;
  int32_t outputs = 0;
};

// Tokens [begin, begin + tokens) of the sequence with that index. outputs: 0 (more of the prompt is
// to come), 1 (the last token's logits), or `tokens` (a score).
struct Slice {
  int32_t sequence = 0;
  int32_t begin = 0;
  int32_t tokens = 0;
  int32_t outputs = 0;
};

// Replaces `step`. Allocates nothing when its capacity is budget.sequences. Never empty when
// there are sequences and every budget is at least 1.
void schedule(std::span<const SequenceView> sequences, const StepBudget& budget,
              std::vector<Slice>& step);

}  // namespace lmn::engine
