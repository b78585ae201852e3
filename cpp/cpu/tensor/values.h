// SPDX-License-Identifier: Apache-2.0
//
// Whole tensors, as the evaluation of value operators moves them. A tensor that owns its memory is
// never written again once it is made, so sequences, optionals and maps share it; one that lies in
// a plan's memory is copied when it goes into one of them.
#pragma once

#include "ops/tensor_kernel.h"

namespace lmn::cpu {

// Elements [from, from + count) of one tensor to place `to` of another of the same type.
void copy_elements(const Tensor& source, int64_t from, int64_t count, const Tensor& target,
                   int64_t to);
// The value, in memory that it owns.
Result<ops::RuntimeValue> owned_value(const ops::RuntimeValue& value,
                                      const ops::AllocateTensor& allocate);

}  // namespace lmn::cpu
