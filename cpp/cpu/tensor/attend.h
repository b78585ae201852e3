// SPDX-License-Identifier: Apache-2.0
//
// Scaled dot-product attention of a few query rows of one head: what the attention operators share.
// Every row is computed alike whichever rows it is computed with: a score is one dot product in
// fixed lanes, values are added in the order of the keys, and keys outside a row's range are not
// looked at.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/tensor/dots.h"
#include "cpu/tensor/float_math.h"

namespace lmn::cpu {

inline constexpr int64_t kQueryRows = 16;  // that share a pass over keys and values

// Keys and values of one head: those of the past, then the new ones. Strides in elements.
template <typename T>
struct HeadCache {
  struct Part {
    const T* keys = nullptr;
    const T* values = nullptr;
    int64_t key_stride = 0, value_stride = 0, count = 0;
  };
  std::array<Part, 2> parts{};
  int64_t head_dim = 0, value_dim = 0;

  int64_t count() const { return parts[0].count + parts[1].count; }
};

// Keys [begin, end) that a row attends to.
struct KeyRange {
  int64_t begin, end;
};

template <typename S>
constexpr size_t attend_scratch_bytes(int64_t keys, int64_t head_dim, int64_t value_dim) {
  return sizeof(S) * static_cast<size_t>(kQueryRows * (keys + head_dim + value_dim) +
                                         std::max(head_dim, value_dim));
}

// The parts of attend_scratch_bytes().
template <typename S>
struct AttendScratch {
  S *queries, *scores, *outputs, *row;

  AttendScratch(std::byte* scratch, int64_t keys, int64_t head_dim, int64_t value_dim) {
    queries = reinterpret_cast<S*>(scratch);
    scores = queries + kQueryRows * head_dim;
    outputs = scores + kQueryRows * keys;
    row = outputs + kQueryRows * value_dim;
  }
};

template <typename S>
S sum_of(const S* x, int64_t count) {  // in eight lanes and a tree
  S lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t l = 0; l < 8; ++l) lanes[l] += x[i + l];
  }
  for (int64_t l = 0; i < count; ++i, ++l) lanes[l] += x[i];
  for (int64_t width = 4; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

// Scores to probabilities in place. `sink`, where not null, is one more score whose probability
// goes nowhere. A row without a key, or with -infinity for all, becomes zeros.
template <typename S>
void softmax(S* x, int64_t count, const S* sink) {
  constexpr S kNone = -std::numeric_limits<S>::infinity();
  S most = sink == nullptr ? kNone : *sink;
  for (int64_t i = 0; i < count; ++i) most = x[i] > most ? x[i] : most;
  if (most == kNone) {
    bool all = true;  // rather than a NaN among them
    for (int64_t i = 0; i < count; ++i) all = all && x[i] == kNone;
    if (all) {
      std::fill_n(x, count, S{});
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) x[i] = fast_exp(x[i] - most);
  S sum = sum_of(x, count);
  if (sink != nullptr) sum += fast_exp(*sink - most);
  const S scale = S(1) / sum;
  for (int64_t i = 0; i < count; ++i) x[i] *= scale;
}

// `rows` queries, scaled, in scratch.queries; their outputs in scratch.outputs.
// Policy:
//   KeyRange range(row)
//   bool bias(row, range, S* scores): adds to scores[range); false: the row attends to nothing
//   const S* sink(row), or null
//   void observe(stage, row, range, S* scores): 0 products, 1 capped, 2 biased, 3 probabilities,
//     of all keys; only called if kObserves
template <typename T, typename Policy>
void attend(const HeadCache<T>& cache, int64_t rows, Sum<T> softcap, const Policy& policy,
            const AttendScratch<Sum<T>>& scratch) {
  using S = Sum<T>;
  const int64_t keys = cache.count(), dim = cache.head_dim, value_dim = cache.value_dim;
  std::array<KeyRange, kQueryRows> ranges;
  KeyRange all{keys, 0};
  for (int64_t r = 0; r < rows; ++r) {
    ranges[static_cast<size_t>(r)] = policy.range(r);
    KeyRange& range = ranges[static_cast<size_t>(r)];
    range.begin = std::clamp<int64_t>(range.begin, 0, keys);
    range.end = std::clamp<int64_t>(range.end, range.begin, keys);
    all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
  }
  if (Policy::kObserves) all = {0, keys};
  int64_t first = 0;  // of a part
  for (const auto& part : cache.parts) {
    const int64_t begin = std::max(all.begin - first, int64_t{0});
    const int64_t end = std::min(all.end - first, part.count);
    for (int64_t r = 0; r < rows && begin < end; ++r)
      std::fill_n(scratch.scores + r * keys + first + begin, end - begin, S{});
    if (begin < end) {
      add_dots(part.keys + begin * part.key_stride, part.key_stride, end - begin, scratch.queries,
               dim, rows, dim, scratch.scores + first + begin, keys, scratch.row);
    }
    first += part.count;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange range = ranges[static_cast<size_t>(r)];
    S* const scores = scratch.scores + r * keys;
    if (Policy::kObserves) policy.observe(0, r, range, scores);
    if (softcap > 0) {
      const KeyRange capped = Policy::kObserves ? all : range;
      for (int64_t k = capped.begin; k < capped.end; ++k)
        scores[k] = softcap * fast_tanh(scores[k] / softcap);
    }
    if (Policy::kObserves) policy.observe(1, r, range, scores);
    const bool attends = policy.bias(r, range, scores);
    if (Policy::kObserves) policy.observe(2, r, range, scores);
    if (attends) {
      softmax(scores + range.begin, range.end - range.begin, policy.sink(r));
    } else {
      std::fill(scores + range.begin, scores + range.end, S{});
    }
    if (Policy::kObserves) policy.observe(3, r, range, scores);
  }
  std::fill_n(scratch.outputs, rows * value_dim, S{});
  first = 0;
  for (const auto& part : cache.parts) {
    for (int64_t k = 0; k < part.count; ++k) {
      if (first + k < all.begin || first + k >= all.end) continue;
      const T* const value = part.values + k * part.value_stride;
      const S* from = scratch.row;
      if constexpr (std::is_same_v<T, S>) {
        from = value;
      } else {
        for (int64_t d = 0; d < value_dim; ++d) scratch.row[d] = static_cast<S>(value[d]);
      }
      for (int64_t r = 0; r < rows; ++r) {
        const KeyRange range = ranges[static_cast<size_t>(r)];
        if (first + k < range.begin || first + k >= range.end) continue;
        const S weight = scratch.scores[r * keys + first + k];
        S* const to = scratch.outputs + r * value_dim;
        for (int64_t d = 0; d < value_dim; ++d) to[d] += weight * from[d];
      }
    }
    first += part.count;
  }
}

}  // namespace lmn::cpu
