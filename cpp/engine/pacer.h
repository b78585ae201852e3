// SPDX-License-Identifier: Apache-2.0
//
// Pacer: how many prompt tokens may go into a step beside running answers, so that the step stays
// below a target. It learns from finished steps what a step of answers alone takes and what a
// prompt token adds. No clock of its own; it changes how work is cut, never a result.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lmn::engine {

class Pacer {
 public:
  // target_ns 0: a step of answers alone, and as long for prompts as is their share.
  explicit Pacer(int64_t target_ns) : target_ns_(target_ns) {}

  // Prompt tokens in the next step at most, when it has so many answers in it too and so many
  // prompts want to be in it. Now and then 0: a step of answers alone, to see how long so many
  // take, or whether the machine is still as fast.
  int32_t prefill_tokens(size_t answers, size_t prompts) const;

  // A step with so many sequences that got one token, and so many prompt tokens, took so long.
  void record(int32_t answers, int32_t prompt_tokens, int64_t ns);

  // Of the time, prompts get half, or more when they are more than the answers: who waits for a
  // first token counts as much as who waits for the next one. An answer keeps an eighth of its
  // speed whatever comes, which is reading speed still.
  static constexpr double kLeastShare = 1, kMostShare = 7;  // of prompts, over that of answers
  // Before a prompt token was measured: a chunk that costs little more than its weights' way
  // through the caches.
  static constexpr int32_t kFirstChunk = 16;
  // A prompt always moves.
  static constexpr int32_t kLeastChunk = 1;
  // Of so many steps with prompts in them, one is of answers alone.
  static constexpr int32_t kLookEvery = 32;

 private:
  // By the number of answers: 1, 2, 3 and 4, 5 to 8, ... The more there are, the longer their step.
  static size_t size_class(size_t answers) {
    return std::min<size_t>(std::bit_width(answers - 1), kSizes - 1);
  }

  static constexpr size_t kSizes = 12;  // the last one: above 1,024
  const int64_t target_ns_;
  std::array<double, kSizes> answers_ns_{};  // a step of answers alone; 0: not known
  double token_ns_ = 0;                      // what a prompt token adds; 0: not known
  int32_t mixed_ = 0;                        // steps of both since the last one of answers alone
};

}  // namespace lmn::engine
