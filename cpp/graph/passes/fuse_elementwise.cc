// SPDX-License-Identifier: Apache-2.0
//
// Operators of elements on float32 that read each other become one lmnative.ElementwiseChain: all
// that leads to one result, of the result's shape, and that nobody else reads. Every element is
// computed by the same functions in the same order: the same bits.
#include <cmath>
#include <map>
#include <queue>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"
#include "ops/infer/elementwise_chain.h"

namespace lmn::graph {
namespace {

using ops::ChainOp;
using ops::ChainStep;

// Values of one class have one shape, whatever the sizes that are not known turn out to be.
using ShapeClass = int32_t;

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(const Graph& graph) : graph_(graph), uses_(graph) {}

  Result<Graph> run() {
    const size_t count = graph_.nodes.size();
    steps_.resize(count);
    for (size_t n = 0; n < count; ++n) steps_[n] = steps_of(graph_.nodes[n]);
    classify();
    std::vector<bool> taken(count, false);
    std::vector<std::vector<NodeId>> chains(count);  // by the last node, which is in it
    for (size_t n = count; n-- > 0;) {
      if (taken[n] || steps_[n].empty()) continue;
      std::vector<NodeId> chain = grow(static_cast<NodeId>(n));
      if (chain.size() < 2) continue;
      for (NodeId id : chain) taken[static_cast<size_t>(id)] = true;
      chains[n] = std::move(chain);
    }
    Rewriter rewriter(graph_);
    for (size_t n = 0; n < count; ++n) {
      if (!chains[n].empty()) {
        LMN_RETURN_IF_ERROR(write(chains[n], &rewriter));
      } else if (!taken[n]) {
        LMN_RETURN_IF_ERROR(rewriter.copy(graph_.nodes[n]));
      }
    }
    return rewriter.finish();
  }

 private:
  const ValueType& type(ValueId id) const { return graph_.value(id).type; }
  bool is_float(ValueId id) const {
    return id != kNone && type(id).kind == Kind::kTensor && type(id).dtype == DType::kF32 &&
           type(id).ranked;
  }

  // What a node computes; operands count the node's inputs, and its own steps. Empty: it is no part
  // of a chain.
  std::vector<ChainStep> steps_of(const Node& node) const {
    if (!is_tensor_op(node.op) || node.outputs.size() != 1 || !is_float(node.outputs[0])) return {};
    const std::string_view op = name(node.op);
    const auto number = [&](const char* key, float fallback) {
      return node.attributes.get_or<float>(key, fallback);
    };
    const auto one = [&](ChainOp chain_op, float alpha = 0, float beta = 0) {
      return std::vector<ChainStep>{{chain_op, {{true, 0}, {true, 0}}, {alpha, beta}}};
    };
    if (op == "Clip") return clip_of(node);
    if (op == "Pow") return power_of(node);
    for (ValueId id : node.inputs) {
      if (!is_float(id)) return {};
    }
    if (op == "Gelu" || op == "com.microsoft.Gelu") {
      const auto* form = node.attributes.find_as<std::string>("approximate");
      return one(form != nullptr && *form == "tanh" ? ChainOp::kGeluTanh : ChainOp::kGelu);
    }
    if (op == "com.microsoft.QuickGelu") return one(ChainOp::kSwish, number("alpha", 1.702f));
    if (op == "Swish") return one(ChainOp::kSwish, number("alpha", 1.0f));
    if (op == "Elu") return one(ChainOp::kElu, number("alpha", 1.0f));
    if (op == "LeakyRelu") return one(ChainOp::kLeakyRelu, number("alpha", 0.01f));
    if (op == "HardSigmoid")
      return one(ChainOp::kHardSigmoid, number("alpha", 0.2f), number("beta", 0.5f));
    // The others have no numbers, and the names of their steps.
    for (int e = 0; e <= static_cast<int>(ChainOp::kTanh); ++e) {
      const auto& step = ops::info(static_cast<ChainOp>(e));
      if (step.name != op || step.numbers != 0) continue;
      std::vector<ChainStep> steps = one(static_cast<ChainOp>(e));
      if (node.inputs.size() != static_cast<size_t>(step.operands)) return {};
      steps[0].operands[1].index = step.operands - 1;
      return steps;
    }
    return {};
  }
  std::vector<ChainStep> clip_of(const Node& node) const {
    float limits[2] = {-HUGE_VALF, HUGE_VALF};
    for (size_t i : {1, 2}) {
      if (node.input(i) == kNone) continue;
      const std::optional<double> limit = number_of(graph_, node.inputs[i]);
      if (!limit) return {};
      limits[i - 1] = static_cast<float>(*limit);
    }
    return {{ChainOp::kClip, {{true, 0}, {true, 0}}, {limits[0], limits[1]}}};
  }
  // Squares and cubes are products to the operator as well.
  std::vector<ChainStep> power_of(const Node& node) const {
    const bool is_cube = is_number(graph_, node.inputs[1], 3);
    if (!is_float(node.inputs[1]) || (!is_cube && !is_number(graph_, node.inputs[1], 2))) return {};
    std::vector<ChainStep> steps{{ChainOp::kMul, {{true, 0}, {true, 0}}, {0, 0}}};
    if (is_cube) steps.push_back({ChainOp::kMul, {{false, 0}, {true, 0}}, {0, 0}});
    return steps;
  }

