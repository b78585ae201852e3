// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/shapes.def: elements chosen by index, order or sequence, and running sums.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status check_reduction(const TensorNode& node) {
  const std::string_view text = node.text("reduction", "none");
  for (const std::string_view known : {"none", "add", "mul", "max", "min"}) {
    if (text == known) return {};
  }
  return node.fail("reduction '%s'; it is none, add, mul, max or min", std::string(text).c_str());
}

Status same_dtypes(const TensorNode& node, int a, int b) {
  if (node.dtype(a) == node.dtype(b)) return {};
  return node.fail("inputs %d and %d are %s and %s", a, b,
                   std::string(info(node.dtype(a)).name).c_str(),
                   std::string(info(node.dtype(b)).name).c_str());
}

// One index along `axis` for every lane of x: keepdims keeps that axis with size 1.
Status arg_reduce(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = DType::kI64;
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  int64_t axis = 0;
  Shape out;
  if (x.rank > 0) {
    LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.rank, &axis));
    if (x[static_cast<int>(axis)] == 0) return node.fail("axis %" PRId64 " is empty", axis);
  }
  for (int i = 0; i < x.rank; ++i) {
    if (i != axis) {
      out[out.rank++] = x[i];
    } else if (node.integer("keepdims", 1) != 0) {
      out[out.rank++] = 1;
    }
  }
  outputs[0].shape = out;
  return {};
}

Status running(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  outputs[0] = node.type(0);
  if (!node.ranked() || !node.knows(1)) return {};
  int64_t axis;
  LMN_RETURN_IF_ERROR(scalar_integer(node, 1, &axis));
  return node.normalize_axis(axis, node.rank(0), &axis);
}

}  // namespace

Status infer_Gather(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &indices = node.shape(1);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.rank, &axis));
  if (x.rank - 1 + indices.rank > kMaxRank) {
    return node.unsupported("an output of rank %d; at most %d", x.rank - 1 + indices.rank,
                            kMaxRank);
  }
  Shape out;
  for (int i = 0; i < x.rank; ++i) {
    if (i != axis) {
      out[out.rank++] = x[i];
      continue;
    }
    for (int j = 0; j < indices.rank; ++j) out[out.rank++] = indices[j];
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_GatherElements(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &indices = node.shape(1);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.rank, &axis));
  if (indices.rank != x.rank) {
    return node.fail("indices have rank %d, and the input %d", indices.rank, x.rank);
  }
  for (int i = 0; i < x.rank; ++i) {
    if (i != axis && x[i] >= 0 && indices[i] > x[i]) {
      return node.fail("indices %s reach beyond %s", indices.to_string().c_str(),
                       x.to_string().c_str());
    }
  }
  outputs[0].shape = indices;
  return {};
}

Status infer_GatherND(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &indices = node.shape(1);
  const int64_t batch = node.integer("batch_dims", 0);
  if (batch < 0 || batch >= std::min(x.rank, indices.rank)) {
    return node.fail("batch_dims is %" PRId64 " for ranks %d and %d", batch, x.rank, indices.rank);
  }
  Shape out;
  for (int i = 0; i + 1 < indices.rank; ++i) {
    out[out.rank++] = indices[i];
    if (i < batch && !same_size(indices[i], x[i], &out[i])) {
      return node.fail("batch sizes %" PRId64 " and %" PRId64 " differ", x[i], indices[i]);
    }
  }
  const int64_t depth = indices.last();
  if (depth < 0) return {};
  if (depth < 1 || depth > x.rank - batch) {
    return node.fail("indices of %" PRId64 " values for an input of rank %d", depth, x.rank);
  }
  const int first = static_cast<int>(batch + depth);
  if (out.rank + x.rank - first > kMaxRank) return node.unsupported("rank above %d", kMaxRank);
  for (int i = first; i < x.rank; ++i) out[out.rank++] = x[i];
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_ScatterElements(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  LMN_RETURN_IF_ERROR(same_dtypes(node, 0, 2));
  LMN_RETURN_IF_ERROR(check_reduction(node));
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &indices = node.shape(1), &updates = node.shape(2);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.rank, &axis));
  bool fits = indices.rank == x.rank && updates.rank == x.rank;
  for (int i = 0; fits && i < x.rank; ++i) {
    int64_t size;
    fits = same_size(indices[i], updates[i], &size) && (i == axis || x[i] < 0 || size <= x[i]);
  }
  if (!fits) {
    return node.fail("indices %s and updates %s do not fit %s", indices.to_string().c_str(),
                     updates.to_string().c_str(), x.to_string().c_str());
  }
  return {};
}

Status infer_ScatterND(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64, DType::kI32}));
  LMN_RETURN_IF_ERROR(same_dtypes(node, 0, 2));
  LMN_RETURN_IF_ERROR(check_reduction(node));
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &indices = node.shape(1), &updates = node.shape(2);
  if (x.rank < 1 || indices.rank < 1) return node.fail("data or indices are a scalar");
  const int64_t depth = indices.last();
  if (depth < 0) return {};
  bool fits = depth <= x.rank && updates.rank == indices.rank - 1 + x.rank - depth;
  for (int i = 0; fits && i < updates.rank; ++i) {
    int64_t size;
    fits = same_size(
        updates[i],
        i < indices.rank - 1 ? indices[i] : x[static_cast<int>(depth) + i - (indices.rank - 1)],
        &size);
  }
  if (!fits) {
    return node.fail("indices %s and updates %s do not fit %s", indices.to_string().c_str(),
                     updates.to_string().c_str(), x.to_string().c_str());
  }
  return {};
}

