// SPDX-License-Identifier: Apache-2.0
//
// The functions of vector_math-inl.h as the baseline compiles them. Instruction sets compile the
// same functions for themselves (cpu/kernels/chain-inl.h) and get the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/tensor/vector_loop.h"

namespace lmn::cpu::vector_math {

#include "cpu/tensor/vector_math-inl.h"

}  // namespace lmn::cpu::vector_math
