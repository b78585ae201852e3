/* SPDX-License-Identifier: Apache-2.0
 *
 * Versions. The package version follows SemVer; the ABI version is a separate number (the soname):
 * it grows when a client must be recompiled, which appending functions and struct fields never
 * needs.
 */
#ifndef LMNATIVE_VERSION_H_
#define LMNATIVE_VERSION_H_

#include "lmnative/common.h"

LMN_BEGIN_C

/* ABI these headers describe. A client may compare it with lmn_abi_version(). */
#define LMN_ABI_VERSION 0

/* ABI version of the library in use. */
LMN_API uint32_t lmn_abi_version(void);
/* Package version, "MAJOR.MINOR.PATCH". Static storage. */
LMN_API const char *lmn_version(void);

typedef struct lmn_build_info {
  uint32_t struct_size;
  uint32_t abi_version;
  const char *version;     /* package version */
  const char *compiler;    /* "gcc 12.2.0" */
  const char *build_type;  /* "Release" */
  const char *backends;    /* devices compiled in, separated by commas: "cpu", "cpu,cuda" */
  const char *cpu_target;  /* kernels chosen on this machine: "avx2" */
  const char *cpu_targets; /* kernels this machine can run, separated by commas: "scalar,avx2" */
  uint32_t cpu_threads;    /* default thread count, from affinity and cgroup quota */
  uint32_t reserved;
} lmn_build_info;

/* Fills `info`; all strings are static. Fails when LMN_CPU_TARGET names an unknown or unavailable
 * target. */
LMN_API lmn_status lmn_build_info_get(lmn_build_info *info, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_VERSION_H_ */
