// SPDX-License-Identifier: Apache-2.0
//
// What the processor can do and the operating system has enabled (a register set that the system
// does not save on a context switch is as good as absent). What belongs to another architecture is
// false.
#pragma once

namespace lmn::cpu {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C
  bool avx512 = false;  // AVX-512 F, BW, DQ, VL and VNNI, on top of avx2
  bool amx = false;     // AMX tiles and products of bytes, on top of avx512

  bool neon = false;          // 64-bit ARM: always
  bool neon_dotprod = false;  // ARMv8.2 with dot products of bytes
  bool neon_i8mm = false;     // matrix products of bytes, on top of neon_dotprod
};

// Linux lets a process use tiles once it has asked: this asks, where the processor has them. What
// it changes is the size of the signal frames of threads that do use tiles.
CpuFeatures cpu_features();

}  // namespace lmn::cpu
