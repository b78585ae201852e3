// SPDX-License-Identifier: Apache-2.0
//
// Tests run the kernels of amx.cc with emulated tiles, on a machine with AVX-512: in builds with
// tests only, and fenced like avx512.cc.
#if defined(__x86_64__) && defined(LMN_EMULATED_TARGETS)
#include <immintrin.h>

#define LMN_ISA amx_emulated
#define LMN_TILES avx512
#define LMN_VEC "cpu/kernels/vec_avx512.h"
#define LMN_BYTE_DOT LMN_UNSIGNED_BYTES
#define LMN_EMULATE_TILES
#include "cpu/kernels/tile_kernels-inl.h"
#endif
