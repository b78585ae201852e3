// SPDX-License-Identifier: Apache-2.0
//
// What the processor can do and the operating system has enabled (a register set that the system
// does not save on a context switch is as good as absent). Everything is false on machines that are
// not x86.
#pragma once

namespace lmn::cpu {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C
  bool avx512 = false;  // AVX-512 F, BW, DQ, VL and VNNI, on top of avx2
};

CpuFeatures cpu_features();

}  // namespace lmn::cpu
