// SPDX-License-Identifier: Apache-2.0
//
// Activations that are named by an attribute of another operator: of recurrent networks and of
// fused products. Inference checks the names; kernels read them again by the same function.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/tensor_op.h"

namespace lmn::ops {

enum class ActivationKind : uint8_t {
  kNone,
  kRelu,
  kTanh,
  kSigmoid,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus,
  kClip,
  kSilu,
  kGelu
};

struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0, beta = 0;
};

// The activation of that name (of any case) with ONNX's defaults; INVALID_ARGUMENT names it.
Status find_activation(const TensorNode& node, std::string_view name, Activation* activation);
// Attributes activation and activation_params, or activation_alpha and activation_beta, of
// com.microsoft's fused operators.
Status read_activation(const TensorNode& node, Activation* activation);

}  // namespace lmn::ops
