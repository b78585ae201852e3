// SPDX-License-Identifier: Apache-2.0
//
// Scalar dequantisation of every weight type of a model file to float32, by the block formats of
// the GGUF specification (ggml's block layouts). It is the reference that packed kernels are tested
// against and the loader's fallback; speed is not its business. Source bytes may have any
// alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace lmn::ops {

// Whether dequantize() knows the type: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K,
// Q6_K.
bool can_dequantize(DType type);

// Writes `count` values (a multiple of the type's block) from `source` to `y`. The type is one
// can_dequantize() accepts.
void dequantize(DType type, const std::byte* source, int64_t count, float* y);

}  // namespace lmn::ops
