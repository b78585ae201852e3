// SPDX-License-Identifier: Apache-2.0
//
// The kernels in plain C++: every machine has these.
#include "core/float16.h"

#define LMN_ISA scalar
#define LMN_VEC "cpu/kernels/vec_scalar.h"
#define LMN_BYTE_DOT LMN_NO_BYTES
#define LMN_NO_UNROLL
#include "cpu/kernels/kernels-inl.h"
