// SPDX-License-Identifier: Apache-2.0
//
// Which operands kernels read when they are bound, and not only when they run: lists of axes and
// sizes, numbers that tables are made of. Types of results that are known do not imply that these
// are: a sum over as many axes as there are has no axis, whichever they are.
#pragma once

#include "ops/tensor_op.h"

namespace lmn::ops {

// Whether the elements of all such operands are known, so that the node can be bound. If not, that
// has to wait until a run has computed them.
bool can_bind(const TensorNode& node);

}  // namespace lmn::ops
