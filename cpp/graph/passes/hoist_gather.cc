// SPDX-License-Identifier: Apache-2.0
//
// A choice of rows made after row-wise operators is made before them:
// gather_rows(linear(rms_norm(x)), i) becomes linear(rms_norm(gather_rows(x, i))). Of a prompt's
// last layer, everything behind the attention is computed only where somebody asked for logits.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"
#include "graph/schema.h"

namespace lmn::graph {
namespace {

bool has_rows(const ValueType& type) {
  return type.kind == Kind::kTensor && type.dtype == DType::kF32 && type.dims.size() == 2;
}

// Whether rows may be chosen on the operands of `node` instead of on its result.
bool commutes_with_gather(const Graph& graph, const Node& node) {
  if (is_tensor_op(node.op) || !schema(node.op).row_wise || node.outputs.size() != 1) return false;
  const ValueType& y = graph.value(node.outputs[0]).type;
  if (!has_rows(y)) return false;
  bool any = false;
  for (const ValueId id : node.inputs) {
    if (id == kNone || graph.value(id).constant != nullptr) continue;
    const ValueType& x = graph.value(id).type;
    if (!has_rows(x) || x.dims[0] != y.dims[0]) return false;
    any = true;
  }
  return any;
}

constexpr NodeId kStays = -1;

// For every node the gather that it moves behind, or kStays: all that reads its result moves behind
// the same, or is it.
std::vector<NodeId> moves_behind(const Graph& graph) {
  const Uses uses(graph);
  std::vector<NodeId> gathers(graph.nodes.size(), kStays);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (!commutes_with_gather(graph, node) || uses.is_output(node.outputs[0])) continue;
    NodeId common = kStays;
    for (const NodeId user : uses.of(node.outputs[0])) {
      const bool chooses = graph.node(user).op == Op::kGatherRows;
      const NodeId gather = chooses ? user : gathers[static_cast<size_t>(user)];
      if (gather == kStays || (common != kStays && gather != common)) {
        common = kStays;
        break;
      }
      common = gather;
    }
    gathers[n] = common;
  }
  return gathers;
}

// Writes what moves behind one gather.
class ChosenRows {
 public:
  ChosenRows(const Graph& graph, const Node& gather, Rewriter* rewriter)
      : graph_(graph), gather_(gather), rewriter_(*rewriter), chosen_(graph.values.size(), kNone) {}

  // The chosen rows of `id`, which was moved before or stays whole.
  Result<ValueId> of(ValueId id) {
    ValueId& rows = chosen_[static_cast<size_t>(id)];
    if (rows == kNone) {
      LMN_ASSIGN_OR_RETURN(
          rows,
          rewriter_.add(Op::kGatherRows, {rewriter_.map(id), rewriter_.map(gather_.inputs[1])}, {},
                        gather_.name));
    }
    return rows;
  }

  Status move(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      const bool whole = id == kNone || graph_.value(id).constant != nullptr;
      LMN_ASSIGN_OR_RETURN(const ValueId input,
                           whole ? Result<ValueId>(rewriter_.map(id)) : of(id));
      inputs.push_back(input);
    }
    LMN_ASSIGN_OR_RETURN(chosen_[static_cast<size_t>(node.outputs[0])],
                         rewriter_.add(node.op, std::move(inputs), node.attributes, node.name));
    return {};
  }

 private:
  const Graph& graph_;
  const Node& gather_;
  Rewriter& rewriter_;
  std::vector<ValueId> chosen_;  // by old value; kNone: not yet
};

}  // namespace

Result<Graph> hoist_gather(const Graph& graph, const PassOptions&) {
  const std::vector<NodeId> gathers = moves_behind(graph);
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (gathers[n] != kStays) continue;
    if (node.op != Op::kGatherRows) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    ChosenRows chosen(graph, node, &rewriter);
    for (size_t moved = 0; moved < n; ++moved) {
      if (gathers[moved] == static_cast<NodeId>(n))
        LMN_RETURN_IF_ERROR(chosen.move(graph.nodes[moved]));
    }
    LMN_ASSIGN_OR_RETURN(const ValueId rows, chosen.of(node.inputs[0]));
    rewriter.replace(node.outputs[0], rows);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
