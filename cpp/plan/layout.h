// SPDX-License-Identifier: Apache-2.0
//
// Layout: where every value of a graph lives while the plan runs. A buffer holds one value, or
// several that follow each other in place or look at its columns. Constants and KV caches live
// elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "graph/graph.h"
#include "plan/arena.h"

namespace lmn::plan {

// The symbols that plans know, in the order of Bounds.
inline constexpr std::array<std::string_view, 4> kSymbols = {"tokens", "outputs", "sequences",
                                                             "pages"};
using Bounds = std::array<int64_t, kSymbols.size()>;

// Index into kSymbols; -1 for a name that is none.
int symbol_index(std::string_view name);

struct Buffer {
  DType dtype = DType::kF32;
  int symbol = -1;  // of the rows; -1: their number is constant
  int64_t max_rows = 0;
  int64_t columns = 0;  // elements from one row to the next
  // of one worker's copy where workers keep their own; 0: there is one for all
  int64_t copy_bytes = 0;
  Interval interval;
};

struct Place {
  int buffer = -1;      // none: a constant or a KV cache
  int64_t column = 0;   // first element of a row that belongs to the value
  int64_t columns = 0;  // elements of a row that belong to it
};

struct Layout {
  std::vector<graph::NodeId> stages;  // nodes that have a kernel, in order
  std::vector<Buffer> buffers;
  std::vector<Place> places;  // of every value
  std::vector<bool> fused;    // of every stage: the one before does its work
  int64_t arena_bytes = 0;
  int64_t input_bytes = 0;  // of the arena's front, where the inputs are, small ones first

  const Place& place(graph::ValueId id) const { return places[static_cast<size_t>(id)]; }
  const Buffer& buffer_of(graph::ValueId id) const {
    return buffers[static_cast<size_t>(place(id).buffer)];
  }
};

// UNSUPPORTED names a value that is read after an operator has changed it in place, or a symbol
// that plans do not know.
// `fuse_quantize`: a Quantize right behind the Linear or PagedAttention whose result it
// reads is done there.
Result<Layout> make_layout(const graph::Graph& graph, const Bounds& bounds, int workers,
                           bool fuse_quantize = false);

// For every stage, what it reads and writes, for people: "b3[0:576]@4096, kv.2 -> b5@81920". A
// buffer is named by its number; after @ is its offset in the arena.
std::vector<std::string> describe_operands(const graph::Graph& graph, const Layout& layout,
                                           const std::vector<int>& kv_layer);

}  // namespace lmn::plan
