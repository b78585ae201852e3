// SPDX-License-Identifier: Apache-2.0
//
// Tests run the kernels for tiles with emulated ones of half the width and no instruction set at
// all, on every machine: in builds with tests only.
#if defined(LMN_EMULATED_TARGETS)
#include "core/float16.h"

#define LMN_ISA scalar_tiles
#define LMN_TILES scalar
#define LMN_VEC "cpu/kernels/vec_scalar.h"
#define LMN_BYTE_DOT LMN_NO_BYTES
#define LMN_NO_UNROLL
#define LMN_EMULATE_TILES
#include "cpu/kernels/tile_kernels-inl.h"
#endif
