// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/reductions.def: reductions, softmaxes and losses.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status reduce(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  const bool keep = node.integer("keepdims", 1) != 0;
  if (node.has(1) && !knows_list(node, 1)) {
    const int64_t count = node.rank(1) == 0 ? 1 : node.shape(1)[0];
    if (keep) {
      outputs[0].shape = unknown_sizes(x.rank);
    } else if (count > 0 && count <= x.rank) {
      outputs[0].shape = unknown_sizes(x.rank - static_cast<int>(count));
    }
    return {};
  }
  uint32_t bits;
  LMN_RETURN_IF_ERROR(reduced_axes(node, &bits));
  Shape out;
  for (int i = 0; i < x.rank; ++i) {
    if ((bits >> i & 1u) == 0) {
      out[out.rank++] = x[i];
    } else if (keep) {
      out[out.rank++] = 1;
    }
  }
  outputs[0].shape = out;
  return {};
}

Status along_axis(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  int64_t axis;
  return node.normalize_axis(node.integer("axis", -1), node.rank(0), &axis);
}

// Scores [N, C, d…], classes [N, d…] and weights [C]; the loss of each, or their sum or mean.
Status loss(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_float(node, 0));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  for (TensorType& type : outputs) type.dtype = node.dtype(0);
  const std::string_view reduction = node.text("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    return node.fail("reduction '%s'; it is none, sum or mean", std::string(reduction).c_str());
  }
  if (node.has(2) && node.dtype(2) != node.dtype(0)) {
    return node.fail("weights and scores are of two types");
  }
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &target = node.shape(1);
  bool fits = x.rank >= 2 && target.rank == x.rank - 1;
  for (int i = 0; fits && i < target.rank; ++i) {
    int64_t size;
    fits = same_size(x[i == 0 ? 0 : i + 1], target[i], &size);
  }
  int64_t classes;
  if (!fits ||
      (node.has(2) && (node.rank(2) != 1 || !same_size(node.shape(2)[0], x[1], &classes)))) {
    return node.fail("scores are %s and classes %s; they are [N, C, …] and [N, …], weights are [C]",
                     x.to_string().c_str(), target.to_string().c_str());
  }
  outputs[0].shape = reduction == "none" ? target : Shape{};
  if (outputs.size() > 1) outputs[1].shape = x;
  return {};
}

}  // namespace

Status reduced_axes(const TensorNode& node, uint32_t* bits) {
  std::vector<int64_t> axes;
  if (node.has(1)) axes = node.integers(1);
  if (!axes.empty()) return axis_bits(node, axes, node.rank(0), bits);
  *bits = node.integer("noop_with_empty_axes", 0) != 0 ? 0u : (1u << node.rank(0)) - 1u;
  return {};
}

Status infer_ReduceL1(const TensorNode& node, TensorTypes outputs) { return reduce(node, outputs); }
Status infer_ReduceL2(const TensorNode& node, TensorTypes outputs) { return reduce(node, outputs); }
Status infer_ReduceLogSum(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceLogSumExp(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceMax(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceMean(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceMin(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceProd(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceSum(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}
Status infer_ReduceSumSquare(const TensorNode& node, TensorTypes outputs) {
  return reduce(node, outputs);
}

Status infer_Softmax(const TensorNode& node, TensorTypes outputs) {
  return along_axis(node, outputs);
}
Status infer_LogSoftmax(const TensorNode& node, TensorTypes outputs) {
  return along_axis(node, outputs);
}
Status infer_LpNormalization(const TensorNode& node, TensorTypes outputs) {
  const int64_t p = node.integer("p", 2);
  if (p != 1 && p != 2) return node.fail("p is %" PRId64 "; it is 1 or 2", p);
  return along_axis(node, outputs);
}

Status infer_NegativeLogLikelihoodLoss(const TensorNode& node, TensorTypes outputs) {
  return loss(node, outputs);
}
Status infer_SoftmaxCrossEntropyLoss(const TensorNode& node, TensorTypes outputs) {
  return loss(node, outputs);
}

}  // namespace lmn::ops
