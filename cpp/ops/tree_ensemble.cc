// SPDX-License-Identifier: Apache-2.0
#include "ops/tree_ensemble.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <unordered_map>

#include "core/float16.h"

namespace lmn::ops {
namespace {

constexpr size_t kMaxNodes = size_t{1} << 30;
constexpr int64_t kMaxTargets = int64_t{1} << 24;

// Numbers of an attribute that is a list of floats or, under the name of a tensor, a tensor of
// floats of any type. False: it is neither.
bool read_numbers(const TensorNode& node, std::string_view list, std::string_view tensor_name,
                  std::vector<double>* out) {
  if (const Tensor* tensor = node.tensor(tensor_name)) {
    const int64_t count = tensor->shape.elements();
    for (int64_t i = 0; i < count; ++i) {
      switch (tensor->dtype) {
        case DType::kF32:
          out->push_back(tensor->as<float>()[i]);
          break;
        case DType::kF64:
          out->push_back(tensor->as<double>()[i]);
          break;
        case DType::kF16:
          out->push_back(f16_to_f32(tensor->as<uint16_t>()[i]));
          break;
        default:
          return false;
      }
    }
    return true;
  }
  const Floats* floats = list.empty() ? nullptr : node.numbers(list);
  if (floats == nullptr) return false;
  out->assign(floats->begin(), floats->end());
  return true;
}

const Ints& list_or_empty(const TensorNode& node, std::string_view key) {
  static const Ints kNone;
  const Ints* found = node.integers(key);
  return found == nullptr ? kNone : *found;
}

Status expect_length(const TensorNode& node, std::string_view key, size_t length, size_t expected) {
  if (length == expected) return {};
  return node.fail("%.*s has %zu entries, not %zu", static_cast<int>(key.size()), key.data(),
                   length, expected);
}

// Every way from a root ends: no node is reached from itself.
Status check_acyclic(const TensorNode& node, const TreeEnsemble& trees) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(trees.nodes.size(), kNew);
  std::vector<int32_t> path;
  for (const int32_t root : trees.roots) {
    if (root >= 0 && state[static_cast<size_t>(root)] == kNew) path.push_back(root);
    while (!path.empty()) {
      const int32_t at = path.back();
      uint8_t& mine = state[static_cast<size_t>(at)];
      if (mine == kOpen || mine == kDone) {
        mine = kDone;
        path.pop_back();
        continue;
      }
      mine = kOpen;
      const TreeNode& tree_node = trees.nodes[static_cast<size_t>(at)];
      for (const int32_t child : {tree_node.when_true, tree_node.when_false}) {
        if (child < 0) continue;
        const uint8_t other = state[static_cast<size_t>(child)];
        if (other == kOpen) return node.fail("node %d is reached from itself", child);
        if (other == kNew) path.push_back(child);
      }
    }
  }
  return {};
}

Status set_feature(const TensorNode& node, int64_t feature, TreeNode* out, TreeEnsemble* trees) {
  if (feature < 0 || feature > INT32_MAX) return node.fail("a feature is %" PRId64, feature);
  out->feature = static_cast<int32_t>(feature);
  trees->features = std::max(trees->features, feature + 1);
  return {};
}

Status set_targets(const TensorNode& node, int64_t targets, TreeEnsemble* trees) {
  if (targets < 1 || targets > kMaxTargets) return node.fail("%" PRId64 " targets", targets);
  trees->targets = targets;
  return {};
}

// The attributes of TreeEnsemble.
Status read_lists(const TensorNode& node, TreeEnsemble* trees) {
  const Ints &features = list_or_empty(node, "nodes_featureids"),
             &when_true = list_or_empty(node, "nodes_truenodeids"),
             &when_false = list_or_empty(node, "nodes_falsenodeids"),
             &true_leaf = list_or_empty(node, "nodes_trueleafs"),
             &false_leaf = list_or_empty(node, "nodes_falseleafs"),
             &missing = list_or_empty(node, "nodes_missing_value_tracks_true"),
             &roots = list_or_empty(node, "tree_roots"),
             &leaf_targets = list_or_empty(node, "leaf_targetids");
  const size_t count = features.size();
  std::vector<double> splits, weights, members;
  if (!read_numbers(node, "", "nodes_splits", &splits) ||
      !read_numbers(node, "", "leaf_weights", &weights)) {
    return node.fail("nodes_splits and leaf_weights are tensors of floats");
  }
  const Tensor* modes = node.tensor("nodes_modes");
  if (modes == nullptr || modes->dtype != DType::kU8) return node.fail("nodes_modes is of type u8");
  if (node.tensor("membership_values") != nullptr &&
      !read_numbers(node, "", "membership_values", &members)) {
    return node.fail("membership_values is a tensor of floats");
  }
  if (count > kMaxNodes || weights.size() > kMaxNodes) return node.unsupported("too many nodes");
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_splits", splits.size(), count));
  LMN_RETURN_IF_ERROR(
      expect_length(node, "nodes_modes", static_cast<size_t>(modes->shape.elements()), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_truenodeids", when_true.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_falsenodeids", when_false.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_trueleafs", true_leaf.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_falseleafs", false_leaf.size(), count));
  if (!missing.empty()) {
    LMN_RETURN_IF_ERROR(
        expect_length(node, "nodes_missing_value_tracks_true", missing.size(), count));
  }
  LMN_RETURN_IF_ERROR(expect_length(node, "leaf_targetids", leaf_targets.size(), weights.size()));
  LMN_RETURN_IF_ERROR(set_targets(node, node.integer("n_targets", 1), trees));

  const auto child_of = [&](int64_t id, bool is_leaf, int32_t* child) -> Status {
    const size_t limit = is_leaf ? weights.size() : count;
    if (id < 0 || static_cast<uint64_t>(id) >= limit) {
      return node.fail("a child is %s %" PRId64 " of %zu", is_leaf ? "leaf" : "node", id, limit);
    }
    *child = is_leaf ? ~static_cast<int32_t>(id) : static_cast<int32_t>(id);
    return {};
  };
  size_t next_member = 0;
  for (size_t i = 0; i < count; ++i) {
    TreeNode tree_node;
    const uint8_t mode = modes->as<uint8_t>()[i];
    if (mode > static_cast<uint8_t>(Branch::kMember)) return node.fail("a mode is %d", mode);
    tree_node.branch = static_cast<Branch>(mode);
    tree_node.split = splits[i];
    tree_node.missing_is_true = !missing.empty() && missing[i] != 0;
    LMN_RETURN_IF_ERROR(set_feature(node, features[i], &tree_node, trees));
    LMN_RETURN_IF_ERROR(child_of(when_true[i], true_leaf[i] != 0, &tree_node.when_true));
    LMN_RETURN_IF_ERROR(child_of(when_false[i], false_leaf[i] != 0, &tree_node.when_false));
    if (tree_node.branch == Branch::kMember) {
      tree_node.members = static_cast<int32_t>(trees->members.size());
      auto& list = trees->members.emplace_back();
      while (next_member < members.size() && !std::isnan(members[next_member])) {
        list.push_back(members[next_member++]);
      }
      if (next_member++ >= members.size()) {
        return node.fail("membership_values has no list, ended by NaN, for node %zu", i);
      }
      std::sort(list.begin(), list.end());
    }
    trees->nodes.push_back(tree_node);
  }
  for (const int64_t root : roots) {
    if (root < 0 || static_cast<uint64_t>(root) >= count) {
      return node.fail("a root is node %" PRId64 " of %zu", root, count);
    }
    trees->roots.push_back(static_cast<int32_t>(root));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (leaf_targets[i] < 0 || leaf_targets[i] >= trees->targets) {
      return node.fail("a leaf's target is %" PRId64 " of %" PRId64, leaf_targets[i],
                       trees->targets);
    }
    trees->leaf_votes.push_back(static_cast<int32_t>(i));
    trees->votes.push_back({static_cast<int32_t>(leaf_targets[i]), weights[i]});
  }
  trees->leaf_votes.push_back(static_cast<int32_t>(weights.size()));
  const int64_t sum = node.integer("aggregate_function", 1),
                transform = node.integer("post_transform", 0);
  if (sum < 0 || sum > 3) return node.fail("aggregate_function is %" PRId64, sum);
  if (transform < 0 || transform > 4) return node.fail("post_transform is %" PRId64, transform);
  trees->sum = static_cast<TreeSum>(sum);
  trees->transform = static_cast<PostTransform>(transform);
  return {};
}

struct NodeKey {
  int64_t tree, id;
  bool operator==(const NodeKey&) const = default;
};
struct NodeHash {
  size_t operator()(const NodeKey& key) const {
    const uint64_t x = static_cast<uint64_t>(key.tree) * 0x9E3779B97F4A7C15u +
                       static_cast<uint64_t>(key.id) * 0xD6E8FEB86659FD93u;
    return static_cast<size_t>(x ^ (x >> 32));
  }
};

// The attributes of TreeEnsembleClassifier ("class") and TreeEnsembleRegressor ("target"): nodes
// and leaves in one list, named by tree and node. The root of a tree is the node that no other
// names as its child.
Status read_tuples(const TensorNode& node, const std::string& kind, int64_t targets,
                   TreeEnsemble* trees) {
  const Ints &ids = list_or_empty(node, "nodes_nodeids"),
             &tree_ids = list_or_empty(node, "nodes_treeids"),
             &features = list_or_empty(node, "nodes_featureids"),
             &when_true = list_or_empty(node, "nodes_truenodeids"),
             &when_false = list_or_empty(node, "nodes_falsenodeids"),
             &missing = list_or_empty(node, "nodes_missing_value_tracks_true"),
             &vote_nodes = list_or_empty(node, kind + "_nodeids"),
             &vote_trees = list_or_empty(node, kind + "_treeids"),
             &vote_targets = list_or_empty(node, kind + "_ids");
  const Strings* modes = node.texts("nodes_modes");
  const size_t count = ids.size();
  std::vector<double> splits, weights;
  read_numbers(node, "nodes_values", "nodes_values_as_tensor", &splits);
  read_numbers(node, kind + "_weights", kind + "_weights_as_tensor", &weights);
  read_numbers(node, "base_values", "base_values_as_tensor", &trees->base);
  if (count > kMaxNodes || weights.size() > kMaxNodes) return node.unsupported("too many nodes");
  LMN_RETURN_IF_ERROR(set_targets(node, targets, trees));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_treeids", tree_ids.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_featureids", features.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_truenodeids", when_true.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_falsenodeids", when_false.size(), count));
  LMN_RETURN_IF_ERROR(expect_length(node, "nodes_values", splits.size(), count));
  LMN_RETURN_IF_ERROR(
      expect_length(node, "nodes_modes", modes == nullptr ? 0 : modes->size(), count));
  if (!missing.empty()) {
    LMN_RETURN_IF_ERROR(
        expect_length(node, "nodes_missing_value_tracks_true", missing.size(), count));
  }
  LMN_RETURN_IF_ERROR(expect_length(node, kind + "_nodeids", vote_nodes.size(), weights.size()));
  LMN_RETURN_IF_ERROR(expect_length(node, kind + "_treeids", vote_trees.size(), weights.size()));
  LMN_RETURN_IF_ERROR(expect_length(node, kind + "_ids", vote_targets.size(), weights.size()));

  // Places of nodes and leaves in the order of the list: a node, or ~leaf.
  std::unordered_map<NodeKey, int32_t, NodeHash> places;
  std::vector<int32_t> place(count);
  int32_t nodes = 0, leaves = 0;
  for (size_t i = 0; i < count; ++i) {
    place[i] = (*modes)[i] == "LEAF" ? ~leaves++ : nodes++;
    if (!places.emplace(NodeKey{tree_ids[i], ids[i]}, place[i]).second) {
      return node.fail("node %" PRId64 " of tree %" PRId64 " is there twice", ids[i], tree_ids[i]);
    }
  }
  static constexpr std::string_view kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                                "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  std::vector<uint8_t> is_child(count, 0);  // by number of node or, behind these, of leaf
  const auto flag = [&](int32_t where) -> uint8_t& {
    return is_child[static_cast<size_t>(where >= 0 ? where : nodes + ~where)];
  };
  for (size_t i = 0; i < count; ++i) {
    if (place[i] < 0) continue;
    TreeNode tree_node;
    const auto* mode = std::find(std::begin(kModes), std::end(kModes), (*modes)[i]);
    if (mode == std::end(kModes)) {
      return node.fail(
          "a node's mode is '%.32s'; it is LEAF, BRANCH_LEQ, _LT, _GTE, _GT, _EQ, _NEQ",
          (*modes)[i].c_str());
    }
    tree_node.branch = static_cast<Branch>(mode - std::begin(kModes));
    tree_node.split = splits[i];
    tree_node.missing_is_true = !missing.empty() && missing[i] != 0;
    LMN_RETURN_IF_ERROR(set_feature(node, features[i], &tree_node, trees));
    for (const bool way : {true, false}) {
      const int64_t id = way ? when_true[i] : when_false[i];
      const auto found = places.find({tree_ids[i], id});
      if (found == places.end()) {
        return node.fail("node %" PRId64 " of tree %" PRId64 " has a child %" PRId64
                         " that is not there",
                         ids[i], tree_ids[i], id);
      }
      (way ? tree_node.when_true : tree_node.when_false) = found->second;
      if (flag(found->second) != 0) {
        return node.fail("node %" PRId64 " of tree %" PRId64 " is the child of two nodes", id,
                         tree_ids[i]);
      }
      flag(found->second) = 1;
    }
    trees->nodes.push_back(tree_node);
  }
  std::unordered_map<int64_t, int> roots_of;
  for (size_t i = 0; i < count; ++i) {
    if (flag(place[i]) != 0) {
      roots_of.emplace(tree_ids[i], 0);
      continue;
    }
    ++roots_of[tree_ids[i]];
    trees->roots.push_back(place[i]);
  }
  for (const auto& [tree, roots] : roots_of) {
    if (roots != 1) return node.fail("tree %" PRId64 " has %d roots", tree, roots);
  }
  // No node has two parents, so a way back can only lie where no root leads.
  size_t reached = 0;
  for (std::vector<int32_t> open(trees->roots.begin(), trees->roots.end()); !open.empty();) {
    const int32_t at = open.back();
    open.pop_back();
    ++reached;
    if (at < 0) continue;
    open.push_back(trees->nodes[static_cast<size_t>(at)].when_true);
    open.push_back(trees->nodes[static_cast<size_t>(at)].when_false);
  }
  if (reached != count)
    return node.fail("%zu nodes cannot be reached from a root", count - reached);

  // Votes, sorted by leaf, those of one leaf in their order.
  std::vector<std::vector<TreeVote>> by_leaf(static_cast<size_t>(leaves));
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto found = places.find({vote_trees[i], vote_nodes[i]});
    if (found == places.end()) {
      return node.fail("a weight belongs to node %" PRId64 " of tree %" PRId64
                       ", which is not there",
                       vote_nodes[i], vote_trees[i]);
    }
    if (vote_targets[i] < 0 || vote_targets[i] >= targets) {
      return node.fail("a weight's %s is %" PRId64 " of %" PRId64, kind.c_str(), vote_targets[i],
                       targets);
    }
    if (found->second >= 0) continue;  // of a node that is no leaf; nobody sees it
    by_leaf[static_cast<size_t>(~found->second)].push_back(
        {static_cast<int32_t>(vote_targets[i]), weights[i]});
  }
  trees->leaf_votes.push_back(0);
  for (const auto& votes : by_leaf) {
    trees->votes.insert(trees->votes.end(), votes.begin(), votes.end());
    trees->leaf_votes.push_back(static_cast<int32_t>(trees->votes.size()));
  }
  return read_post_transform(node, &trees->transform);
}

}  // namespace

