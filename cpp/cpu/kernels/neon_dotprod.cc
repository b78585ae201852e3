// SPDX-License-Identifier: Apache-2.0
//
// The kernels for 64-bit ARM with dotprod; compiled with that flag (cmake/cpu_isa.cmake), hence
// fenced: see isa.h.
#if defined(__aarch64__)
#include <arm_neon.h>

#define LMN_ISA neon_dotprod
#define LMN_VEC "cpu/kernels/vec_neon.h"
#define LMN_BYTE_DOT LMN_SIGNED_BYTES
#include "cpu/kernels/kernels-inl.h"
#endif