  // Shapes as far as they follow from each other.
  void classify() {
    classes_.resize(graph_.values.size());
    std::map<std::string, ShapeClass> known;
    const auto own = [&](size_t id) {
      const ValueType& t = graph_.values[id].type;
      bool named = t.kind == Kind::kTensor && t.ranked;
      for (const Dim& dim : t.dims) named &= dim.is_constant() || dim.symbol != "?";
      const auto fresh = static_cast<ShapeClass>(id);
      if (!named) return fresh;
      ValueType shape = t;
      shape.dtype = DType::kF32;
      return known.emplace(shape.to_string(), fresh).first->second;
    };
    for (size_t id = 0; id < classes_.size(); ++id) classes_[id] = own(id);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (steps_[n].empty()) continue;
      for (ValueId id : node.inputs) {
        if (id == kNone || !absorbs(id, node)) continue;
        classes_[static_cast<size_t>(node.outputs[0])] = classes_[static_cast<size_t>(id)];
        break;
      }
    }
  }
  // Whether all operands repeat to the shape of `id`.
  bool absorbs(ValueId id, const Node& node) const {
    const Dims& mine = type(id).dims;
    for (ValueId other : node.inputs) {
      if (other == kNone || class_of(other) == class_of(id)) continue;
      const Dims& theirs = type(other).dims;
      if (theirs.size() > mine.size()) return false;
      for (size_t i = 0; i < theirs.size(); ++i) {
        const Dim &a = theirs[i], &b = mine[i + mine.size() - theirs.size()];
        if (a != Dim(1) && (a != b || a.symbol == "?")) return false;
      }
    }
    return true;
  }
  ShapeClass class_of(ValueId id) const { return classes_[static_cast<size_t>(id)]; }

  // All nodes that end in `last`, in order.
  std::vector<NodeId> grow(NodeId last) const {
    const ShapeClass shape = class_of(graph_.node(last).outputs[0]);
    std::vector<NodeId> chain;
    std::priority_queue<NodeId> open;  // the latest first: by then its readers are decided
    std::vector<NodeId> seen{last};
    open.push(last);
    size_t steps = 0;
    while (!open.empty()) {
      const NodeId id = open.top();
      open.pop();
      const Node& node = graph_.node(id);
      const auto& own = steps_[static_cast<size_t>(id)];
      const auto is_in = [&](NodeId reader) {
        return std::find(chain.begin(), chain.end(), reader) != chain.end();
      };
      const auto readers = uses_.of(node.outputs[0]);
      const bool fits =
          id == last || (class_of(node.outputs[0]) == shape && !uses_.is_output(node.outputs[0]) &&
                         std::all_of(readers.begin(), readers.end(), is_in));
      if (!fits || steps + own.size() > ops::kMaxChainSteps) continue;
      steps += own.size();
      chain.push_back(id);
      for (ValueId input : node.inputs) {
        const NodeId from = input == kNone ? kNone : graph_.value(input).producer;
        if (from == kNone || steps_[static_cast<size_t>(from)].empty() ||
            std::find(seen.begin(), seen.end(), from) != seen.end())
          continue;
        seen.push_back(from);
        open.push(from);
      }
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  Status write(const std::vector<NodeId>& chain, Rewriter* rewriter) const {
    std::vector<ValueId> inputs;
    std::map<ValueId, ops::ChainOperand> places;  // of what the chain has read or computed
    ops::Strings texts;
    const auto place = [&](ValueId id) {
      const auto [found, is_new] =
          places.emplace(id, ops::ChainOperand{true, static_cast<int32_t>(inputs.size())});
      if (is_new) inputs.push_back(rewriter->map(id));
      return found->second;
    };
    for (NodeId id : chain) {
      const Node& node = graph_.node(id);
      const auto first = static_cast<int32_t>(texts.size());
      for (ChainStep step : steps_[static_cast<size_t>(id)]) {
        for (int i = 0; i < ops::info(step.op).operands; ++i) {
          ops::ChainOperand& operand = step.operands[i];
          if (operand.is_input) {
            operand = place(node.inputs[static_cast<size_t>(operand.index)]);
          } else {
            operand.index += first;
          }
        }
        texts.push_back(ops::to_text(step));
      }
      places[node.outputs[0]] = {false, static_cast<int32_t>(texts.size()) - 1};
    }
    Attributes attributes;
    attributes.set("steps", std::move(texts));
    const Node& last = graph_.node(chain.back());
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter->add(Op::kElementwiseChain, std::move(inputs),
                                                        attributes, last.name));
    rewriter->replace(last.outputs[0], y);
    return {};
  }

  const Graph& graph_;
  const Uses uses_;
  std::vector<std::vector<ChainStep>> steps_;  // of every node
  std::vector<ShapeClass> classes_;            // of every value
};

}  // namespace

Result<Graph> fuse_elementwise(const Graph& graph, const PassOptions&) {
  return ElementwiseFuser(graph).run();
}

}  // namespace lmn::graph
