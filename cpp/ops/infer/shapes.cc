// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/shapes.def.
#include <cinttypes>

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
      have *= from[j];
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

}  // namespace lmn::ops
