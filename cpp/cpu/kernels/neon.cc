// SPDX-License-Identifier: Apache-2.0
//
// The kernels for 64-bit ARM (ARMv8.0: every such machine has them); fenced: see isa.h.
#if defined(__aarch64__)
#include <arm_neon.h>

#define LMN_ISA neon
#define LMN_VEC "cpu/kernels/vec_neon.h"
#define LMN_BYTE_DOT LMN_NO_BYTES
#include "cpu/kernels/kernels-inl.h"
#endif
