// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/elementwise.def.
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

// Two operands of one type, broadcast; the output is of `dtype`, or of theirs.
Status binary(const TensorNode& node, TensorTypes outputs, const DType* dtype = nullptr) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  if (node.dtype(0) != node.dtype(1)) {
    return node.fail("inputs are %s and %s; cast one to the type of the other",
                     std::string(info(node.dtype(0)).name).c_str(),
                     std::string(info(node.dtype(1)).name).c_str());
  }
  outputs[0].dtype = dtype == nullptr ? node.dtype(0) : *dtype;
  if (!node.ranked()) return {};
  return broadcast_all(node, &outputs[0].shape);
}

Status unary(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  return same_as_input(node, outputs);
}

}  // namespace

Status infer_Add(const TensorNode& node, TensorTypes outputs) { return binary(node, outputs); }
Status infer_Sub(const TensorNode& node, TensorTypes outputs) { return binary(node, outputs); }
Status infer_Mul(const TensorNode& node, TensorTypes outputs) { return binary(node, outputs); }
Status infer_Div(const TensorNode& node, TensorTypes outputs) { return binary(node, outputs); }
Status infer_Relu(const TensorNode& node, TensorTypes outputs) { return unary(node, outputs); }

}  // namespace lmn::ops
