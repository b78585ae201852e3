// SPDX-License-Identifier: Apache-2.0
//
// TypeTranslator: types of values, whose unknown sizes have names, to and from those of ops::infer,
// where they are negative numbers. One translator serves one node: equal names are equal numbers.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/tensor_op.h"

namespace lmn::graph {

class TypeTranslator {
 public:
  ops::TensorType to_ops(const ValueType& type);
  ValueType to_graph(const ops::TensorType& type) const;
  // A message of ops::infer, with names where it has numbers for them in shapes: "[-2, 16]".
  Status named(Status status) const;

 private:
  std::vector<std::string> symbols_;  // number kUnknownSize - 1 - i
};

}  // namespace lmn::graph
