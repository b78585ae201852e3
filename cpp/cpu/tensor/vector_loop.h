// SPDX-License-Identifier: Apache-2.0
//
// A macro and nothing else (the fence: cpu/kernels/isa.h).
#pragma once

// Before a loop whose outputs may be its inputs, element for element, and alias nothing else.
#if defined(__clang__)
#define LMN_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LMN_VECTOR_LOOP _Pragma("GCC ivdep")
#endif
