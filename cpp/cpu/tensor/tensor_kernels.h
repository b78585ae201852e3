// SPDX-License-Identifier: Apache-2.0
//
// The CPU's way of doing the operators of tensor_ops.def: bind_<e> chooses a kernel for a node,
// evaluate_<e> computes values whose shapes depend on data. One file per family. Kernels are
// compiled for the baseline; what an instruction set does faster comes through IsaKernels.
// prepare_<e>, of a few operators, packs their constant operands once.
#pragma once

#include <span>

#include "core/status.h"
#include "cpu/kernels/isa.h"
#include "ops/tensor_kernel.h"

namespace lmn::cpu {

struct Binding {
  const ops::TensorNode& node;
  std::span<const ops::TensorType> outputs;
  ops::TensorKernel& kernel;  // to be filled
  const IsaKernels& isa;
};

struct Preparation {
  const ops::TensorNode& node;
  std::shared_ptr<const void>& prepared;  // to be filled
  const IsaKernels& isa;
};

Status prepare(const Preparation& preparation);
Status bind(const Binding& binding);
Status evaluate_tensor_op(const ops::TensorNode& node, const ops::EvaluateContext& context);

#define LMN_TENSOR_OP(e, name, attributes) Status bind_##e(const Binding& b);
#define LMN_VALUE_OP(e, name, attributes) \
  Status evaluate_##e(const ops::TensorNode& node, const ops::EvaluateContext& context);
#define LMN_CONTROL_OP(e, name, attributes)
#include "ops/tensor_ops.def"
#undef LMN_CONTROL_OP
#undef LMN_VALUE_OP
#undef LMN_TENSOR_OP

Status prepare_FusedLinear(const Preparation& p);
Status prepare_GRU(const Preparation& p);
Status prepare_LSTM(const Preparation& p);
Status prepare_RNN(const Preparation& p);
Status prepare_ChannelsLastConv(const Preparation& p);
Status prepare_IntegerLinear(const Preparation& p);

}  // namespace lmn::cpu
