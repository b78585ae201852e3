// SPDX-License-Identifier: Apache-2.0
//
// Geometry of poolings, for inference and for kernels.
#pragma once

#include "ops/infer/spatial.h"

namespace lmn::ops {

// kernel_shape and the other attributes of a pooling of input 0.
Status read_pool(const TensorNode& node, Windows* windows);
// The shape in which the indices of a MaxUnpool count.
Status read_unpooled(const TensorNode& node, Shape* shape);

}  // namespace lmn::ops
