// SPDX-License-Identifier: Apache-2.0
//
// Types of the layer normalisations that other programs fuse: SimplifiedLayerNormalization and
// com.microsoft's.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status expect_floats(const TensorNode& node, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    LMN_RETURN_IF_ERROR(
        node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
    if (node.has(i) && node.dtype(i) != node.dtype(first)) {
      return node.unsupported("input %d is %s and input %d is %s; cast one", i,
                              std::string(info(node.dtype(i)).name).c_str(), first,
                              std::string(info(node.dtype(first)).name).c_str());
    }
  }
  return {};
}

// Operand i, where present, is a vector of the size of x's rows.
Status expect_row(const TensorNode& node, int i, const char* what, int64_t size) {
  if (!node.has(i)) return {};
  const Shape& shape = node.shape(i);
  if (shape.rank == 1 && !differ(shape[0], size)) return {};
  return node.fail("%s has shape %s; rows are of %" PRId64, what, shape.to_string().c_str(), size);
}

Status infer_skip(const TensorNode& node, bool simplified, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, simplified ? 4 : 5));
  LMN_RETURN_IF_ERROR(expect_floats(node, 0, 5));
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs[i].dtype = i == 1 || i == 2 ? DType::kF32 : node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &skip = node.shape(1);
  bool fits = (x.rank == 2 || x.rank == 3) && skip.rank <= x.rank && skip.rank >= 2;
  for (int i = 1; fits && i <= skip.rank; ++i) {
    const int64_t size = skip[skip.rank - i];
    fits = (i == 3 && size == 1) || !differ(size, x[x.rank - i]);
  }
  if (!fits) {
    return node.fail("input has shape %s and skip %s; both are [batch, rows, size] or [rows, size]",
                     x.to_string().c_str(), skip.to_string().c_str());
  }
  LMN_RETURN_IF_ERROR(expect_row(node, 2, "gamma", x.last()));
  LMN_RETURN_IF_ERROR(expect_row(node, 3, simplified ? "bias" : "beta", x.last()));
  LMN_RETURN_IF_ERROR(expect_row(node, 4, "bias", x.last()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].shape = x;
    if (i == 1 || i == 2) outputs[i].shape[x.rank - 1] = 1;
  }
  return {};
}

}  // namespace

Status infer_SkipLayerNormalization(const TensorNode& node, TensorTypes outputs) {
  return infer_skip(node, false, outputs);
}
Status infer_SkipSimplifiedLayerNormalization(const TensorNode& node, TensorTypes outputs) {
  return infer_skip(node, true, outputs);
}

Status infer_SimplifiedLayerNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_floats(node, 0, 2));
  outputs[0].dtype = node.dtype(0);
  if (outputs.size() > 1) outputs[1].dtype = DType::kF32;
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &scale = node.shape(1);
  int64_t axis = 0;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", -1), x.rank, &axis));
  bool fits = scale.rank == x.rank - axis;
  for (int i = 0; fits && i < scale.rank; ++i)
    fits = !differ(scale[i], x[static_cast<int>(axis) + i]);
  if (!fits) {
    return node.fail("scale has shape %s and x %s from axis %" PRId64 " on",
                     scale.to_string().c_str(), x.to_string().c_str(), axis);
  }
  for (TensorType& output : outputs) output.shape = x;
  if (outputs.size() > 1) {
    for (int i = static_cast<int>(axis); i < x.rank; ++i) outputs[1].shape[i] = 1;
  }
  return {};
}

// Operands: ids, segments, words, positions, segment embedding, gamma, beta, mask, position ids.
Status infer_EmbedLayerNormalization(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 9));
  for (int i : {2, 3, 5, 6}) {
    if (!node.has(i)) return node.fail("input %d is missing", i);
  }
  if (node.has(1) != node.has(4)) return node.fail("segment_ids and their embedding come together");
  for (int i : {0, 1, 7, 8}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kI32}));
  LMN_RETURN_IF_ERROR(expect_floats(node, 2, 5));
  outputs[0].dtype = node.dtype(2);
  if (outputs.size() > 1) outputs[1].dtype = DType::kI32;
  if (outputs.size() > 2) outputs[2].dtype = node.dtype(2);
  if (!node.ranked()) return {};
  const Shape& ids = node.shape(0);
  const Shape& words = node.shape(2);
  if (ids.rank != 2 || words.rank != 2) {
    return node.fail("input_ids have shape %s and word_embedding %s; both are of rank 2",
                     ids.to_string().c_str(), words.to_string().c_str());
  }
  for (int i : {1, 7, 8}) {
    if (!node.has(i)) continue;
    const Shape& other = node.shape(i);
    if (other.rank != 2 || differ(other[1], ids[1]) ||
        (differ(other[0], ids[0]) && !(i == 8 && other[0] == 1))) {
      return node.fail("input %d has shape %s and input_ids %s", i, other.to_string().c_str(),
                       ids.to_string().c_str());
    }
  }
  for (int i : {3, 4}) {
    if (node.has(i) && (node.rank(i) != 2 || differ(node.shape(i)[1], words[1])))
      return node.fail("input %d has shape %s and word_embedding %s", i,
                       node.shape(i).to_string().c_str(), words.to_string().c_str());
  }
  LMN_RETURN_IF_ERROR(expect_row(node, 5, "gamma", words[1]));
  LMN_RETURN_IF_ERROR(expect_row(node, 6, "beta", words[1]));
  outputs[0].shape = Shape{ids[0], ids[1], words[1]};
  if (outputs.size() > 1) outputs[1].shape = Shape{ids[0]};
  if (outputs.size() > 2) outputs[2].shape = outputs[0].shape;
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
