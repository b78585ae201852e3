// SPDX-License-Identifier: Apache-2.0
//
// Rewriter: how a pass turns one graph into another. It walks the old nodes in order and, for each,
// copies it, leaves it out, or writes others in its place; operands are looked up under their old
// ids. All inputs are kept, and those constants that something reads.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace lmn::graph {

class Rewriter {
 public:
  explicit Rewriter(const Graph& from);  // `from` outlives the rewriter

  // The new value that stands for an old one, whose node was copied or replaced before. kNone stays
  // kNone.
  ValueId map(ValueId old);
  // From here on, `old` is `now` (a value of the new graph).
  void replace(ValueId old, ValueId now) { map_[static_cast<size_t>(old)] = now; }

  // The same node on the mapped operands.
  Status copy(const Node& node);
  // A new node on new operands; its first output.
  Result<ValueId> add(Op op, std::vector<ValueId> inputs, Attributes attributes, std::string name);
  // All outputs of one that has `outputs`.
  Result<std::vector<ValueId>> add_all(Op op, std::vector<ValueId> inputs, Attributes attributes,
                                       std::string name, int outputs);
  ValueId add_constant(Constant constant) { return to_.add_constant(std::move(constant)); }

  const Graph& to() const { return to_; }
  // The new graph, with the old outputs.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

}  // namespace lmn::graph
