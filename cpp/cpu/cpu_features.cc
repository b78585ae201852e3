// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lmn::cpu {

#if defined(__x86_64__) || defined(__i386__)
namespace {

bool bit(uint32_t value, int index) { return (value >> index) & 1u; }

// XCR0: which register sets the operating system saves. Only readable when cpuid says OSXSAVE.
uint64_t saved_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Whether the operating system lets this process use the data of tiles.
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures features;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const bool osxsave = bit(c, 27), fma = bit(c, 12), f16c = bit(c, 29), avx = bit(c, 28);
  if (!osxsave || !avx) return features;
  const uint64_t saved = saved_state();
  constexpr uint64_t kYmm = 0x6, kZmm = 0xE6;  // XMM and YMM; with opmask, upper ZMM and ZMM16-31
  constexpr uint64_t kTiles = 0x60000;         // configuration and data
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  features.avx2 = bit(b, 5) && fma && f16c && (saved & kYmm) == kYmm;
  const bool avx512 =
      bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31) && bit(c, 11);  // F DQ BW VL, VNNI
  features.avx512 = features.avx2 && avx512 && (saved & kZmm) == kZmm;
  const bool amx = bit(d, 24) && bit(d, 25);  // AMX-TILE, AMX-INT8
  features.amx = features.avx512 && amx && (saved & kTiles) == kTiles && may_use_tiles();
  return features;
}
#elif defined(__aarch64__)
#ifndef HWCAP2_I8MM  // newer than some systems' headers
#define HWCAP2_I8MM (1 << 13)
#endif

CpuFeatures cpu_features() {
  CpuFeatures features;
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  features.neon = (first & HWCAP_ASIMD) != 0;
  // -march=armv8.2-a lets the compiler use these too.
  constexpr unsigned long kArm82 = HWCAP_ATOMICS | HWCAP_CRC32 | HWCAP_ASIMDRDM;
  features.neon_dotprod =
      features.neon && (first & kArm82) == kArm82 && (first & HWCAP_ASIMDDP) != 0;
  features.neon_i8mm = features.neon_dotprod && (second & HWCAP2_I8MM) != 0;
  return features;
}
#else
CpuFeatures cpu_features() { return {}; }
#endif

}  // namespace lmn::cpu
