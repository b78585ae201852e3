// SPDX-License-Identifier: Apache-2.0
#include "engine/logits_row.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lmn::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Floats in the order of integers.
int64_t key_of(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
float from_key(int64_t key) {
  const auto bits = static_cast<int32_t>(key);
  return std::bit_cast<float>(bits ^ ((bits >> 31) & 0x7FFFFFFF));
}

// The last member of the smallest set of likeliest candidates whose masses (`weight`) sum to `mass`
// or more with `inside`, the mass of what is likelier than all of them. They do, and sums are
// exact. By ascending id, none forbidden; the contents are lost.
Candidate nucleus_end(std::span<Candidate> candidates, double inside, double mass) {
  // Sorts as little as the answer needs: candidates go into buckets by logit, and only the bucket
  // in which the mass is reached is looked at again. The likeliest candidate is in the first bucket
  // and the least likely in the last, so it shrinks.
  constexpr size_t kBuckets = 256, kSortBelow = 64;
  const auto logits = [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; };
  while (candidates.size() > kSortBelow) {
    const auto [low, high] = std::minmax_element(candidates.begin(), candidates.end(), logits);
    const double top = high->logit, range = top - low->logit;
    if (range == 0) break;
    const double to_bucket = (kBuckets - 1) / range;
    const auto bucket = [&](const Candidate& c) {
      return std::min(kBuckets - 1, static_cast<size_t>((top - c.logit) * to_bucket));
    };
    double sums[kBuckets] = {};
    for (const Candidate& c : candidates) sums[bucket(c)] += c.weight;
    size_t reached = 0;
    while (reached + 1 < kBuckets && inside + sums[reached] < mass) inside += sums[reached++];
    size_t count = 0;
    for (const Candidate& c : candidates) {
      if (bucket(c) == reached) candidates[count++] = c;  // keeps the order by id
    }
    candidates = candidates.first(count);
  }
  std::sort(candidates.begin(), candidates.end(), likelier);
  for (const Candidate& c : candidates) {
    inside += c.weight;
    if (inside >= mass) return c;
  }
  return candidates.back();
}

// Gathers what `cut` keeps below `ceiling`, with masses. Empty where the set that nucleus_end()
// looks for does not end among them.
std::span<Candidate> gather_masses(const RowKernels& kernels, const RowView& row, const RowCut& cut,
                                   float ceiling, const Nucleus& nucleus, double inside,
                                   std::span<Candidate> scratch) {
  const int32_t count = kernels.gather(row, cut, ceiling, nucleus.weights, scratch.data());
  const auto candidates = scratch.first(static_cast<size_t>(count));
  double sum = inside;
  for (Candidate& c : candidates) {
    c.weight = static_cast<float>((static_cast<double>(c.weight) + kMassRound) - kMassRound);
    sum += c.weight;
  }
  return inside < nucleus.mass && sum >= nucleus.mass ? candidates : candidates.first(0);
}

}  // namespace

int32_t first_non_finite(std::span<const float> row) {
  constexpr size_t kChunk = 64 * kRowBlock;
  float block_max[kChunk / kRowBlock];
  for (size_t begin = 0; begin < row.size(); begin += kChunk) {
    const auto chunk = row.subspan(begin, std::min(kChunk, row.size() - begin));
    if (row_kernels()
            .scan(chunk.data(), static_cast<int32_t>(chunk.size()), block_max, nullptr)
            .finite)
      continue;
    const auto bad = [](float x) { return !std::isfinite(x); };
    return static_cast<int32_t>(std::find_if(chunk.begin(), chunk.end(), bad) - row.begin());
  }
  return -1;
}

float exp2_weight(float y) {
  if (!(y > kLowestExponent)) return 0;
  const float rounded = y + kRound;
  const float n = rounded - kRound;
  const float t = y - n;
  float p = kExp2[0];
  for (int i = 1; i < kExp2Terms; ++i) p = p * t + kExp2[i];
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

float weight_scale(float temperature) {
  constexpr double kLog2e = 1.4426950408889634;
  return static_cast<float>(std::min(kLog2e / static_cast<double>(temperature),
                                     static_cast<double>(std::numeric_limits<float>::max())));
}

RowCut cut_at(float bound, int32_t last_id) {
  return {bound, std::nextafter(bound, kInfinity), last_id};
}

float bound_of_largest(const RowKernels& kernels, std::span<const float> values, int32_t k,
                       float max) {
  // Halves the interval of keys; stops early when few too many reach the lower end.
  const auto size = static_cast<int32_t>(values.size());
  const int32_t enough = k + k / 8;
  int64_t low = key_of(std::numeric_limits<float>::lowest()), high = key_of(max) + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const int32_t count = kernels.count_above(values.data(), size, from_key(middle));
    (count >= k ? low : high) = middle;
    if (count >= k && count <= enough) break;
  }
  return from_key(low);
}

