// SPDX-License-Identifier: Apache-2.0
//
// A graph in two, for two devices: the first part runs, what crosses is carried over, the second
// runs. Split before the passes, which then work on each part for its device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace lmn::graph {

struct SplitGraph {
  Graph first, second;
  // Values of the first part that the second reads, by the names that they have as outputs of the
  // one and as inputs of the other: "cut.0" and so on.
  std::vector<std::string> crossing;
};

// Node `begin` and those behind it become the second part. Both parts keep all inputs but KV
// caches, which go where they are used; outputs of the graph have to come from the second part.
// UNSUPPORTED names a value that crosses and is no f32 tensor, an output of the first part, or a
// cache that both use.
Result<SplitGraph> split(const Graph& graph, NodeId begin);

// The first node whose name begins so; kNone: there is none.
NodeId find_node(const Graph& graph, std::string_view prefix);

}  // namespace lmn::graph
