// SPDX-License-Identifier: Apache-2.0
#include "engine/logits_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace lmn::engine {
namespace {

// Vectors of the baseline instruction set (SSE2, NEON), by the compilers' vector extension: the
// same operations lane by lane on every machine, so the results are the same too.
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
constexpr int kLanes = 4;

Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
Floats all(float value) { return Floats{value, value, value, value}; }
Ints as_ints(Floats value) { return std::bit_cast<Ints>(value); }
Floats as_floats(Ints value) { return std::bit_cast<Floats>(value); }
Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// exp(x) for x <= 0: x = n ln2 + r with |r| <= ln2 / 2, exp(r) by its Taylor series to r^7 (the
// rest is below 6e-9, an eighth of a float's last place), times 2^n by its exponent bits.
constexpr float kLowest = -87.0F;  // exp(-87) = 1.6e-38 is still a normal float
constexpr float kLog2e = 1.44269504F;
constexpr float kLn2High = 0.693359375F;  // nine bits: n * kLn2High is exact
constexpr float kLn2Low = -2.12194440e-4F;
constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the integer in the low bits
constexpr float kTaylor[] = {1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24,
                             1.0F / 6,    0.5F,       1.0F,       1.0F};

Floats exp_weights(Floats x) {
  const Floats inside = x > all(kLowest) ? x : all(kLowest);
  const Floats rounded = inside * all(kLog2e) + all(kRound);
  const Floats n = rounded - all(kRound);
  const Floats r = (inside - n * all(kLn2High)) - n * all(kLn2Low);
  Floats y = all(kTaylor[0]);
  for (int i = 1; i < 8; ++i) y = y * r + all(kTaylor[i]);
  const Ints exponent = (as_ints(rounded) - as_ints(all(kRound)) + 127) << 23;
  const Floats result = y * as_floats(exponent);
  return x > all(kLowest) ? result : all(0.0F);
}

// Weights of up to kRowBlock values.
struct BlockWeights {
  alignas(16) float w[kRowBlock];
};
void block_weights(const float* row, int count, float max, float temperature, BlockWeights& out) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats w = exp_weights((load(row + i) - all(max)) / all(temperature));
    std::memcpy(out.w + i, &w, sizeof(w));
  }
  for (; i < count; ++i) out.w[i] = exp_weight((row[i] - max) / temperature);
}

int block_count(std::span<const float> row, size_t block) {
  return static_cast<int>(std::min<size_t>(kRowBlock, row.size() - block * kRowBlock));
}

}  // namespace

float exp_weight(float x) { return exp_weights(all(x))[0]; }

int32_t first_non_finite(std::span<const float> row) {
  constexpr int32_t kExponent = 0x7F800000;
  const auto bad = [](float x) { return (std::bit_cast<int32_t>(x) & kExponent) == kExponent; };
  Ints any{};
  size_t i = 0;
  const Ints exponent = {kExponent, kExponent, kExponent, kExponent};
  for (; i + kLanes <= row.size(); i += kLanes)
    any |= (as_ints(load(&row[i])) & exponent) == exponent;
  const bool in_tail = std::any_of(row.begin() + static_cast<ptrdiff_t>(i), row.end(), bad);
  if ((any[0] | any[1] | any[2] | any[3]) == 0 && !in_tail) return -1;
  return static_cast<int32_t>(std::find_if(row.begin(), row.end(), bad) - row.begin());
}

float block_maxima(std::span<const float> row, std::span<float> block_max) {
  float max = -std::numeric_limits<float>::infinity();
  for (size_t block = 0; block < block_max.size(); ++block) {
    const float* x = row.data() + block * kRowBlock;
    const int count = block_count(row, block);
    Floats lanes = all(-std::numeric_limits<float>::infinity());
    int i = 0;
    for (; i + kLanes <= count; i += kLanes) lanes = larger(load(x + i), lanes);
    float best = std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
    for (; i < count; ++i) best = std::max(best, x[i]);
    block_max[block] = best;
    max = std::max(max, best);
  }
  return max;
}

