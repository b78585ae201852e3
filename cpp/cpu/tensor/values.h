// SPDX-License-Identifier: Apache-2.0
//
// Whole tensors, as the evaluation of value operators moves them. What is in a sequence, an
// optional or a map owns its memory and is never written again, so such values share it; a tensor
// that goes in or comes out is copied, because a plan reuses the memory of tensors.
#pragma once

#include "ops/tensor_kernel.h"

namespace lmn::cpu {

// Elements [from, from + count) of one tensor to place `to` of another of the same type.
void copy_elements(const Tensor& source, int64_t from, int64_t count, const Tensor& target,
                   int64_t to);
Result<Tensor> copy_tensor(const Tensor& tensor, const ops::AllocateTensor& allocate);
// A tensor is copied; what is in other kinds is shared.
Result<ops::RuntimeValue> copy_value(const ops::RuntimeValue& value,
                                     const ops::AllocateTensor& allocate);

}  // namespace lmn::cpu
