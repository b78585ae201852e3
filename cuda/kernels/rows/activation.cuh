// SPDX-License-Identifier: Apache-2.0
//
// Activation functions of single values.
#pragma once

#include "cuda/core/simt.cuh"

namespace lmn::cuda {

LMN_DEVICE float silu(float x) { return x / (1.0f + simt::exponential(-x)); }

}  // namespace lmn::cuda
