// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/ml.def: trees. Rows are shared out; the votes of a row are summed in the
// order of the trees, in double.
#include <algorithm>
#include <cmath>

#include "cpu/tensor/ml.h"

namespace lmn::cpu {
namespace {

using ops::Branch;
using ops::Operands;
using ops::PostTransform;
using ops::TreeEnsemble;
using ops::TreeNode;
using ops::TreeSum;
using ops::Worker;

bool goes_true(const TreeEnsemble& trees, const TreeNode& node, double x) {
  if (std::isnan(x)) return node.missing_is_true || node.branch == Branch::kNeq;
  switch (node.branch) {
    case Branch::kLeq:
      return x <= node.split;
    case Branch::kLt:
      return x < node.split;
    case Branch::kGte:
      return x >= node.split;
    case Branch::kGt:
      return x > node.split;
    case Branch::kEq:
      return x == node.split;
    case Branch::kNeq:
      return x != node.split;
    case Branch::kMember:
      break;
  }
  const std::vector<double>& members = trees.members[static_cast<size_t>(node.members)];
  return std::binary_search(members.begin(), members.end(), x);
}

// Sums of the votes for every target, and whether it had any.
template <typename T>
void vote(const TreeEnsemble& trees, const T* row, double* sums, uint8_t* has_votes) {
  std::fill_n(sums, trees.targets, 0.0);
  std::fill_n(has_votes, trees.targets, uint8_t{0});
  for (int32_t at : trees.roots) {
    while (at >= 0) {
      const TreeNode& node = trees.nodes[static_cast<size_t>(at)];
      at = goes_true(trees, node, static_cast<double>(row[node.feature])) ? node.when_true
                                                                          : node.when_false;
    }
    const auto leaf = static_cast<size_t>(~at);
    for (int32_t v = trees.leaf_votes[leaf]; v < trees.leaf_votes[leaf + 1]; ++v) {
      const auto& [target, weight] = trees.votes[static_cast<size_t>(v)];
      double& sum = sums[target];
      if (trees.sum == TreeSum::kMin) {
        sum = has_votes[target] != 0 ? std::min(sum, weight) : weight;
      } else if (trees.sum == TreeSum::kMax) {
        sum = has_votes[target] != 0 ? std::max(sum, weight) : weight;
      } else {
        sum += weight;
      }
      has_votes[target] = 1;
    }
  }
}

size_t scratch_of(const TreeEnsemble& trees) {
  return static_cast<size_t>(trees.targets) * (sizeof(double) + 1);
}

template <typename T, typename Out>
void set_regression(const Binding& b, const TreeEnsemble& trees) {
  const int64_t rows = b.outputs[0].shape[0], stride = b.node.shape(0).last();
  b.kernel.splits = true;
  b.kernel.scratch_bytes = scratch_of(trees);
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    auto* sums = reinterpret_cast<double*>(worker.scratch);
    auto* has_votes = reinterpret_cast<uint8_t*>(sums + trees.targets);
    const auto [begin, end] = ops::share_of(rows, worker);
    for (int64_t row = begin; row < end; ++row) {
      vote(trees, io.input<T>(0) + row * stride, sums, has_votes);
      Out* out = io.output<Out>(0) + row * trees.targets;
      for (int64_t t = 0; t < trees.targets; ++t) {
        if (trees.sum == TreeSum::kAverage) sums[t] /= static_cast<double>(trees.roots.size());
        if (!trees.base.empty()) sums[t] += trees.base[static_cast<size_t>(t)];
      }
      transform_scores(trees.transform, {sums, static_cast<size_t>(trees.targets)});
      for (int64_t t = 0; t < trees.targets; ++t) {
        if constexpr (std::is_same_v<Out, double>) {
          out[t] = sums[t];
        } else {
          out[t] = static_cast<Out>(static_cast<float>(sums[t]));
        }
      }
    }
  });
}

}  // namespace

Status bind_TreeEnsemble(const Binding& b) {
  TreeEnsemble trees;
  LMN_RETURN_IF_ERROR(ops::read_tree_ensemble(b.node, &trees));
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    set_regression<T, T>(b, trees);
    return {};
  });
}

Status bind_TreeEnsembleRegressor(const Binding& b) {
  TreeEnsemble trees;
  LMN_RETURN_IF_ERROR(ops::read_tree_ensemble(b.node, &trees));
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    set_regression<typename decltype(tag)::type, float>(b, trees);
    return {};
  });
}

// With two classes, votes that are all for the first are for the second in truth: one score, from
// which two are made. They are probabilities when no weight is negative. Otherwise the label is the
// class with the highest score among those that had votes.
Status bind_TreeEnsembleClassifier(const Binding& b) {
  TreeEnsemble trees;
  LMN_RETURN_IF_ERROR(ops::read_tree_ensemble(b.node, &trees));
  const Labels labels(b.node, "classlabels_int64s", "classlabels_strings");
  const int64_t classes = trees.targets, rows = b.outputs[0].shape[0],
                stride = b.node.shape(0).last();
  int32_t only = trees.votes.empty() ? -1 : trees.votes[0].target;  // class of all votes
  bool positive = true;
  for (const auto& [target, weight] : trees.votes) {
    if (target != only) only = -1;
    positive = positive && weight >= 0;
  }
  const bool one_score = classes == 2 && only == 0 && trees.base.size() < 2;
  const bool one_class = classes == 2 && only >= 0;
  b.kernel.splits = true;
  b.kernel.scratch_bytes = scratch_of(trees);
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      auto* sums = reinterpret_cast<double*>(worker.scratch);
      auto* has_votes = reinterpret_cast<uint8_t*>(sums + classes);
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        vote(trees, io.input<T>(0) + row * stride, sums, has_votes);
        for (size_t t = 0; t < trees.base.size(); ++t) {
          sums[t] += trees.base[t];
          has_votes[t] = 1;
        }
        if (one_score) {
          labels.write(io, row, sums[0] > (positive ? 0.5 : 0.0) ? 1 : 0);
          const auto [against, for_it] = transform_pair(trees.transform, sums[0], positive);
          sums[0] = against;
          sums[1] = for_it;
        } else {
          if (classes == 1) {
            labels.write_flag(io, row, sums[0] > 0);
          } else if (one_class && trees.base.empty()) {
            labels.write(io, row, sums[1] > (positive ? 0.5 : 0.0) ? 1 : 0);
          } else {
            int64_t best = -1;
            for (int64_t t = 0; t < classes; ++t) {
              if (has_votes[t] != 0 && (best < 0 || sums[t] > sums[best])) best = t;
            }
            labels.write(io, row, std::max<int64_t>(best, 0));
          }
          transform_scores(trees.transform, {sums, static_cast<size_t>(classes)});
        }
        float* out = io.output<float>(1);
        for (int64_t t = 0; out != nullptr && t < classes; ++t) {
          out[row * classes + t] = static_cast<float>(sums[t]);
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