int32_t index_of(std::span<const float> row, std::span<const float> block_max, float value) {
  size_t block = 0;
  while (block_max[block] != value) ++block;
  size_t i = block * kRowBlock;
  while (row[i] != value) ++i;
  return static_cast<int32_t>(i);
}

double sum_weights(std::span<const float> row, float max, float temperature,
                   std::span<double> block_sum) {
  double total = 0;
  BlockWeights weights;
  const auto blocks = static_cast<size_t>(row_blocks(static_cast<int32_t>(row.size())));
  for (size_t block = 0; block < blocks; ++block) {
    const int count = block_count(row, block);
    block_weights(row.data() + block * kRowBlock, count, max, temperature, weights);
    Floats lanes{};
    int i = 0;
    for (; i + kLanes <= count; i += kLanes) lanes += load(weights.w + i);
    double sum =
        (static_cast<double>(lanes[0]) + lanes[1]) + (static_cast<double>(lanes[2]) + lanes[3]);
    for (; i < count; ++i) sum += weights.w[i];
    if (!block_sum.empty()) block_sum[block] = sum;
    total += sum;
  }
  return total;
}

void gather(std::span<const float> row, std::span<const float> block_max, const Candidate& last,
            std::vector<Candidate>& out) {
  for (size_t block = 0; block < block_max.size(); ++block) {
    if (block_max[block] < last.logit) continue;
    const auto begin = static_cast<int32_t>(block * kRowBlock);
    const int32_t end = begin + block_count(row, block);
    for (int32_t id = begin; id < end; ++id) {
      const Candidate candidate{row[static_cast<size_t>(id)], 0, id};
      if (!likelier(last, candidate)) out.push_back(candidate);
    }
  }
}

double weigh(std::span<Candidate> candidates, float max, float temperature) {
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); i += kLanes) {
    const size_t count = std::min<size_t>(kLanes, candidates.size() - i);
    Floats x = all(max);
    for (size_t lane = 0; lane < count; ++lane) x[lane] = candidates[i + lane].logit;
    const Floats w = exp_weights((x - all(max)) / all(temperature));
    for (size_t lane = 0; lane < count; ++lane) sum += candidates[i + lane].weight = w[lane];
  }
  return sum;
}

Candidate kth_likeliest(std::span<const float> row, std::span<const float> block_max, int32_t k,
                        std::vector<Candidate>& scratch, std::vector<float>& float_scratch) {
  // Each of the k blocks with the largest maxima holds a value that large, so the k-th largest
  // value is at least the k-th largest maximum: only what reaches that can be among the k
  // likeliest.
  Candidate bound = kLastOfAll;
  const auto rank = static_cast<size_t>(k - 1);
  if (rank < block_max.size()) {
    float_scratch.assign(block_max.begin(), block_max.end());
    std::nth_element(float_scratch.begin(), float_scratch.begin() + (k - 1), float_scratch.end(),
                     std::greater<>());
    bound.logit = std::max(bound.logit, float_scratch[rank]);
  }
  scratch.clear();
  gather(row, block_max, bound, scratch);
  if (rank >= scratch.size()) return kLastOfAll;
  std::nth_element(scratch.begin(), scratch.begin() + (k - 1), scratch.end(), likelier);
  return scratch[rank];
}

Candidate nucleus_end(std::span<Candidate> candidates, double mass) {
  // Sorts as little as the answer needs: candidates go into buckets by logit, and only the bucket
  // in which the mass is reached is looked at again. The likeliest candidate is in the first bucket
  // and the least likely in the last, so it shrinks.
  constexpr size_t kBuckets = 256, kSortBelow = 64;
  const auto logits = [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; };
  double inside = 0;  // mass of those that are likelier than all of `candidates`
  for (;;) {
    const auto [low, high] = std::minmax_element(candidates.begin(), candidates.end(), logits);
    const double top = high->logit, range = top - low->logit;
    if (range == 0 || candidates.size() <= kSortBelow) break;
    const auto bucket = [&](const Candidate& c) {
      return static_cast<size_t>((top - c.logit) / range * (kBuckets - 1));
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

}  // namespace lmn::engine
