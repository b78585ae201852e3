// SPDX-License-Identifier: Apache-2.0
//
// Nodes of older operator sets in the meaning of the newest: attributes that became inputs,
// defaults that changed, operators that were renamed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "graph/graph.h"

namespace lmn::models {

// A node between the file and the graph.
struct ImportedNode {
  std::string op;                      // with the domain in front where it is not the default one
  std::vector<graph::ValueId> inputs;  // kNone: absent
  ops::Attributes attributes;
  size_t outputs = 1;
  std::string name;
};

// What upgrade() may add to the graph that is being built.
class NodeSink {
 public:
  virtual ~NodeSink() = default;
  virtual graph::ValueId constant(const std::string& name, const Tensor& tensor) = 0;
  virtual Result<graph::ValueId> add(const std::string& op, std::vector<graph::ValueId> inputs,
                                     ops::Attributes attributes, const std::string& name) = 0;
  virtual const graph::ValueType& type(graph::ValueId id) const = 0;
};

// Changes `node` to the newest meaning; it was of operator set `version` of its domain. Where one
// operator is not enough, adds others before it; *result is then the value that stands for the
// node's output, and the node itself is not added.
Status upgrade(int64_t version, ImportedNode* node, NodeSink& sink, graph::ValueId* result);

}  // namespace lmn::models
