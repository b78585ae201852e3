// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/fused.def.
#include "ops/infer/infer.h"

namespace lmn::ops {

Status infer_FusedLinear(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  for (int i = 0; i < 4; ++i) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  outputs[0].dtype = DType::kF32;
  const bool transposed = node.integer("transposed", 0) != 0;
  if (!node.type(1).is_known() || node.rank(1) != 2) return node.fail("W is not a matrix");
  const int64_t inner = node.shape(1)[transposed ? 1 : 0],
                columns = node.shape(1)[transposed ? 0 : 1];
  if (node.has(2) && node.type(2).ranked() && node.shape(2) != Shape{columns})
    return node.fail("bias is %s, expected [%lld]", node.shape(2).to_string().c_str(),
                     static_cast<long long>(columns));
  if (!node.type(0).ranked()) return {};
  Shape out = node.shape(0);
  if (out.rank < 1 || (out.last() >= 0 && out.last() != inner))
    return node.fail("x is %s, and W %s", out.to_string().c_str(),
                     node.shape(1).to_string().c_str());
  out[out.rank - 1] = columns;
  outputs[0].shape = out;
  if (node.has(3) && node.type(3).is_known() && outputs[0].is_known() && node.shape(3) != out)
    return node.fail("residual is %s, expected %s", node.shape(3).to_string().c_str(),
                     out.to_string().c_str());
  return {};
}

}  // namespace lmn::ops
