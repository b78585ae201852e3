// SPDX-License-Identifier: Apache-2.0
//
// Dynamic batching: runs that differ in their first dimension only, as one run. It is right where
// row i of every output follows from row i of every input, which is_batchable() proves operator by
// operator; that a row's result does not depend on how many others there are, to the bit, is the
// kernels' promise (DESIGN section 7).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "graph/graph.h"
#include "ops/tensor_kernel.h"

namespace lmn::plan {

// All inputs and outputs are tensors whose first dimension is one symbol, which no operator mixes,
// reads or moves to another place. False where that is not certain.
bool is_batchable(const graph::Graph& graph);

// Whether the two sets of inputs may run as one: types, and shapes but for the first dimension.
bool may_join(std::span<const ops::RuntimeValue> a, std::span<const ops::RuntimeValue> b);

// Of each input, the rows of all runs. `runs` are inputs of one graph that may join.
Result<std::vector<ops::RuntimeValue>> join_rows(
    std::span<const std::span<const ops::RuntimeValue>> runs, const ops::AllocateTensor& allocate);

// Rows [first, first + count) of `from`, into `to` where it has data (the caller's buffer, whose
// type must be right: INVALID_ARGUMENT), else into a new tensor.
Status take_rows(const ops::RuntimeValue& from, int64_t first, int64_t count,
                 const ops::AllocateTensor& allocate, ops::RuntimeValue* to);

}  // namespace lmn::plan
