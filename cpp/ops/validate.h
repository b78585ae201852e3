// SPDX-License-Identifier: Apache-2.0
//
// The validating front of the operators: what the arguments of a kernel must satisfy. Called where
// a plan is built (with the largest `rows`) and by tests, never per token; kernels trust their
// arguments. What changes from step to step (ids, slots, positions) is checked where requests
// enter.
#pragma once

#include "core/status.h"
#include "ops/kernel.h"

namespace lmn::ops {

// Heads that attention kernels serve: a multiple of 8 up to 256. Attention refuses others as
// UNSUPPORTED.
inline constexpr int64_t kMaxHeadDim = 256;

#define LMN_OP(e, name, Args, text) Status validate(const Args& args);
#include "ops/ops.def"
#undef LMN_OP

// What every device's plan_pack refuses: no pieces, other ranks than 2, differing columns, unknown
// types, columns that are not whole blocks, an input type that does not suit the pieces,
// interleaving of anything but two equal pieces.
Status validate(const PackRequest& request);

// Whether a Linear can have a weight of this type with this many columns on any device.
Status validate_weight_type(DType weight, int64_t columns);

// The same, by operator; `args` points at its argument struct.
Status validate(Op op, const void* args);

}  // namespace lmn::ops
