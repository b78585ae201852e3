// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/integer.def.
#include "ops/infer/infer.h"

namespace lmn::ops {

Status infer_BlockRanges(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32}));
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  outputs[0].shape = Shape{64, 2};
  return {};
}

Status infer_QuantizeByRanges(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  for (int i = 0; i < 2; ++i) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  if (outputs.size() != 3) return node.fail("it has %zu outputs and makes 3", outputs.size());
  outputs[0].dtype = outputs[2].dtype = DType::kU8;
  outputs[1].dtype = DType::kF32;
  if (!node.ranked()) return {};
  outputs[0].shape = node.shape(0);
  outputs[1].shape = outputs[2].shape = Shape{};
  return {};
}

Status infer_IntegerLinear(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(5, 7));
  for (int i : {0, 3, 5}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kU8, DType::kI8}));
  for (int i : {1, 4, 6}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  outputs[0].dtype = DType::kF32;
  if (node.dtype(2) != node.dtype(0)) return node.fail("x and its zero point differ in type");
  if (!node.type(3).is_known() || node.rank(3) != 2) return node.fail("w is not a matrix");
  const int64_t inner = node.shape(3)[0], columns = node.shape(3)[1];
  const auto is_row = [&](int i, bool number) {
    if (!node.has(i) || !node.type(i).is_known()) return true;
    return node.shape(i) == Shape{columns} || (number && node.shape(i).elements() == 1);
  };
  if (!is_row(4, true) || !is_row(5, true) || !is_row(6, false))
    return node.fail("scales, zero points and bias are numbers, or one for each of %lld columns",
                     static_cast<long long>(columns));
  for (int i : {1, 2}) {
    if (node.type(i).is_known() && node.shape(i).elements() != 1)
      return node.fail("scale and zero point of x are numbers");
  }
  if (!node.type(0).ranked()) return {};
  Shape out = node.shape(0);
  if (out.rank < 1 || (out.last() >= 0 && out.last() != inner)) {
    return node.fail("x is %s, and w %s", out.to_string().c_str(),
                     node.shape(3).to_string().c_str());
  }
  out[out.rank - 1] = columns;
  outputs[0].shape = out;
  return {};
}

}  // namespace lmn::ops
