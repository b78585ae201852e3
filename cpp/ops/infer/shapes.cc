// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/shapes.def.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {

Status infer_Identity(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  return same_as_input(node, outputs);
}

// Dimension i of `shape` is 0: that of x (unless allowzero); -1: what is left.
Status infer_Reshape(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  if (node.rank(1) != 1) return node.fail("shape is a tensor of rank %d, not 1", node.rank(1));
  if (!node.knows(1)) {
    outputs[0].shape = shape_of_unknown(node.shape(1));
    return {};
  }
  const Shape& x = node.shape(0);
  const std::vector<int64_t> sizes = node.integers(1);
  if (sizes.size() > kMaxRank)
    return node.unsupported("rank %zu; at most %d", sizes.size(), kMaxRank);
  const bool zero_means_copy = node.integer("allowzero", 0) == 0;
  Shape out;
  out.rank = static_cast<int>(sizes.size());
  int left = -1;
  for (int i = 0; i < out.rank; ++i) {
    out[i] = sizes[static_cast<size_t>(i)];
    if (out[i] == -1) {
      if (left >= 0) return node.fail("shape has two sizes of -1");
      left = i;
    } else if (out[i] < 0) {
      return node.fail("shape[%d] is %" PRId64 "; it is -1, 0 or a size", i, out[i]);
    } else if (out[i] == 0 && zero_means_copy) {
      if (i >= x.rank) return node.fail("shape[%d] is 0, and the input has rank %d", i, x.rank);
      out[i] = x[i];
    }
  }
  LMN_RETURN_IF_ERROR(check_elements(node, out));
  // Sizes that both have, known or not, cancel out; what is left of the input is the size of -1.
  Shape from = x, to = out;
  for (int i = 0; i < to.rank; ++i) {
    if (i == left || to[i] == kUnknownSize) continue;
    for (int j = 0; j < from.rank; ++j) {
      if (from[j] != to[i] || from[j] == 0 || from[j] == 1) continue;
      from[j] = to[i] = 1;
      break;
    }
  }
  int64_t have = 1, want = 1;
  int unknown_from = 0, unknown_to = 0;
  int64_t symbol = 0;
  for (int j = 0; j < from.rank; ++j) {
    if (from[j] < 0) {
      ++unknown_from;
      symbol = from[j];
    } else {
      if (__builtin_mul_overflow(have, from[j], &have)) return node.fail("the input is too large");
    }
  }
  for (int i = 0; i < to.rank; ++i) {
    if (i == left) continue;
    if (to[i] < 0) {
      ++unknown_to;
    } else {
      want *= to[i];
    }
  }
  outputs[0].shape = out;
  if (unknown_from == 0 && unknown_to == 0) {
    if (left >= 0 && (want == 0 || have % want != 0)) {
      return node.fail("%s does not reshape to %s", x.to_string().c_str(), out.to_string().c_str());
    }
    if (left >= 0) outputs[0].shape[left] = have / want;
    if (left < 0 && have != want) {
      return node.fail("%s does not reshape to %s", x.to_string().c_str(), out.to_string().c_str());
    }
  } else if (left >= 0) {
    const bool is_symbol = unknown_from == 1 && unknown_to == 0 && have == want;
    outputs[0].shape[left] = is_symbol ? symbol : kUnknownSize;
  }
  return {};
}

Status infer_Shape(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = DType::kI64;
  if (!node.ranked()) {
    outputs[0].shape = Shape{kUnknownSize};
    return {};
  }
  const int64_t rank = node.rank(0);
  const auto clamp = [rank](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  const int64_t begin = clamp(node.integer("start", 0)), end = clamp(node.integer("end", rank));
  outputs[0].shape = Shape{std::max<int64_t>(0, end - begin)};
  return {};
}

Status infer_Size(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0] = {DType::kI64, Shape{}};
  return {};
}

Status infer_Flatten(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0] = {node.dtype(0), unknown_sizes(2)};
  if (!node.ranked()) return {};
  const int rank = node.rank(0);
  int64_t axis = node.integer("axis", 1);
  if (axis < -rank || axis > rank) {
    return node.fail("axis %" PRId64 " of a tensor of rank %d; it is between %d and %d", axis, rank,
                     -rank, rank);
  }
  axis += axis < 0 ? rank : 0;
  const int split = static_cast<int>(axis);
  outputs[0].shape =
      Shape{size_product(node.shape(0), 0, split), size_product(node.shape(0), split, rank)};
  return {};
}

