// SPDX-License-Identifier: Apache-2.0
//
// Rows of logits to tokens (ops/sample_args.h), in three kernels:
//   sample_scan   the whole device reads each row once: maxima, the largest logit, what is not
//                 finite
//   sample_weigh  again the whole device, rows without top_k: sums of weights by block, and masses
//                 by level where top_p asks for them
//   sample_pick   a block takes a row: what scan found; or the cuts, and the draw. It looks at few
//                 of the row's blocks, as most hold nothing that a cut keeps.
// Sums are of whole numbers (row.cuh): no split of a row changes a bit of them.
#pragma once

#include "cuda/kernels/sampling/select.cuh"
#include "ops/sample_args.h"

namespace lmn::cuda {

inline constexpr int kSplitThreads = 256;
inline constexpr int kSplitWarps = kSplitThreads / simt::kWarp;
inline constexpr int kSplitBlocks = 32;  // of a row, to a thread block: 8 KB

struct ScanPart {
  float max;
  int32_t at;   // where it first is
  int32_t bad;  // the first that is not finite
};

struct SampleParams {
  ops::SampleArgs a;
  int32_t vocab, blocks, splits;
  // Workspace.
  float* block_max;  // [rows, blocks]
  uint64_t* sums;    // [rows, blocks]
  uint64_t* levels;  // [rows, kLevels]
  ScanPart* parts;   // [rows, splits]

  LMN_DEVICE LogitsRow row(int64_t r, const SampleRow& how, float max) const {
    return {a.logits + how.row * a.stride, block_max + r * blocks, vocab, blocks, max, how.scale};
  }
};

inline constexpr int32_t kNowhere = std::numeric_limits<int32_t>::max();

LMN_DEVICE ScanPart first_of(const ScanPart& a, const ScanPart& b) {
  const bool second = b.max > a.max || (b.max == a.max && b.at < a.at);
  return {second ? b.max : a.max, second ? b.at : a.at, a.bad < b.bad ? a.bad : b.bad};
}

// Of all lanes, in all lanes.
LMN_DEVICE ScanPart join_lanes(ScanPart part) {
  for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) {
    part = first_of(part, {simt::shuffle_xor(part.max, mask), simt::shuffle_xor(part.at, mask),
                           simt::shuffle_xor(part.bad, mask)});
  }
  return part;
}

// Of the whole row, in every thread.
LMN_DEVICE ScanPart whole_scan(const SampleParams& p, int64_t r) {
  ScanPart part{-simt::kInfinity, kNowhere, kNowhere};
  for (int32_t i = simt::lane(); i < p.splits; i += simt::kWarp)
    part = first_of(part, p.parts[r * p.splits + i]);
  return join_lanes(part);
}

LMN_DEVICE bool has_top_k(const SampleRow& how, int32_t vocab) {
  return how.top_k > 0 && how.top_k < vocab;
}

LMN_DEVICE LeastWeight least_weight(const SampleRow& how, float max) {
  return {how.min_p, max + how.min_depth};
}

LMN_KERNEL(kSplitThreads, 4) void sample_scan(SampleParams p) {
  simt::wait_for_previous();
  auto* parts = reinterpret_cast<ScanPart*>(simt::shared_memory());
  const int64_t r = simt::block_y();
  const SampleRow how = p.a.samples[r];
  if (how.row < 0) return;
  const float* logits = p.a.logits + how.row * p.a.stride;
  constexpr int kOfWarp = kSplitBlocks / kSplitWarps;
  const int32_t first = simt::block_x() * kSplitBlocks + simt::warp() * kOfWarp;
  float v[kOfWarp][2];
  for (int i = 0; i < kOfWarp; ++i) load_block(logits, p.vocab, first + i, v[i]);
  ScanPart part{-simt::kInfinity, kNowhere, kNowhere};
  for (int i = 0; i < kOfWarp; ++i) {
    for (int h = 0; h < 2; ++h) {
      const int32_t id = (first + i) * kRowBlock + h * simt::kWarp + simt::lane();
      const bool bad = id < p.vocab && !(v[i][h] - v[i][h] == 0);
      part = first_of(part, {v[i][h], id, bad ? id : kNowhere});
    }
    const float max = simt::warp_max(v[i][0] > v[i][1] ? v[i][0] : v[i][1]);
    if (simt::lane() == 0 && first + i < p.blocks) p.block_max[r * p.blocks + first + i] = max;
  }
  part = join_lanes(part);
  if (simt::lane() == 0) parts[simt::warp()] = part;
  if (simt::block_x() == 0 && !p.a.greedy) {
    for (int i = simt::thread_index(); i < kLevels; i += kSplitThreads)
      p.levels[r * kLevels + i] = 0;
  }
  simt::sync_block();
  if (simt::thread_index() != 0) return;
  for (int w = 1; w < kSplitWarps; ++w) part = first_of(part, parts[w]);
  p.parts[r * p.splits + simt::block_x()] = part;
}