Status infer_TensorScatter(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {DType::kI64}));
  LMN_RETURN_IF_ERROR(same_dtypes(node, 0, 1));
  const std::string_view mode = node.text("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    return node.fail("mode '%s'; it is linear or circular", std::string(mode).c_str());
  }
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  const Shape &x = node.shape(0), &update = node.shape(1);
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", -2), x.rank, &axis));
  if (axis == 0) return node.fail("axis 0 is the batch; it takes another");
  bool fits = update.rank == x.rank;
  for (int i = 0; fits && i < x.rank; ++i) {
    int64_t size;
    fits = i == axis ? x[i] < 0 || update[i] <= x[i] : same_size(x[i], update[i], &size);
  }
  if (!fits) {
    return node.fail("an update of %s does not fit %s", update.to_string().c_str(),
                     x.to_string().c_str());
  }
  if (node.has(2)) {
    int64_t size;
    if (node.rank(2) != 1 || !same_size(node.shape(2)[0], x[0], &size)) {
      return node.fail("write_indices has shape %s for a batch of %" PRId64,
                       node.shape(2).to_string().c_str(), x[0]);
    }
  }
  return {};
}

Status infer_OneHot(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 3));
  outputs[0].dtype = node.dtype(2);
  if (!node.ranked()) return {};
  const Shape &indices = node.shape(0), &values = node.shape(2);
  if (values.rank != 1 || (values[0] >= 0 && values[0] != 2)) {
    return node.fail("values have shape %s; they are [off, on]", values.to_string().c_str());
  }
  if (indices.rank + 1 > kMaxRank) return node.unsupported("rank above %d", kMaxRank);
  int64_t axis, depth = kUnknownSize;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", -1), indices.rank + 1, &axis));
  if (node.knows(1)) {
    LMN_RETURN_IF_ERROR(scalar_integer(node, 1, &depth));
    if (depth < 0) return node.fail("depth is %" PRId64, depth);
  }
  Shape out;
  out.rank = indices.rank + 1;
  for (int i = 0; i < out.rank; ++i) out[i] = i == axis ? depth : indices[i < axis ? i : i - 1];
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_ReverseSequence(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0] = node.type(0);
  const int64_t batch = node.integer("batch_axis", 1), time = node.integer("time_axis", 0);
  if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time) {
    return node.fail("batch_axis is %" PRId64 " and time_axis %" PRId64 "; one is 0, the other 1",
                     batch, time);
  }
  if (!node.ranked()) return {};
  if (node.rank(0) < 2) return node.fail("the input has rank %d, below 2", node.rank(0));
  int64_t size;
  if (node.rank(1) != 1 ||
      !same_size(node.shape(1)[0], node.shape(0)[static_cast<int>(batch)], &size)) {
    return node.fail("sequence_lens has shape %s for an input of %s",
                     node.shape(1).to_string().c_str(), node.shape(0).to_string().c_str());
  }
  return {};
}

Status infer_Compress(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kBool}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  if (node.rank(1) != 1) return node.fail("condition has rank %d, not 1", node.rank(1));
  Shape out{kUnknownSize};
  int64_t elements = size_product(node.shape(0), 0, node.rank(0));
  if (node.attributes().find("axis") != nullptr) {
    int64_t axis;
    LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), node.rank(0), &axis));
    out = node.shape(0);
    elements = out[static_cast<int>(axis)];
    out[static_cast<int>(axis)] = kUnknownSize;
  }
  if (elements >= 0 && node.shape(1)[0] > elements) {
    return node.fail("condition has %" PRId64 " values for %" PRId64 " elements", node.shape(1)[0],
                     elements);
  }
  outputs[0].shape = out;
  return {};
}

Status infer_TopK(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (outputs.size() > 1) outputs[1].dtype = DType::kI64;
  if (!node.ranked()) return {};
  Shape out = node.shape(0);
  int64_t axis, k = kUnknownSize;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", -1), out.rank, &axis));
  int64_t& size = out[static_cast<int>(axis)];
  if (node.knows(1)) {
    LMN_RETURN_IF_ERROR(scalar_integer(node, 1, &k));
    if (k < 0 || (size >= 0 && k > size)) {
      return node.fail("k is %" PRId64 " of %" PRId64 " elements", k, size);
    }
  }
  size = k;
  for (TensorType& type : outputs) type.shape = out;
  return {};
}

Status infer_ArgMax(const TensorNode& node, TensorTypes outputs) {
  return arg_reduce(node, outputs);
}
Status infer_ArgMin(const TensorNode& node, TensorTypes outputs) {
  return arg_reduce(node, outputs);
}
Status infer_CumSum(const TensorNode& node, TensorTypes outputs) { return running(node, outputs); }
Status infer_CumProd(const TensorNode& node, TensorTypes outputs) { return running(node, outputs); }

Status infer_Hardmax(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0] = node.type(0);
  if (!node.ranked()) return {};
  int64_t axis;
  return node.normalize_axis(node.integer("axis", -1), node.rank(0), &axis);
}

}  // namespace lmn::ops
