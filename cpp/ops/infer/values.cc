// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/values.def.
#include "ops/infer/infer.h"

namespace lmn::ops {

Status infer_NonZero(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  outputs[0].dtype = DType::kI64;
  if (!node.ranked()) {
    outputs[0].shape = Shape{kUnknownSize, kUnknownSize};
    return {};
  }
  outputs[0].shape = Shape{std::max(node.rank(0), 1), kUnknownSize};
  return {};
}

}  // namespace lmn::ops