LMN_KERNEL(kSplitThreads, 4) void sample_weigh(SampleParams p) {
  simt::wait_for_previous();
  auto& bins = *reinterpret_cast<Bins*>(simt::shared_memory());
  const int64_t r = simt::block_y();
  const SampleRow how = p.a.samples[r];
  if (how.row < 0 || how.scale == 0 || has_top_k(how, p.vocab)) return;
  const LogitsRow row = p.row(r, how, whole_scan(p, r).max);
  // top_p looks at all tokens; the draw is then from others (weigh_kept).
  const bool by_level = how.top_p < 1;
  const LeastWeight least{by_level ? 0 : how.min_p, row.max + how.min_depth};
  if (by_level) {
    bins.clear();
    simt::sync_block();
  }
  constexpr int kOfWarp = kSplitBlocks / kSplitWarps;
  const int32_t first = simt::block_x() * kSplitBlocks + simt::warp() * kOfWarp;
  float v[kOfWarp][2];
  for (int i = 0; i < kOfWarp; ++i) load_block(row.logits, p.vocab, first + i, v[i]);
  for (int i = 0; i < kOfWarp; ++i) {
    for (int h = 0; h < 2; ++h) {
      const float y = row.exponent(v[i][h]), w = exp2_weight(y);
      if (by_level && w > 0) bins.add(level_of(y), mass_of(w));
      v[i][h] = least.keeps(v[i][h], w) ? w : 0;
    }
  }
  for (int i = 0; i < kOfWarp; i += 2) {
    const float sum = block_sums(v[i], v[i + 1]);
    const int32_t b = first + i + simt::lane() / 16;
    if (simt::lane() % 16 == 0 && b < p.blocks) p.sums[r * p.blocks + b] = mass_of(sum);
  }
  if (!by_level) return;
  simt::sync_block();
  for (int i = simt::thread_index(); i < kLevels; i += kSplitThreads) {
    const uint64_t sum = bins.sum(i);
    if (sum != 0) simt::atomic_add(&p.levels[r * kLevels + i], sum);
  }
}

// The smallest sum of masses that is at least this part of `total`.
LMN_DEVICE uint64_t part_of(float top_p, uint64_t total) {
  const double mass = static_cast<double>(top_p) * static_cast<double>(total);
  const auto below = static_cast<uint64_t>(mass);
  return static_cast<double>(below) < mass ? below + 1 : below;
}

// The block sums of a row of which little is kept.
LMN_DEVICE void weigh_kept(const LogitsRow& row, const KeyCut& cut, const LeastWeight& least,
                           uint64_t* sums) {
  for (int32_t b = simt::thread_index(); b < row.blocks; b += kPickThreads) sums[b] = 0;
  simt::sync_block();
  walk(row, cut.key, [&](const int32_t(&b)[kWalkBlocks], const float(&v)[kWalkBlocks][2]) {
    for (int i = 0; i < kWalkBlocks; i += 2) {
      float w[2][2];
      for (int k = 0; k < 2; ++k) {
        for (int h = 0; h < 2; ++h) {
          const float logit = v[i + k][h];
          const int32_t id = b[i + k] * kRowBlock + h * simt::kWarp + simt::lane();
          w[k][h] = exp2_weight(row.exponent(logit));
          if (!cut.keeps(key_of(logit), id) || !least.keeps(logit, w[k][h])) w[k][h] = 0;
        }
      }
      const float sum = block_sums(w[0], w[1]);
      const int32_t mine = simt::lane() < 16 ? b[i] : b[i + 1];
      if (simt::lane() % 16 == 0 && mine >= 0) sums[mine] = mass_of(sum);
    }
  });
  simt::sync_block();
}

// Of the block sums, in every thread.
LMN_DEVICE uint64_t total_of(PickSpace& s, const uint64_t* sums, int32_t blocks) {
  uint64_t mine = 0, total;
  for (int32_t b = simt::thread_index(); b < blocks; b += kPickThreads) mine += sums[b];
  sum_before(s, mine, &total);
  return total;
}

