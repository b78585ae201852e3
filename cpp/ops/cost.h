// SPDX-License-Identifier: Apache-2.0
//
// What an operator has to do at least, from its arguments: the numerator of every "GB/s" and
// "GOP/s". A property of the operator and not of a kernel, hence the same on every device.
//
// - bytes: each byte of its operands counted once, however often a kernel goes back to it: packed
//   weights (the rows looked up, for a table), rows of activations in and out, positions and other
//   indices, the keys and values attended to. Rows of one sequence share its keys and values.
//   Copies that workers make for themselves count as one.
// - operations: additions, subtractions, multiplications, divisions, and calls of functions such as
//   exp or cos, as written in the definition. A Linear has two for each weight and row; bias,
//   residual and silu, which are under a thousandth of it, count as none. Attention has four for
//   each element of a head, position attended to, and row: q K^T and the sum of V.
//
// Reads `positions` and `sequence_index` of attention, nothing else behind a pointer but the
// descriptions of matrices and caches.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "ops/op_args.h"

namespace lmn::ops {

struct Cost {
  int64_t bytes = 0;
  int64_t operations = 0;
};

#define LMN_OP(e, name, Args, text) Cost cost(const Args& args);
#include "ops/ops.def"
#undef LMN_OP

// The same, by operator; `args` points at its argument struct.
Cost cost(Op op, const void* args);

}  // namespace lmn::ops
