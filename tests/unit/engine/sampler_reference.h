// SPDX-License-Identifier: Apache-2.0
//
// The sampler again, the plain way: sort the whole vocabulary, compute in double, follow the list
// in sampler.h step by step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "engine/sampling_params.h"

namespace lmn::engine {

struct ReferenceDistribution {
  std::vector<double> adjusted;  // logits after bias and penalties [vocab]
  std::vector<double> p;         // probability of each token after all filters [vocab]
  bool near_cut =
      false;  // a token lies so near a filter's bound that float rounding may decide either way
};

inline ReferenceDistribution reference_distribution(const SamplingParams& params,
                                                    const std::vector<float>& logits,
                                                    const std::vector<int32_t>& tokens,
                                                    size_t prompt_tokens) {
  const size_t vocab = logits.size();
  ReferenceDistribution out;
  out.adjusted.assign(logits.begin(), logits.end());
  auto& x = out.adjusted;
  for (const LogitBias& b : params.logit_bias) x[size_t(b.token_id)] += double(b.bias);
  std::map<int32_t, int> seen;
  const size_t window = params.penalty_last_n == 0
                            ? tokens.size()
                            : std::min(tokens.size(), size_t(params.penalty_last_n));
  for (size_t i = tokens.size() - window; i < tokens.size(); ++i)
    seen[tokens[i]] += i >= prompt_tokens ? 1 : 0;
  for (const auto& [id, count] : seen) {
    double& v = x[size_t(id)];
    v = v > 0 ? v / double(params.repetition_penalty) : v * double(params.repetition_penalty);
    if (count > 0) v -= double(params.presence_penalty) + double(params.frequency_penalty) * count;
  }

  std::vector<size_t> order(vocab);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  out.p.assign(vocab, 0);
  if (params.temperature == 0) {
    out.p[order[0]] = 1;
    return out;
  }
  const auto close = [](double a, double b) {
    return std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
  };
  std::vector<double> w;  // in `order`
  for (const size_t id : order)
    w.push_back(std::exp((x[id] - x[order[0]]) / double(params.temperature)));
  size_t keep = vocab;
  if (params.top_k > 0) keep = std::min(keep, size_t(params.top_k));
  if (keep < vocab && x[order[keep - 1]] != x[order[keep]] &&
      std::abs(x[order[keep - 1]] - x[order[keep]]) < 1e-5)
    out.near_cut = true;
  if (params.top_p < 1) {
    const double total = std::accumulate(w.begin(), w.begin() + ptrdiff_t(keep), 0.0);
    const double mass = double(params.top_p) * total;
    double sum = 0;
    size_t n = 0;
    while (n < keep && sum < mass) {
      sum += w[n++];
      if (close(sum, mass)) out.near_cut = true;
    }
    keep = n;
  }
  for (size_t i = 0; i < keep; ++i) {
    if (close(w[i], double(params.min_p))) out.near_cut = true;
    if (w[i] >= double(params.min_p)) out.p[order[i]] = w[i];
  }
  const double total = std::accumulate(out.p.begin(), out.p.end(), 0.0);
  for (double& p : out.p) p /= total;
  return out;
}

}  // namespace lmn::engine