// What top_k and top_p keep. own_sums: scratch.
LMN_DEVICE KeyCut cut_of(const SampleParams& p, int64_t r, const SampleRow& how,
                         const LogitsRow& row, uint64_t* own_sums, PickSpace& s) {
  const int me = simt::thread_index();
  const auto count = [](float) -> uint64_t { return 1; };
  const auto mass = [&](float logit) { return mass_of(exp2_weight(row.exponent(logit))); };
  Place place{lowest_key(row, kLevels - 1),
              key_of(row.max),
              -1,
              {std::numeric_limits<int32_t>::min(), kNowhere},
              0};
  uint64_t before;
  if (has_top_k(how, row.vocab)) {
    const auto k = static_cast<uint64_t>(how.top_k);
    if (how.top_k <= row.blocks) {
      // Each of the k blocks with the largest maxima has a token that large, so only what reaches
      // the level of the k-th of them can be among the k likeliest.
      s.bins.clear();
      simt::sync_block();
      for (int32_t b = me; b < row.blocks; b += kPickThreads) {
        const float y = row.exponent(row.block_max[b]);
        if (y > kLowestExponent) s.bins.add(level_of(y), 1);
      }
      simt::sync_block();
      const int level = find_reached(s, s.bins.sum(me), 0, k, &before);
      if (level >= 0) place.low = lowest_key(row, level);
      simt::sync_block();
    }
    place.within = select(row, place, k, count, s);
    if (how.top_p >= 1) return place.within;
    if (place.within.key > place.low) place.low = place.within.key;
    weigh_kept(row, place.within, {0, 0}, own_sums);
    const uint64_t need = part_of(how.top_p, total_of(s, own_sums, row.blocks));
    return select(row, place, need, mass, s);
  }
  if (how.top_p >= 1) return place.within;
  const uint64_t need = part_of(how.top_p, total_of(s, p.sums + r * p.blocks, row.blocks));
  const int level = find_reached(s, p.levels[r * kLevels + me], 0, need, &before);
  if (level < 0) return place.within;
  place.level = level;
  place.inside = before;
  place.low = lowest_key(row, level);
  place.high = highest_key(row, level);
  return select(row, place, need, mass, s);
}

// The token at which the sum of weights by ascending id passes uniform * total. sums: of blocks.
LMN_DEVICE int32_t draw(const SampleRow& how, const LogitsRow& row, const KeyCut& cut,
                        const LeastWeight& least, const uint64_t* sums, PickSpace& s) {
  const int32_t each = (row.blocks + kPickThreads - 1) / kPickThreads;
  const int32_t begin = simt::thread_index() * each;
  const int32_t end = begin + each < row.blocks ? begin + each : row.blocks;
  uint64_t mine = 0, total;
  for (int32_t b = begin; b < end; ++b) mine += sums[b];
  uint64_t passed = sum_before(s, mine, &total);
  // In doubles, as the engine has it; sums are exact in them.
  const double all = static_cast<double>(total) * kMassUnit;
  const double below = simt::next_below(all), at = how.uniform * all;
  const double target = at < below ? at : below;
  for (int32_t b = begin; b < end; ++b) {
    const uint64_t with = passed + sums[b];
    if (static_cast<double>(passed) * kMassUnit <= target &&
        static_cast<double>(with) * kMassUnit > target) {
      s.found = b;
      s.before = passed;
    }
    passed = with;
  }
  simt::sync_block();
  if (simt::warp() != 0) return -1;
  float v[2];
  load_block(row.logits, row.vocab, s.found, v);
  for (int h = 0; h < 2; ++h) {
    const int32_t id = s.found * kRowBlock + h * simt::kWarp + simt::lane();
    const float w = exp2_weight(row.exponent(v[h]));
    s.weights[h * simt::kWarp + simt::lane()] =
        cut.keeps(key_of(v[h]), id) && least.keeps(v[h], w) ? w : 0;
  }
  simt::sync_warp();
  if (simt::lane() != 0) return -1;
  int32_t chosen = -1;
  double sum = static_cast<double>(s.before) * kMassUnit;
  for (int32_t i = 0; i < kRowBlock; ++i) {
    const float w = s.weights[i];
    if (w == 0) continue;
    chosen = s.found * kRowBlock + i;
    sum += static_cast<double>(w);
    if (sum > target) break;
  }
  return chosen;
}

LMN_KERNEL(kPickThreads, 1) void sample_pick(SampleParams p) {
  simt::wait_for_previous();
  auto& s = *reinterpret_cast<PickSpace*>(simt::shared_memory());
  auto* own_sums = reinterpret_cast<uint64_t*>(simt::shared_memory() + sizeof(PickSpace));
  const int64_t r = simt::block_x();
  const SampleRow how = p.a.samples[r];
  if (how.row < 0) return;
  const ScanPart scan = whole_scan(p, r);
  SampleChoice choice;
  if (scan.bad != kNowhere) {
    choice.non_finite = scan.bad;
    choice.value = p.a.logits[how.row * p.a.stride + scan.bad];
  } else if (how.scale == 0) {
    choice.token_id = scan.at;
  } else {
    const LogitsRow row = p.row(r, how, scan.max);
    const LeastWeight least = least_weight(how, row.max);
    const KeyCut cut = cut_of(p, r, how, row, own_sums, s);
    const uint64_t* sums = p.sums + r * p.blocks;
    if (has_top_k(how, row.vocab) || how.top_p < 1) {
      weigh_kept(row, cut, least, own_sums);
      sums = own_sums;
    }
    choice.token_id = draw(how, row, cut, least, sums, s);
  }
  if (simt::thread_index() == 0) p.a.choices[r] = choice;
}

}  // namespace lmn::cuda
