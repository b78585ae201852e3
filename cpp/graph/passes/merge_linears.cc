// SPDX-License-Identifier: Apache-2.0
//
// Linears that read the same x become one over the pieces of all their weights: q, k and v are one
// product, x is read once, and one barrier follows instead of three. Each old result is a column
// view of the new one, so every reader must take a row stride. Weights may differ in file type (k
// and v often are finer than q) as long as one input type suits them all.
#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"
#include "graph/schema.h"

namespace lmn::graph {
namespace {

// Whether every reader of `id`, and of what is done to it in place, takes a view.
bool readers_take_views(const Graph& graph, const Uses& uses, ValueId id) {
  if (uses.is_output(id)) return false;
  for (NodeId reader : uses.of(id)) {
    const Node& node = graph.node(reader);
    if (is_tensor_op(node.op)) return false;
    const Schema& spec = schema(node.op);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == id && !spec.operands[i].strided) return false;
    }
    const bool still_a_view = node.op == Op::kColumns || (spec.in_place && node.inputs[0] == id);
    if (still_a_view && !readers_take_views(graph, uses, node.outputs[0])) return false;
  }
  return true;
}

struct Candidate {
  const Node* node;
  DType input_type;
};

bool mergeable(const Candidate& a, const Candidate& b) {
  return a.node->inputs[0] == b.node->inputs[0] && is_precise(*a.node) == is_precise(*b.node) &&
         (a.node->input(2) == kNone) == (b.node->input(2) == kNone) &&
         common_input_type(a.input_type, b.input_type).has_value();
}

// All Linears that may be merged, in groups of two or more, each in the order of the graph.
Result<std::vector<std::vector<Candidate>>> find_groups(const Graph& graph,
                                                        const PassOptions& options) {
  const Uses uses(graph);
  std::vector<std::vector<Candidate>> groups;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_plain_linear(graph, node) || !readers_take_views(graph, uses, node.outputs[0]))
      continue;
    LMN_ASSIGN_OR_RETURN(const std::optional<DType> input_type,
                         linear_input_type(graph, node, options));
    if (!input_type) continue;
    const Candidate candidate{&node, *input_type};
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& g) { return mergeable(g.front(), candidate); });
    if (group == groups.end()) {
      groups.push_back({candidate});
    } else {
      group->push_back(candidate);
    }
  }
  std::erase_if(groups, [](const auto& group) { return group.size() < 2; });
  return groups;
}

// The names of the parts, joined: "blk.0.attn_q" and "blk.0.attn_k" -> "blk.0.attn_q+k" is for
// people only.
std::string joined_name(const std::vector<Candidate>& group) {
  std::string out = group.front().node->name;
  for (size_t i = 1; i < group.size(); ++i) {
    const std::string& name = group[i].node->name;
    const size_t word = name.find_last_of("._");
    out += "+" + (word == std::string::npos ? name : name.substr(word + 1));
  }
  return out;
}

Status emit(const Graph& graph, const std::vector<Candidate>& group, Rewriter* rewriter) {
  const Node& first = *group.front().node;
  Constant weight, bias;
  for (const Candidate& c : group) {
    const std::vector<Piece>& pieces = graph.value(c.node->inputs[1]).constant->pieces;
    weight.pieces.insert(weight.pieces.end(), pieces.begin(), pieces.end());
    if (c.node->input(2) == kNone) continue;
    const std::vector<Piece>& vectors = graph.value(c.node->inputs[2]).constant->pieces;
    bias.pieces.insert(bias.pieces.end(), vectors.begin(), vectors.end());
  }
  std::vector<ValueId> inputs{rewriter->map(first.inputs[0]),
                              rewriter->add_constant(std::move(weight))};
  if (!bias.pieces.empty()) inputs.push_back(rewriter->add_constant(std::move(bias)));
  LMN_ASSIGN_OR_RETURN(const ValueId all, rewriter->add(Op::kLinear, std::move(inputs),
                                                        first.attributes, joined_name(group)));
  int64_t begin = 0;
  for (const Candidate& c : group) {
    const int64_t count = graph.value(c.node->outputs[0]).type.dims[1].size;
    LMN_ASSIGN_OR_RETURN(
        const ValueId view,
        rewriter->add(Op::kColumns, {all}, {{"begin", begin}, {"count", count}}, c.node->name));
    rewriter->replace(c.node->outputs[0], view);
    begin += count;
  }
  return {};
}

}  // namespace

Result<Graph> merge_linears(const Graph& graph, const PassOptions& options) {
  LMN_ASSIGN_OR_RETURN(const auto groups, find_groups(graph, options));
  std::vector<const std::vector<Candidate>*> starts(graph.nodes.size(), nullptr);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (const auto& group : groups) {
    for (const Candidate& c : group) gone[static_cast<size_t>(c.node - graph.nodes.data())] = true;
    starts[static_cast<size_t>(group.front().node - graph.nodes.data())] = &group;
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (starts[n] != nullptr) {
      LMN_RETURN_IF_ERROR(emit(graph, *starts[n], &rewriter));
    } else if (!gone[n]) {
      LMN_RETURN_IF_ERROR(rewriter.copy(graph.nodes[n]));
    }
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
