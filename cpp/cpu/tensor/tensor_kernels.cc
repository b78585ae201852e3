// SPDX-License-Identifier: Apache-2.0
#include "cpu/tensor/tensor_kernels.h"

#include "core/check.h"

namespace lmn::cpu {

Status prepare(const Preparation& preparation) {
  switch (preparation.node.op()) {
    case ops::TensorOp::kFusedLinear:
      return prepare_FusedLinear(preparation);
    case ops::TensorOp::kGRU:
      return prepare_GRU(preparation);
    case ops::TensorOp::kLSTM:
      return prepare_LSTM(preparation);
    case ops::TensorOp::kRNN:
      return prepare_RNN(preparation);
    case ops::TensorOp::kChannelsLastConv:
      return prepare_ChannelsLastConv(preparation);
    case ops::TensorOp::kIntegerLinear:
      return prepare_IntegerLinear(preparation);
    default:
      return {};
  }
}

Status bind(const Binding& binding) {
  switch (binding.node.op()) {
#define LMN_TENSOR_OP(e, name, attributes) \
  case ops::TensorOp::k##e:                \
    return bind_##e(binding);
#define LMN_VALUE_OP(e, name, attributes) \
  case ops::TensorOp::k##e:               \
    break;
#define LMN_CONTROL_OP(e, name, attributes) \
  case ops::TensorOp::k##e:                 \
    break;
#include "ops/tensor_ops.def"
#undef LMN_CONTROL_OP
#undef LMN_VALUE_OP
#undef LMN_TENSOR_OP
  }
  LMN_CHECK(!"only operators of class kKernel are bound");
}

Status evaluate_tensor_op(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  switch (node.op()) {
#define LMN_TENSOR_OP(e, name, attributes) \
  case ops::TensorOp::k##e:                \
    break;
#define LMN_VALUE_OP(e, name, attributes) \
  case ops::TensorOp::k##e:               \
    return evaluate_##e(node, context);
#define LMN_CONTROL_OP(e, name, attributes) \
  case ops::TensorOp::k##e:                 \
    break;
#include "ops/tensor_ops.def"
#undef LMN_CONTROL_OP
#undef LMN_VALUE_OP
#undef LMN_TENSOR_OP
  }
  LMN_CHECK(!"only operators of class kValue are evaluated");
}

}  // namespace lmn::cpu