Status infer_Squeeze(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  uint32_t bits = 0;
  if (!node.has(1)) {
    for (int i = 0; i < x.rank; ++i) {
      if (x[i] < 0) return {};  // may be 1 or not
      if (x[i] == 1) bits |= 1u << i;
    }
  } else if (!knows_list(node, 1)) {
    const int64_t count = node.rank(1) == 0 ? 1 : node.shape(1)[0];
    if (count >= 0 && count <= x.rank)
      outputs[0].shape = unknown_sizes(x.rank - static_cast<int>(count));
    return {};
  } else {
    LMN_RETURN_IF_ERROR(axis_bits(node, node.integers(1), x.rank, &bits));
  }
  Shape out;
  for (int i = 0; i < x.rank; ++i) {
    if ((bits >> i & 1u) == 0) {
      out[out.rank++] = x[i];
    } else if (x[i] >= 0 && x[i] != 1) {
      return node.fail("axis %d of %s is not 1", i, x.to_string().c_str());
    }
  }
  outputs[0].shape = out;
  return {};
}

Status infer_Unsqueeze(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  const int64_t count = node.rank(1) == 0 ? 1 : node.shape(1)[0];
  if (count < 0) return {};
  if (count > kMaxRank - x.rank) {
    return node.unsupported("%" PRId64 " axes more than rank %d; at most rank %d", count, x.rank,
                            kMaxRank);
  }
  Shape out = unknown_sizes(x.rank + static_cast<int>(count));
  if (knows_list(node, 1)) {
    uint32_t bits;
    LMN_RETURN_IF_ERROR(axis_bits(node, node.integers(1), out.rank, &bits));
    for (int i = 0, from = 0; i < out.rank; ++i) out[i] = (bits >> i & 1u) != 0 ? 1 : x[from++];
  }
  outputs[0].shape = out;
  return {};
}

// Of com.microsoft: Unsqueeze of one axis.
Status infer_ExpandDims(const TensorNode& node, TensorTypes outputs) {
  return infer_Unsqueeze(node, outputs);
}

Status infer_Transpose(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  const Ints* perm = node.integers("perm");
  if (perm != nullptr) {
    uint32_t bits;
    if (perm->size() != static_cast<size_t>(x.rank)) {
      return node.fail("perm has %zu axes, and the input has rank %d", perm->size(), x.rank);
    }
    for (const int64_t axis : *perm) {
      if (axis < 0) return node.fail("perm has an axis below 0");
    }
    LMN_RETURN_IF_ERROR(axis_bits(node, *perm, x.rank, &bits));
  }
  outputs[0].shape.rank = x.rank;
  for (int i = 0; i < x.rank; ++i) {
    const int from =
        perm == nullptr ? x.rank - 1 - i : static_cast<int>((*perm)[static_cast<size_t>(i)]);
    outputs[0].shape[i] = x[from];
  }
  return {};
}

Status infer_Expand(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  if (!knows_list(node, 1)) {
    Shape out = shape_of_unknown(node.shape(1));
    if (out.rank >= 0) outputs[0].shape = unknown_sizes(std::max(out.rank, x.rank));
    return {};
  }
  Shape target;
  LMN_RETURN_IF_ERROR(shape_of_list(node, 1, &target));
  LMN_RETURN_IF_ERROR(broadcast(node, x, target, &outputs[0].shape));
  return check_elements(node, outputs[0].shape);
}

Status infer_Tile(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_list(node, 1));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  if (!knows_list(node, 1)) {
    outputs[0].shape = unknown_sizes(x.rank);
    return {};
  }
  const std::vector<int64_t> repeats = node.integers(1);
  if (repeats.size() != static_cast<size_t>(x.rank)) {
    return node.fail("repeats has %zu values, and the input has rank %d", repeats.size(), x.rank);
  }
  Shape out = x;
  for (int i = 0; i < x.rank; ++i) {
    const int64_t times = repeats[static_cast<size_t>(i)];
    if (times < 0 || times > kMaxElements) {
      return node.fail("repeats[%d] is %" PRId64, i, times);
    }
    if (times == 0) {
      out[i] = 0;
    } else if (x[i] < 0) {
      out[i] = times == 1 ? x[i] : kUnknownSize;
    } else if (__builtin_mul_overflow(x[i], times, &out[i])) {
      return node.fail("repeats[%d] is %" PRId64 " of a size of %" PRId64, i, times, x[i]);
    }
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_ConstantOfShape(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kI64, DType::kI32}));
  const Tensor* value = node.tensor("value");
  outputs[0].dtype = value == nullptr ? DType::kF32 : value->dtype;
  if (value != nullptr && value->shape.elements() != 1) {
    return node.fail("value has shape %s; it is one element", value->shape.to_string().c_str());
  }
  if (!node.ranked()) return {};
  if (!knows_list(node, 0)) {
    outputs[0].shape = shape_of_unknown(node.shape(0));
    return {};
  }
  LMN_RETURN_IF_ERROR(shape_of_list(node, 0, &outputs[0].shape));
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
