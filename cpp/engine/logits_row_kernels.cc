// SPDX-License-Identifier: Apache-2.0
//
// The regions of RowKernels, and the choice between them. LMN_CPU_TARGET, which belongs to the CPU
// device, does not act here: every table gives the same bits.
#include "engine/logits_row_kernels.h"

namespace lmn::engine {
namespace {

namespace baseline {  // SSE2, NEON
#define LMN_ROW_WIDTH 4
#include "engine/logits_row_kernels-inl.h"
#undef LMN_ROW_WIDTH
constexpr RowKernels kKernels{"baseline", scan, weigh, sums_above, mass_above, count_above, gather};
}  // namespace baseline

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace avx2 {
#define LMN_ROW_WIDTH 8
#include "engine/logits_row_kernels-inl.h"
#undef LMN_ROW_WIDTH
constexpr RowKernels kKernels{"avx2", scan, weigh, sums_above, mass_above, count_above, gather};
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
namespace avx512 {
#define LMN_ROW_WIDTH 16
#include "engine/logits_row_kernels-inl.h"
#undef LMN_ROW_WIDTH
constexpr RowKernels kKernels{"avx512", scan, weigh, sums_above, mass_above, count_above, gather};
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

}  // namespace

std::span<const RowKernels* const> all_row_kernels() {
#if defined(__x86_64__)
  static constexpr const RowKernels* kAll[] = {&avx512::kKernels, &avx2::kKernels,
                                               &baseline::kKernels};
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const bool avx512 =
      avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return std::span(kAll).subspan(avx512 ? 0 : avx2 ? 1 : 2);
#else
  static constexpr const RowKernels* kAll[] = {&baseline::kKernels};
  return kAll;
#endif
}

const RowKernels& row_kernels() { return *all_row_kernels().front(); }

}  // namespace lmn::engine
