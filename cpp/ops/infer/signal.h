// SPDX-License-Identifier: Apache-2.0
//
// What inference and kernels of transforms share.
#pragma once

#include "ops/tensor_op.h"

namespace lmn::ops {

// Values that one transform takes: its tables are kept in memory.
inline constexpr int64_t kMaxTransform = int64_t{1} << 26;

// The axis of a DFT whose axis is known.
int64_t dft_axis(const TensorNode& node, int rank);

}  // namespace lmn::ops
