// SPDX-License-Identifier: Apache-2.0
//
// The kernels for x86-64 with AMX-TILE and AMX-INT8, on top of those of avx512.cc; compiled with
// those flags (cmake/cpu_isa.cmake), hence fenced: see isa.h.
#if defined(__x86_64__)
#include <immintrin.h>

#define LMN_ISA amx
#define LMN_TILES avx512
#define LMN_VEC "cpu/kernels/vec_avx512.h"
#define LMN_BYTE_DOT LMN_UNSIGNED_BYTES
#include "cpu/kernels/tile_kernels-inl.h"
#endif
