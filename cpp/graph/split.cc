// SPDX-License-Identifier: Apache-2.0
#include "graph/split.h"

#include <utility>

namespace lmn::graph {
namespace {

// One part while it is made.
class Part {
 public:
  explicit Part(const Graph& from) : from_(from), map_(from.values.size(), kNone) {}

  bool knows(ValueId id) const { return map_[static_cast<size_t>(id)] != kNone; }
  ValueId at(ValueId id) const { return map_[static_cast<size_t>(id)]; }

  void add_input(ValueId id, std::string name) {
    map_[static_cast<size_t>(id)] = graph_.add_input(std::move(name), from_.value(id).type);
  }
  // Inputs and constants come along where they are first read.
  void add_leaf(ValueId id) {
    const Value& value = from_.value(id);
    if (knows(id)) return;
    if (value.constant == nullptr) return add_input(id, value.name);
    map_[static_cast<size_t>(id)] = static_cast<ValueId>(graph_.values.size());
    graph_.values.push_back(value);
  }
  Status add(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(id == kNone ? kNone : at(id));
    LMN_ASSIGN_OR_RETURN(const NodeId added,
                         graph_.add(node.op, std::move(inputs), node.attributes, node.name,
                                    static_cast<int>(node.outputs.size())));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      map_[static_cast<size_t>(node.outputs[i])] = graph_.node(added).outputs[i];
    return {};
  }
  Graph& graph() { return graph_; }

 private:
  const Graph& from_;
  Graph graph_;
  std::vector<ValueId> map_;
};

}  // namespace

NodeId find_node(const Graph& graph, std::string_view prefix) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].name.starts_with(prefix)) return static_cast<NodeId>(i);
  }
  return kNone;
}

Result<SplitGraph> split(const Graph& graph, NodeId begin) {
  SplitGraph out;
  Part parts[2] = {Part(graph), Part(graph)};
  for (const ValueId id : graph.inputs) {
    if (graph.value(id).type.kind == Kind::kKvCache) continue;
    for (Part& part : parts) part.add_leaf(id);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool behind = static_cast<NodeId>(n) >= begin;
    Part& part = parts[behind ? 1 : 0];
    for (const ValueId id : node.inputs) {
      if (id == kNone || part.knows(id)) continue;
      const Value& value = graph.value(id);
      if (value.producer == kNone) {
        if (value.type.kind == Kind::kKvCache && parts[behind ? 0 : 1].knows(id)) {
          return error(Code::kUnsupported, "cache '%s' is used on both sides of a split",
                       value.name.c_str());
        }
        part.add_leaf(id);
        continue;
      }
      if (value.type.kind != Kind::kTensor || value.type.dtype != DType::kF32) {
        return error(Code::kUnsupported, "'%s' reads a value of type %s across a split",
                     node.name.c_str(), value.type.to_string().c_str());
      }
      const std::string name = "cut." + std::to_string(out.crossing.size());
      parts[0].graph().add_output(parts[0].at(id), name);
      part.add_input(id, name);
      out.crossing.push_back(name);
    }
    LMN_RETURN_IF_ERROR(part.add(node));
  }
  for (const Output& output : graph.outputs) {
    if (!parts[1].knows(output.value)) {
      return error(Code::kUnsupported, "output '%s' is computed before the split",
                   output.name.c_str());
    }
    parts[1].graph().add_output(parts[1].at(output.value), output.name);
  }
  out.first = std::move(parts[0].graph());
  out.second = std::move(parts[1].graph());
  return out;
}

}  // namespace lmn::graph
