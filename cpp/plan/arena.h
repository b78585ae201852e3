// SPDX-License-Identifier: Apache-2.0
//
// Offsets for buffers whose lifetimes are known: two buffers share bytes only if they are never
// alive together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace lmn::plan {

inline constexpr int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector register

inline constexpr int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Interval {
  int64_t bytes = 0;
  int first = 0, last = 0;  // alive from the start of stage `first` to the end of stage `last`
  int64_t offset = 0;       // assigned: a multiple of kAlignment
};

// Places the largest first, each in the smallest gap that takes it (best fit). Returns the size of
// the arena.
int64_t assign_offsets(std::span<Interval> intervals);
// The same where `meet` says which two intervals (by their indices) may not share bytes.
int64_t assign_offsets(std::span<Interval> intervals,
                       const std::function<bool(size_t, size_t)>& meet);

// What assign_offsets promises: aligned, inside [0, size), and disjoint where lifetimes meet.
bool is_valid_assignment(std::span<const Interval> intervals, int64_t size);

}  // namespace lmn::plan
