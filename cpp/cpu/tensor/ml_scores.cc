// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cpu/tensor/ml.h"

namespace lmn::cpu {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The quantile of the standard normal distribution by S. Winitzki's approximation of the inverse
// error function ("A handy approximation for the error function and its inverse", 2008), which is
// what other implementations of PROBIT use.
double probit(double p) {
  constexpr double kPi = 3.14159265358979323846, kA = 0.147;
  const double x = 2 * p - 1, log = std::log((1 - x) * (1 + x)), half = 2 / (kPi * kA) + log / 2;
  const double root = std::sqrt(std::sqrt(half * half - log / kA) - half);
  return std::sqrt(2.0) * (x < 0 ? -root : root);
}

}  // namespace

void transform_scores(ops::PostTransform transform, std::span<double> scores) {
  using ops::PostTransform;
  if (transform == PostTransform::kProbit) {
    for (double& score : scores) score = probit(score);
    return;
  }
  if (transform == PostTransform::kNone || scores.size() < 2) return;
  if (transform == PostTransform::kLogistic) {
    for (double& score : scores) score = logistic(score);
    return;
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    // SOFTMAX_ZERO leaves scores of zero out of the sum.
    const bool is_zero = transform == PostTransform::kSoftmaxZero && std::abs(score) <= 1e-7;
    score = is_zero ? score * std::exp(-most) : std::exp(score - most);
    if (!is_zero) sum += score;
  }
  for (double& score : scores) score = sum == 0 ? 0.5 : score / sum;
}

ScorePair transform_pair(ops::PostTransform transform, double score, bool complement) {
  if (transform == ops::PostTransform::kLogistic) return {logistic(-score), logistic(score)};
  if (transform == ops::PostTransform::kProbit) return {-probit(score), probit(score)};
  return {complement ? 1 - score : -score, score};
}

Labels::Labels(const ops::TensorNode& node, std::string_view integers, std::string_view strings) {
  if (const ops::Strings* texts = node.texts(strings)) strings_ = *texts;
  if (const ops::Ints* ints = node.integers(integers)) integers_ = *ints;
}

void Labels::write(const ops::Operands& io, int64_t row, int64_t label) const {
  const auto at = static_cast<size_t>(label);
  if (!strings_.empty()) {
    if (auto* out = io.output<std::string>(0)) out[row] = strings_[at];
  } else if (auto* out = io.output<int64_t>(0)) {
    out[row] = integers_[at];
  }
}

void Labels::write_flag(const ops::Operands& io, int64_t row, bool positive) const {
  if (!strings_.empty()) {
    if (auto* out = io.output<std::string>(0)) out[row] = positive ? "1" : "0";
  } else if (auto* out = io.output<int64_t>(0)) {
    out[row] = positive ? 1 : 0;
  }
}

}  // namespace lmn::cpu
