// SPDX-License-Identifier: Apache-2.0
//
// Macros of the kernel files, and nothing else (the fence: see isa.h). LMN_NO_UNROLL, defined
// before: arrays are not meant to become registers.
#pragma once

#define LMN_NO_BYTES 0
#define LMN_SHORT_BYTES 1
#define LMN_UNSIGNED_BYTES 2
#define LMN_SIGNED_BYTES 3
#define LMN_INLINE inline __attribute__((always_inline))
#define LMN_NOINLINE __attribute__((noinline))
#if defined(LMN_NO_UNROLL)
#define LMN_UNROLL
#elif defined(__clang__)
#define LMN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LMN_UNROLL _Pragma("GCC unroll 32")
#endif
