// SPDX-License-Identifier: Apache-2.0
//
// The k likeliest tokens of a row, and the likeliest that hold a mass, without sorting it: tokens
// go into bins by their keys, and the bin in which the amount is reached is looked at again, until
// few enough are left that each finds its own place among them. Amounts are whole numbers, so the
// answer is one and the same on any road to it. Tokens without weight are left out: nothing below
// depends on them.
#pragma once

#include <limits>

#include "cuda/kernels/sampling/row.cuh"

namespace lmn::cuda {

inline constexpr int kPickThreads = 512;
inline constexpr int kBins = kPickThreads;  // a bin for a thread
inline constexpr int kCandidates = 256;     // so few are compared with each other

// Levels: steps of a quarter octave of weight below the largest, in which the first look at a row
// divides its tokens. Those that weigh anything are in levels 0 to 499.
inline constexpr int kLevels = kBins;
LMN_DEVICE int level_of(float exponent) { return static_cast<int>(exponent * -4.0f); }
// Keys of a level's tokens are from lowest_key to highest_key; others' may be, too.
LMN_DEVICE int32_t lowest_key(const LogitsRow& row, int level) {
  return key_of(row.max - static_cast<float>(level + 2) * 0.25f / row.scale) - 1;
}
LMN_DEVICE int32_t highest_key(const LogitsRow& row, int level) {
  const int32_t top = key_of(row.max);
  if (level < 2) return top;
  const int32_t key = key_of(row.max - static_cast<float>(level - 1) * 0.25f / row.scale) + 1;
  return key < top ? key : top;
}

// Sums of amounts, up to 2^34 each, of up to 2^18 tokens: in three parts, as shared memory adds 32
// bits at a time.
struct Bins {
  uint32_t parts[3][kBins];

  LMN_DEVICE void clear() {
    for (int i = simt::thread_index(); i < kBins; i += simt::block_size())
      parts[0][i] = parts[1][i] = parts[2][i] = 0;
  }
  LMN_DEVICE void add(int bin, uint64_t amount) {
    for (int i = 0; i < 3; ++i) {
      const auto part = static_cast<uint32_t>(amount >> 12 * i) & (i < 2 ? 0xFFFu : ~0u);
      if (part != 0) simt::atomic_add(&parts[i][bin], part);
    }
  }
  LMN_DEVICE uint64_t sum(int bin) const {
    return parts[0][bin] + (uint64_t{parts[1][bin]} << 12) + (uint64_t{parts[2][bin]} << 24);
  }
};

struct PickSpace {
  Bins bins;
  uint64_t warp_sums[kPickThreads / simt::kWarp];
  uint64_t amounts[kCandidates];
  int32_t keys[kCandidates], ids[kCandidates];
  int32_t candidates;
  // What one thread tells the others.
  int32_t found, found_id;
  uint64_t before;
  float weights[kRowBlock];
};

// Sum of what the threads before this one bring; *total: of all. Called by all of the block.
LMN_DEVICE uint64_t sum_before(PickSpace& s, uint64_t mine, uint64_t* total) {
  uint64_t sum = mine;
  for (int step = 1; step < simt::kWarp; step *= 2) {
    const int from = simt::lane() - step;
    const uint32_t low = simt::shuffle(static_cast<uint32_t>(sum), from < 0 ? 0 : from);
    const uint32_t high = simt::shuffle(static_cast<uint32_t>(sum >> 32), from < 0 ? 0 : from);
    if (from >= 0) sum += uint64_t{high} << 32 | low;
  }
  simt::sync_block();  // whoever read warp_sums before has done so
  if (simt::lane() == simt::kWarp - 1) s.warp_sums[simt::warp()] = sum;
  simt::sync_block();
  uint64_t before = 0, all = 0;
  for (int w = 0; w < kPickThreads / simt::kWarp; ++w) {
    if (w == simt::warp()) before = all;
    all += s.warp_sums[w];
  }
  *total = all;
  return before + (sum - mine);
}

// The thread whose amount takes the sum of all before it to `need`; *before: that sum. -1: none
// does. Called by all of the block.
LMN_DEVICE int find_reached(PickSpace& s, uint64_t mine, uint64_t inside, uint64_t need,
                            uint64_t* before) {
  uint64_t total;
  const uint64_t sum = inside + sum_before(s, mine, &total);
  if (inside + total < need) return -1;
  if (sum < need && sum + mine >= need) {
    s.found = simt::thread_index();
    s.before = sum;
  }
  simt::sync_block();
  *before = s.before;
  return s.found;
}

// Where the amount is looked for: tokens with keys from `low` to `high`, of one level (-1: any),
// that `within` keeps. Those above weigh `inside`, less than what is needed.
struct Place {
  int32_t low, high;
  int level;
  KeyCut within;
  uint64_t inside;

