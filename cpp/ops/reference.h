// SPDX-License-Identifier: Apache-2.0
//
// Reference kernels: every operator of ops.def written as its definition reads, in one thread's
// scalar code, summing in double. Other devices are tested against them (tests/conformance). They
// know no instruction set and no fast layout: a packed matrix of theirs is float32 rows.
#pragma once

#include "ops/kernel.h"

namespace lmn::ops {

const KernelTable& reference_kernels();

}  // namespace lmn::ops
