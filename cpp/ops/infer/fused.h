// SPDX-License-Identifier: Apache-2.0
//
// Attributes of tensor_ops/fused.def, for inference and for kernels.
#pragma once

#include <array>
#include <string_view>

#include "ops/infer/infer.h"

namespace lmn::ops {

// Attribute q_perm, k_perm, v_perm or y_perm of lmnative.Attention; 0, 1, 2, 3 where it is absent.
Status read_permutation(const TensorNode& node, std::string_view key, std::array<int, 4>* perm);

}  // namespace lmn::ops
