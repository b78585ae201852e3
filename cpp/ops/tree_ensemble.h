// SPDX-License-Identifier: Apache-2.0
//
// Decision trees, from the attributes of the three operators that have them, in one form. Reading
// checks everything: lengths, identities, children, targets, and that every walk from a root ends
// at a leaf. Whoever walks a TreeEnsemble need not check again, but that a row has `features`
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/tensor_op.h"

namespace lmn::ops {

enum class PostTransform : uint8_t { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };
enum class TreeSum : uint8_t { kAverage, kSum, kMin, kMax };
// In the order of TreeEnsemble's nodes_modes.
enum class Branch : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };

struct TreeNode {
  double split = 0;
  int32_t feature = 0;
  int32_t when_true = 0, when_false = 0;  // a node, or ~leaf
  int32_t members = -1;                   // of kMember: a list of TreeEnsemble::members
  Branch branch = Branch::kLeq;
  bool missing_is_true = false;  // where a NaN goes
};

struct TreeVote {
  int32_t target;
  double weight;
};

struct TreeEnsemble {
  std::vector<TreeNode> nodes;
  std::vector<int32_t> roots;       // a node, or ~leaf; one of every tree
  std::vector<int32_t> leaf_votes;  // leaf i has votes leaf_votes[i] to leaf_votes[i + 1]
  std::vector<TreeVote> votes;
  std::vector<std::vector<double>> members;  // ascending
  std::vector<double> base;                  // of the targets, or empty
  int64_t targets = 1;
  int64_t features = 0;  // that a row has at least
  TreeSum sum = TreeSum::kSum;
  PostTransform transform = PostTransform::kNone;
};

// INVALID_ARGUMENT names what is wrong.
Status read_tree_ensemble(const TensorNode& node, TreeEnsemble* out);

// The attribute post_transform, a name (NONE where absent).
Status read_post_transform(const TensorNode& node, PostTransform* out);

// The labels of a classifier: the number of them, and whether they are strings. One of both
// attributes is to be given.
Status read_labels(const TensorNode& node, std::string_view integers, std::string_view strings,
                   int64_t* count, bool* are_strings);

}  // namespace lmn::ops
