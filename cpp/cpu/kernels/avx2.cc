// SPDX-License-Identifier: Apache-2.0
//
// The kernels for x86-64 with AVX2, FMA and F16C; compiled with those flags (cmake/cpu_isa.cmake),
// hence fenced: see isa.h.
#if defined(__x86_64__)
#include <immintrin.h>

#define LMN_ISA avx2
#define LMN_VEC "cpu/kernels/vec_avx2.h"
#define LMN_ROW_VEC "cpu/kernels/row_avx2-inl.h"
#define LMN_BYTE_DOT LMN_SHORT_BYTES
#include "cpu/kernels/kernels-inl.h"
#endif
