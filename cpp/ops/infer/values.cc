// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/values.def: shapes that depend on data.
#include <cinttypes>

#include "ops/infer/axes.h"

namespace lmn::ops {

// A scalar has no dimensions, and its place has no coordinates.
Status infer_NonZero(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = DType::kI64;
  outputs[0].shape = Shape{kUnknownSize, kUnknownSize};
  if (node.ranked()) outputs[0].shape[0] = node.rank(0);
  return {};
}

Status infer_Unique(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = node.dtype(0);
  for (size_t i = 1; i < outputs.size(); ++i) {
    outputs[i].dtype = DType::kI64;
    outputs[i].shape = Shape{kUnknownSize};
  }
  if (node.attributes().find("axis") == nullptr) {
    outputs[0].shape = Shape{kUnknownSize};
    return {};
  }
  if (!node.ranked()) return {};
  int64_t axis = 0;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), node.rank(0), &axis));
  outputs[0].shape = node.shape(0);
  outputs[0].shape[static_cast<int>(axis)] = kUnknownSize;
  return {};
}

Status infer_NonMaxSuppression(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 5));
  for (int i : {0, 1, 3, 4}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kI64}));
  const int64_t center = node.integer("center_point_box", 0);
  if (center != 0 && center != 1) {
    return node.fail("center_point_box is %" PRId64 "; it is 0 or 1", center);
  }
  outputs[0].dtype = DType::kI64;
  outputs[0].shape = Shape{kUnknownSize, 3};
  if (!node.ranked()) return {};
  const Shape &boxes = node.shape(0), &scores = node.shape(1);
  int64_t same;
  if (boxes.rank != 3 || (boxes[2] >= 0 && boxes[2] != 4)) {
    return node.fail("boxes are %s; they are [batch, boxes, 4]", boxes.to_string().c_str());
  }
  if (scores.rank != 3 || !same_size(boxes[0], scores[0], &same) ||
      !same_size(boxes[1], scores[2], &same)) {
    return node.fail("boxes are %s and scores %s; scores are [batch, classes, boxes]",
                     boxes.to_string().c_str(), scores.to_string().c_str());
  }
  for (int i = 2; i < 5; ++i) {
    if (node.has(i) && node.type(i).is_known() && node.shape(i).elements() != 1) {
      return node.fail("input %d is %s; it is one number", i, node.shape(i).to_string().c_str());
    }
  }
  return {};
}

}  // namespace lmn::ops