  LMN_DEVICE bool has(const LogitsRow& row, float logit, int32_t key, int32_t id) const {
    if (key < low || key > high || !within.keeps(key, id)) return false;
    const float y = row.exponent(logit);
    return y > kLowestExponent && (level < 0 || level_of(y) == level);
  }
};

// How far bins of a range of so many values (but one) have to be wider than 1.
LMN_DEVICE int bin_shift(uint32_t span) {
  int shift = 0;
  while (span >> shift >= static_cast<uint32_t>(kBins)) ++shift;
  return shift;
}

// Of more equals than are compared with each other, the `count`-th by ascending id; or -1.
LMN_DEVICE int32_t find_equal(const LogitsRow& row, const Place& place, uint64_t count,
                              PickSpace& s) {
  uint32_t first = 0, span = static_cast<uint32_t>(row.vocab) - 1;
  uint64_t before = 0;
  for (;;) {
    const int shift = bin_shift(span);
    simt::sync_block();
    s.bins.clear();
    simt::sync_block();
    walk_tokens(row, place.low, [&](float logit, int32_t key, int32_t id) {
      const uint32_t at = static_cast<uint32_t>(id) - first;
      if (at <= span && place.has(row, logit, key, id))
        s.bins.add(static_cast<int>(at >> shift), 1);
    });
    simt::sync_block();
    const int bin = find_reached(s, s.bins.sum(simt::thread_index()), before, count, &before);
    if (bin < 0) return -1;
    first += static_cast<uint32_t>(bin) << shift;
    if (shift == 0) return static_cast<int32_t>(first);
    span = (uint32_t{1} << shift) - 1;
  }
}

// Keeps the fewest likeliest tokens whose amounts, with what is inside already, sum to `need`;
// place.within where all do not. amount(logit) is 2^34 at most.
template <typename Amount>
LMN_DEVICE KeyCut select(const LogitsRow& row, Place place, uint64_t need, Amount amount,
                         PickSpace& s) {
  for (;;) {
    if (simt::thread_index() == 0) {
      s.candidates = 0;
      s.found_id = -1;
    }
    simt::sync_block();
    walk_tokens(row, place.low, [&](float logit, int32_t key, int32_t id) {
      if (!place.has(row, logit, key, id)) return;
      const int at = simt::atomic_add(&s.candidates, 1);
      if (at >= kCandidates) return;
      s.keys[at] = key;
      s.ids[at] = id;
      s.amounts[at] = amount(logit);
    });
    simt::sync_block();
    if (s.candidates <= kCandidates) break;
    if (place.low == place.high) {
      const uint64_t each = amount(logit_of(place.low));
      if (each == 0) return place.within;
      const int32_t last = find_equal(row, place, (need - place.inside + each - 1) / each, s);
      return last < 0 ? place.within : KeyCut{place.low, last};
    }
    const uint32_t span = static_cast<uint32_t>(place.high) - static_cast<uint32_t>(place.low);
    const int shift = bin_shift(span);
    s.bins.clear();
    simt::sync_block();
    walk_tokens(row, place.low, [&](float logit, int32_t key, int32_t id) {
      if (!place.has(row, logit, key, id)) return;
      const uint32_t below = static_cast<uint32_t>(place.high) - static_cast<uint32_t>(key);
      s.bins.add(static_cast<int>(below >> shift), amount(logit));
    });
    simt::sync_block();
    const int bin =
        find_reached(s, s.bins.sum(simt::thread_index()), place.inside, need, &place.inside);
    if (bin < 0) return place.within;
    const uint32_t begin = static_cast<uint32_t>(bin) << shift;
    const uint32_t left = span - begin, width = (uint32_t{1} << shift) - 1;
    place.high = static_cast<int32_t>(static_cast<uint32_t>(place.high) - begin);
    place.low =
        static_cast<int32_t>(static_cast<uint32_t>(place.high) - (left < width ? left : width));
  }
  const int count = s.candidates;
  if (const int i = simt::thread_index(); i < count) {
    const int32_t key = s.keys[i], id = s.ids[i];
    uint64_t sum = place.inside;
    for (int k = 0; k < count; ++k) {
      if (s.keys[k] > key || (s.keys[k] == key && s.ids[k] < id)) sum += s.amounts[k];
    }
    if (sum < need && sum + s.amounts[i] >= need) {
      s.found = key;
      s.found_id = id;
    }
  }
  simt::sync_block();
  const KeyCut cut = s.found_id < 0 ? place.within : KeyCut{s.found, s.found_id};
  simt::sync_block();
  return cut;
}

}  // namespace lmn::cuda