Status read_post_transform(const TensorNode& node, PostTransform* out) {
  static constexpr std::string_view kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                                "PROBIT"};
  const std::string_view text = node.text("post_transform", "NONE");
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (text != kNames[i]) continue;
    *out = static_cast<PostTransform>(i);
    return {};
  }
  return node.fail("post_transform is NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT");
}

Status read_labels(const TensorNode& node, std::string_view integers, std::string_view strings,
                   int64_t* count, bool* are_strings) {
  const Ints* ints = node.integers(integers);
  const Strings* texts = node.texts(strings);
  *are_strings = texts != nullptr && !texts->empty();
  if (*are_strings == (ints != nullptr && !ints->empty())) {
    return node.fail("one of %.*s and %.*s is to be given", static_cast<int>(integers.size()),
                     integers.data(), static_cast<int>(strings.size()), strings.data());
  }
  *count = static_cast<int64_t>(*are_strings ? texts->size() : ints->size());
  return {};
}

Status read_tree_ensemble(const TensorNode& node, TreeEnsemble* out) {
  *out = {};
  switch (node.op()) {
    case TensorOp::kTreeEnsemble:
      LMN_RETURN_IF_ERROR(read_lists(node, out));
      break;
    case TensorOp::kTreeEnsembleRegressor: {
      LMN_RETURN_IF_ERROR(read_tuples(node, "target", node.integer("n_targets", 1), out));
      static constexpr std::string_view kSums[] = {"AVERAGE", "SUM", "MIN", "MAX"};
      const std::string_view text = node.text("aggregate_function", "SUM");
      const auto* sum = std::find(std::begin(kSums), std::end(kSums), text);
      if (sum == std::end(kSums))
        return node.fail("aggregate_function is AVERAGE, SUM, MIN or MAX");
      out->sum = static_cast<TreeSum>(sum - std::begin(kSums));
      break;
    }
    default: {
      int64_t classes;
      bool are_strings;
      LMN_RETURN_IF_ERROR(
          read_labels(node, "classlabels_int64s", "classlabels_strings", &classes, &are_strings));
      LMN_RETURN_IF_ERROR(read_tuples(node, "class", classes, out));
      break;
    }
  }
  if (out->roots.empty()) return node.fail("there is no tree");
  const auto bases = static_cast<int64_t>(out->base.size());
  const bool is_classifier = node.op() == TensorOp::kTreeEnsembleClassifier;
  if (bases != 0 && bases != out->targets && !(bases == 1 && is_classifier && out->targets == 2)) {
    return node.fail("%" PRId64 " base_values for %" PRId64 " targets", bases, out->targets);
  }
  return check_acyclic(node, *out);
}

}  // namespace lmn::ops
