// SPDX-License-Identifier: Apache-2.0
//
// The merge loop of byte pair encoding: while some neighbouring pair has a merge, apply the best
// one (smallest priority; of equals the leftmost). Short sequences scan an array; long ones use a
// linked list and a heap, so that a sequence of n symbols costs O(n log n). Knows neither bytes nor
// scores: `Pairs` does.
//
//   struct Pairs {
//     using Symbol = ...;
//     PairMerge find(const Symbol& left, const Symbol& right) const;
//     Symbol join(const Symbol& left, const Symbol& right, int32_t id) const;
//   };
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace lmn::text {

inline constexpr uint32_t kNoMerge = UINT32_MAX;

struct PairMerge {
  uint32_t priority = kNoMerge;  // smaller is better
  int32_t id = -1;               // the token the pair becomes
};

// Longest sequence for which the quadratic scan beats the heap. Measured with SmolLM2's merges on
// English and on random letters: they meet near 48 symbols.
inline constexpr size_t kShortSequence = 48;

template <typename Pairs>
size_t merge_short(const Pairs& pairs, typename Pairs::Symbol* symbols, size_t count) {
  PairMerge next[kShortSequence];  // next[i]: merge of symbols i and i + 1
  for (size_t i = 0; i + 1 < count; ++i) next[i] = pairs.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    uint32_t priority = next[0].priority;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (next[i].priority < priority) {
        priority = next[i].priority;
        best = i;
      }
    }
    if (priority == kNoMerge) break;
    symbols[best] = pairs.join(symbols[best], symbols[best + 1], next[best].id);
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      next[i - 1] = next[i];
    }
    if (best + 1 < count) next[best] = pairs.find(symbols[best], symbols[best + 1]);
    if (best > 0) next[best - 1] = pairs.find(symbols[best - 1], symbols[best]);
  }
  return count;
}

template <typename Pairs>
size_t merge_long(const Pairs& pairs, typename Pairs::Symbol* symbols, size_t count) {
  struct Link {
    uint32_t previous, next;  // positions of the neighbours that are still there
    PairMerge merge;          // with the next one
  };
  // The heap may hold entries that later merges made stale: one counts only while its priority is
  // that of the merge now at its position.
  std::vector<Link> links(count);
  std::vector<uint64_t> heap;  // priority << 32 | position: the order in which merges apply
  heap.reserve(count + count / 2);
  const auto end = static_cast<uint32_t>(count);
  const auto entry = [](uint32_t priority, uint32_t at) {
    return static_cast<uint64_t>(priority) << 32 | at;
  };
  for (uint32_t i = 0; i < end; ++i) {
    links[i] = {i - 1, i + 1, i + 1 < end ? pairs.find(symbols[i], symbols[i + 1]) : PairMerge{}};
    if (links[i].merge.priority != kNoMerge) heap.push_back(entry(links[i].merge.priority, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto set = [&](uint32_t at, PairMerge merge) {
    links[at].merge = merge;
    if (merge.priority == kNoMerge) return;
    heap.push_back(entry(merge.priority, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t best = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(best);
    Link& link = links[at];
    if (link.merge.priority != static_cast<uint32_t>(best >> 32)) continue;
    const uint32_t right = link.next;
    symbols[at] = pairs.join(symbols[at], symbols[right], link.merge.id);
    links[right].merge = {};  // gone: no entry at its position counts any more
    link.next = links[right].next;
    if (link.next < end) {
      links[link.next].previous = at;
      set(at, pairs.find(symbols[at], symbols[link.next]));
    } else {
      link.merge = {};
    }
    if (at > 0) set(link.previous, pairs.find(symbols[link.previous], symbols[at]));
  }
  size_t kept = 0;
  for (uint32_t i = 0; i < end; i = links[i].next) symbols[kept++] = symbols[i];
  return kept;
}

// Merges symbols[0, count) in place; returns how many are left. count < 2^32.
template <typename Pairs>
size_t merge_all(const Pairs& pairs, typename Pairs::Symbol* symbols, size_t count) {
  return count <= kShortSequence ? merge_short(pairs, symbols, count)
                                 : merge_long(pairs, symbols, count);
}

}  // namespace lmn::text
