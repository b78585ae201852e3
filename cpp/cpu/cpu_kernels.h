// SPDX-License-Identifier: Apache-2.0
//
// The kernel tables of the CPU, one per instruction set: operators as plans call them, on top of
// what an instruction set's file exports (kernels/isa.h). Here work is split among workers and
// packed matrices are laid out; compiled for the baseline, like everything else.
#pragma once

#include "ops/kernel.h"

namespace lmn::cpu {

const ops::KernelTable& scalar_table();
#if defined(__x86_64__)
const ops::KernelTable& avx2_table();
const ops::KernelTable& avx512_table();
const ops::KernelTable& amx_table();
#elif defined(__aarch64__)
const ops::KernelTable& neon_table();
const ops::KernelTable& neon_dotprod_table();
const ops::KernelTable& neon_i8mm_table();
#endif
#if defined(LMN_EMULATED_TARGETS)
const ops::KernelTable& scalar_tiles_table();
#if defined(__x86_64__)
const ops::KernelTable& amx_emulated_table();
#endif
#endif

}  // namespace lmn::cpu
