// SPDX-License-Identifier: Apache-2.0
//
// Attention as exporters write it: two MatMuls of tensors of four axes with a Softmax over the last
// axis between them, factors and a mask before it, Transposes around it. float32 only.
#include <array>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

using AttentionAxes = std::array<size_t, 4>;

struct AttentionMatch {
  ValueId q, k, v, mask = kNone;
  AttentionAxes q_axes{0, 1, 2, 3}, k_axes{0, 1, 3, 2}, v_axes{0, 1, 2, 3}, y_axes{0, 1, 2, 3};
  double scale = 1;
  std::vector<ValueId> factors;  // numbers that are known only when the graph runs; two at most
  NodeId last;                   // whose output is the result
};

class AttentionFuser {
 public:
  explicit AttentionFuser(const Graph& graph) : graph_(graph), uses_(graph) {}

  Result<Graph> run() {
    std::vector<std::optional<AttentionMatch>> at(graph_.nodes.size());  // by the last node
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      std::optional<AttentionMatch> match = find(static_cast<NodeId>(n));
      if (match) at[static_cast<size_t>(match->last)] = std::move(match);
    }
    return with_matches(graph_, at, write);
  }

 private:
  static Status write(const AttentionMatch& m, const Node& last, Rewriter* rewriter) {
    Attributes attributes;
    attributes.set("scale", static_cast<float>(m.scale));
    const auto set_axes = [&](const char* key, const AttentionAxes& axes) {
      if (axes != AttentionAxes{0, 1, 2, 3})
        attributes.set(key, ops::Ints(axes.begin(), axes.end()));
    };
    set_axes("q_perm", m.q_axes);
    set_axes("k_perm", m.k_axes);
    set_axes("v_perm", m.v_axes);
    set_axes("y_perm", m.y_axes);
    std::vector<ValueId> inputs{m.q, m.k, m.v};
    if (m.mask != kNone || !m.factors.empty()) inputs.push_back(m.mask);
    inputs.insert(inputs.end(), m.factors.begin(), m.factors.end());
    for (ValueId& id : inputs) id = rewriter->map(id);
    LMN_ASSIGN_OR_RETURN(const ValueId y, rewriter->add(Op::kDotAttention, std::move(inputs),
                                                        attributes, last.name));
    rewriter->replace(last.outputs[0], y);
    return {};
  }

  bool is_float(ValueId id, size_t most_axes) const {
    const ValueType& type = graph_.value(id).type;
    return type.kind == Kind::kTensor && type.dtype == DType::kF32 && type.ranked &&
           type.dims.size() <= most_axes;
  }
  bool is_matrix_stack(ValueId id) const {
    return is_float(id, 4) && graph_.value(id).type.dims.size() == 4;
  }
  // One number, of no more axes than 4.
  bool is_number(ValueId id) const {
    if (!is_float(id, 4)) return false;
    for (const Dim& dim : graph_.value(id).type.dims) {
      if (dim != Dim(1)) return false;
    }
    return true;
  }

  // x * number or x / constant -> x; kNone where `id` is nothing of that kind, or is read
  // elsewhere.
  ValueId without_factor(ValueId id, AttentionMatch* m) const {
    const Node* node = graph_.producer(id);
    if (node == nullptr || !uses_.only_one(id)) return kNone;
    const bool divides = node->op == Op::kDiv;
    if (node->op != Op::kMul && !divides) return kNone;
    for (size_t i : {1, 0}) {
      const ValueId number = node->inputs[i], x = node->inputs[1 - i];
      if (!is_number(number) || !is_matrix_stack(x)) continue;
      const TensorView* known = constant_of(graph_, number);
      if (known != nullptr && (!divides || i == 1)) {
        const double value = static_cast<double>(*known->as<float>());
        m->scale = divides ? m->scale / value : m->scale * value;
        return x;
      }
      if (known == nullptr && !divides && m->factors.size() < 2) {
        m->factors.push_back(number);
        return x;
      }
    }
    return kNone;
  }

  // Through Transposes, and factors where there may be some, to where the elements lie.
  ValueId source(ValueId id, bool factors, AttentionAxes* axes, AttentionMatch* m) const {
    for (;;) {
      const Node* node = graph_.producer(id);
      if (node != nullptr && node->op == Op::kTranspose && is_matrix_stack(id)) {
        const auto* perm = node->attributes.find_as<ops::Ints>("perm");
        const ops::Ints reversed{3, 2, 1, 0};
        for (size_t& axis : *axes)
          axis = static_cast<size_t>((perm == nullptr ? reversed : *perm)[axis]);
        id = node->inputs[0];
        continue;
      }
      const ValueId x = factors ? without_factor(id, m) : kNone;
      if (x == kNone) return id;
      id = x;
    }
  }

  // The product of queries and keys behind what a Softmax reads.
  const Node* scores(ValueId id, AttentionMatch* m) const {
    const Node* node = graph_.producer(id);
    if (node == nullptr || !uses_.only_one(id)) return nullptr;
    if (node->op == Op::kMatMul) {
      return is_matrix_stack(node->inputs[0]) && is_matrix_stack(node->inputs[1]) ? node : nullptr;
    }
    const ValueId x = without_factor(id, m);
    return x == kNone ? nullptr : scores(x, m);
  }

  std::optional<AttentionMatch> find(NodeId n) const {
    const Node& mix = graph_.node(n);
    if (mix.op != Op::kMatMul || !is_matrix_stack(mix.inputs[0]) || !is_matrix_stack(mix.inputs[1]))
      return std::nullopt;
    const Node* softmax = graph_.producer(mix.inputs[0]);
    if (softmax == nullptr || softmax->op != Op::kSoftmax || !uses_.only_one(mix.inputs[0]))
      return std::nullopt;
    const auto axis = softmax->attributes.get_or<int64_t>("axis", -1);
    if (axis != -1 && axis != 3) return std::nullopt;
    AttentionMatch m;
    m.last = n;
    ValueId top = softmax->inputs[0];
    const Node* product = scores(top, &m);
    const Node* sum = graph_.producer(top);
    if (product == nullptr && sum != nullptr && sum->op == Op::kAdd && uses_.only_one(top)) {
      for (size_t i : {0, 1}) {
        m.scale = 1;
        m.factors.clear();
        product = scores(sum->inputs[i], &m);
        m.mask = sum->inputs[1 - i];
        if (product != nullptr && is_float(m.mask, 4)) break;
        product = nullptr;
      }
    }
    if (product == nullptr) return std::nullopt;
    m.q = source(product->inputs[0], true, &m.q_axes, &m);
    m.k = source(product->inputs[1], true, &m.k_axes, &m);
    m.v = source(mix.inputs[1], false, &m.v_axes, &m);
    const ValueId y = mix.outputs[0];
    if (uses_.only_one(y)) {
      const NodeId reader = uses_.of(y)[0];
      const Node& node = graph_.node(reader);
      const auto* perm = node.attributes.find_as<ops::Ints>("perm");
      if (node.op == Op::kTranspose && perm != nullptr) {
        for (size_t i = 0; i < 4; ++i) m.y_axes[i] = static_cast<size_t>((*perm)[i]);
        m.last = reader;
      }
    }
    return m;
  }

  const Graph& graph_;
  const Uses uses_;
};

}  // namespace

Result<Graph> fuse_attention(const Graph& graph, const PassOptions&) {
  return AttentionFuser(graph).run();
}

}  // namespace lmn::graph
