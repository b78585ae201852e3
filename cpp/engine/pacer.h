// SPDX-License-Identifier: Apache-2.0
//
// Pacer: how many prompt tokens may go into a step beside running answers, so that the step stays
// below a target. It learns from finished steps what a step of answers alone takes and what a
// prompt token adds. No clock of its own; it changes how work is cut, never a result.
#pragma once

#include <cstdint>

namespace lmn::engine {

class Pacer {
 public:
  // target_ns 0: kSlowdown times a step of answers alone.
  explicit Pacer(int64_t target_ns) : target_ns_(target_ns) {}

  // Prompt tokens in the next step at most, when it has answers in it too.
  int32_t prefill_tokens() const;

  // A step with so many sequences that got one token, and so many prompt tokens, took so long.
  void record(int32_t answers, int32_t prompt_tokens, int64_t ns);

  // An answer beside a long prompt keeps half of its speed; the prompt gets the other half.
  static constexpr double kSlowdown = 2;
  // Before anything was measured: a chunk that costs little more than its weights' way through the
  // caches.
  static constexpr int32_t kFirstChunk = 16;
  // A prompt always moves: below this a step's fixed cost would be most of it.
  static constexpr int32_t kLeastChunk = 4;

 private:
  const int64_t target_ns_;
  double answers_ns_ = 0;  // a step of answers alone; 0: not known
  double token_ns_ = 0;    // what a prompt token adds; 0: not known
};

}  // namespace lmn::engine
