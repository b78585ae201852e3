// SPDX-License-Identifier: Apache-2.0
//
// Where the members of a team have to wait for each other. A stage splits its output among the
// members in a way that only its kernel knows, so a later stage that touches the same bytes has to
// wait for all of them, with two exceptions: bytes that both only read, and copies that each worker
// writes and reads for itself.
//
// Waiting at stage b is needed if b conflicts with a stage since the last barrier. Placing each
// barrier as late as possible, right before the first stage that conflicts, gives the fewest
// barriers for stages in a given order.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "graph/graph.h"
#include "plan/layout.h"

namespace lmn::plan {

// Buffer that stands for ops::Worker::shared: kernels of two stages never use it side by side.
inline constexpr int kSharedMemory = std::numeric_limits<int>::min();

struct Access {
  // Index into Layout::buffers; -1 - layer for a layer of the KV cache; kSharedMemory.
  int buffer = 0;
  int64_t begin = 0, end = 0;  // columns
  bool write = false;
};

// What every stage reads and writes, besides constants and inputs, which nobody writes: values,
// caches, and for attention the shared memory of the workers. `kv_layer` is of every value: the
// layer whose cache it is, or -1.
std::vector<std::vector<Access>> find_accesses(const graph::Graph& graph, const Layout& layout,
                                               const std::vector<int>& kv_layer);

// For every stage, whether the team waits before it. own_copy, of every buffer: workers keep their
// own copies.
std::vector<bool> place_barriers(const Layout& layout,
                                 const std::vector<std::vector<Access>>& accesses,
                                 const std::vector<bool>& own_copy);

}  // namespace lmn::plan
