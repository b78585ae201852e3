// SPDX-License-Identifier: Apache-2.0
//
// Paced answers: when the next token of one is due. Pure; times in ns.
//
// Token k is due k intervals after the first one: a token that comes late moves none of those
// behind it. Who falls behind by more than one interval, because the engine has too much to do,
// catches up with one token and goes on from there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lmn::engine {

// Sequences that are due within one millisecond share a step and a wake-up: ten thousand of them at
// reading speed cost a thousand steps a second at most.
inline constexpr int64_t kPaceGridNs = 1 << 20;
// A token is late by less than this part of its interval.
inline constexpr int64_t kPaceGrids = 16;

// After a token that was due at `due_ns` (0: the first one) and came at `now`.
inline int64_t next_due(int64_t due_ns, int64_t now, int64_t interval_ns) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max() - kPaceGridNs;
  const int64_t from = due_ns == 0 ? now : due_ns;
  return interval_ns > kNever - from ? kNever : std::max(from + interval_ns, now);
}

// When a sequence that is due then is looked at.
inline int64_t wake_time(int64_t due_ns, int64_t interval_ns) {
  if (interval_ns < kPaceGrids * kPaceGridNs) return due_ns;
  return (due_ns + kPaceGridNs - 1) / kPaceGridNs * kPaceGridNs;
}

}  // namespace lmn::engine