RowCut kth_likeliest(const RowKernels& kernels, const RowView& row, int32_t k, float max,
                     std::span<Candidate> scratch) {
  // Each of the k blocks with the largest maxima holds a value that large, so the k-th largest
  // value is at least the k-th largest maximum: only what reaches that can be among the k
  // likeliest. Where k blocks do not exist, the values themselves give a bound.
  const int32_t blocks = row_blocks(row.vocab);
  const std::span<const float> values = k <= blocks
                                            ? std::span(row.block_max, static_cast<size_t>(blocks))
                                            : std::span(row.logits, static_cast<size_t>(row.vocab));
  const float bound = bound_of_largest(kernels, values, k, max);
  const int32_t count = kernels.gather(row, cut_at(bound), kInfinity, nullptr, scratch.data());
  if (k > count) return cut_nothing();
  const auto last = scratch.begin() + (k - 1);
  std::nth_element(scratch.begin(), last, scratch.begin() + count, likelier);
  return cut_at(last->logit, last->id);
}

RowCut nucleus_cut(const RowKernels& kernels, const RowView& row, const Nucleus& nucleus,
                   std::span<Candidate> scratch) {
  // Narrows [bound of the cut, ceiling), in which the mass is reached, to few tokens by sums over
  // the whole row, then sorts those.
  // A round reads the row, which costs about as much as sorting a 32nd of it.
  const double few = std::max(128.0, row.vocab / 32.0);
  constexpr int kRounds = 8;  // a row of many equals cannot be narrowed
  const auto [max, scale] = nucleus.scale;
  RowCut cut = nucleus.cut;
  // Tokens lighter than this hold, all together, less than what may be left out.
  const double light = 0.99 * (nucleus.total - nucleus.mass) / row.vocab;
  const double depth = light > 0x1p-124 ? std::log2(light) : -124;
  const auto start = static_cast<float>(max + depth / scale);
  if (start > cut.bound) cut = cut_at(start);
  float high = max, ceiling = kInfinity;
  double above = 0, from_bound = nucleus.total;
  double at_most = nucleus.kept;  // tokens of the interval
  for (int round = 0; at_most > few && round < kRounds; ++round) {
    // Where in the interval, as a fraction: evenly first, then at a third and two thirds, and close
    // around the place that a straight line between the two known sums gives.
    double at[kBounds] = {0.2, 0.4, 0.6, 0.8};
    if (round > 0) {
      const double guess = (from_bound - nucleus.mass) / (from_bound - above);
      at[0] = 1.0 / 3;
      at[1] = 2.0 / 3;
      at[2] = std::max(0.01, guess - 1.0 / 24);
      at[3] = std::min(0.99, guess + 1.0 / 24);
      std::sort(at, at + kBounds);
    }
    const double width = static_cast<double>(high) - cut.bound;
    float bounds[kBounds];
    double sums[kBounds];
    for (int i = 0; i < kBounds; ++i) bounds[i] = static_cast<float>(cut.bound + width * at[i]);
    if (bounds[0] <= cut.bound) break;
    kernels.sums_above(row, nucleus.weights, bounds, sums);
    int reached = kBounds;
    while (reached > 0 && sums[reached - 1] < nucleus.mass) --reached;
    if (reached > 0) {
      cut = cut_at(bounds[reached - 1]);
      from_bound = sums[reached - 1];
    }
    if (reached < kBounds) {
      ceiling = high = bounds[reached];
      above = sums[reached];
    }
    // None of them weighs less than one at the bound.
    const float lightest = exp2_weight((cut.bound - max) * scale);
    if (lightest > 0) at_most = (from_bound - above) / lightest;
  }
  // The sums so far are rounded; whether the mass is reached among what is left, exact ones decide.
  double inside = ceiling < kInfinity ? kernels.mass_above(row, nucleus.weights, ceiling) : 0;
  std::span<Candidate> candidates =
      gather_masses(kernels, row, cut, ceiling, nucleus, inside, scratch);
  if (candidates.empty()) {
    inside = 0;
    candidates = gather_masses(kernels, row, nucleus.cut, kInfinity, nucleus, inside, scratch);
    if (candidates.empty()) return nucleus.cut;
  }
  const Candidate last = nucleus_end(candidates, inside, nucleus.mass);
  return cut_at(last.logit, last.id);
}

}  // namespace lmn::engine
