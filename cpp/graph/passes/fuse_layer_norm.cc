// SPDX-License-Identifier: Apache-2.0
//
// Layer norm and RMS norm as exporters of operator sets below 17 and 23 write them: means over the
// last axes, a root, a quotient or a product with a reciprocal, then a factor and an addend of a
// row. Inputs of 16 bits that are cast to float32 for it are taken as they are. What is computed in
// between is read by nobody else, or all stays as it is.
#include <cmath>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

struct LayerNormMatch {
  ValueId x = kNone, scale = kNone, bias = kNone;
  float epsilon = 0;
  int64_t axis = 0;  // the first that is reduced
  bool centered = false;
  NodeId last = kNone;  // whose output is the result
};

class LayerNormFuser {
 public:
  explicit LayerNormFuser(const Graph& graph) : graph_(graph), uses_(graph) {}

  Result<Graph> run() {
    std::vector<std::optional<LayerNormMatch>> at(graph_.nodes.size());  // by the last node
    for (const Node& node : graph_.nodes) {
      if (node.op != Op::kReduceMean) continue;
      std::optional<LayerNormMatch> match = find(node);
      if (match) at[static_cast<size_t>(match->last)] = std::move(match);
    }
    return with_matches(graph_, at,
                        [this](const LayerNormMatch& m, const Node& last, Rewriter* rewriter) {
                          return write(m, last, rewriter);
                        });
  }

 private:
  Status write(const LayerNormMatch& m, const Node& last, Rewriter* rewriter) const {
    const ValueType& type = graph_.value(m.x).type;
    std::vector<ValueId> inputs{rewriter->map(m.x), rewriter->map(m.scale)};
    if (m.scale == kNone) {
      const auto columns = static_cast<size_t>(type.dims.back().size);
      inputs[1] = rewriter->add_constant(owned_constant("ones", std::vector<float>(columns, 1.0f)));
    }
    if (m.bias != kNone) inputs.push_back(rewriter->map(m.bias));
    Attributes attributes;
    attributes.set("epsilon", m.epsilon);
    attributes.set("axis", m.axis - static_cast<int64_t>(type.dims.size()));
    const Op op = m.centered ? Op::kLayerNormalization : Op::kRMSNormalization;
    LMN_ASSIGN_OR_RETURN(const ValueId y,
                         rewriter->add(op, std::move(inputs), attributes, last.name));
    rewriter->replace(last.outputs[0], y);
    return {};
  }

  const ValueType& type(ValueId id) const { return graph_.value(id).type; }

  // The other operand of an operator of two, where one is `id`.
  static ValueId other_of(const Node& node, ValueId id) {
    return node.inputs[0] == id ? node.inputs[1] : node.inputs[0];
  }
  // The only reader of `id`, of this operator; null: there is none.
  const Node* reader(ValueId id, Op op) const {
    if (!uses_.only_one(id)) return nullptr;
    const Node& node = graph_.node(uses_.of(id)[0]);
    return node.op == op ? &node : nullptr;
  }
  NodeId id_of(const Node& node) const { return static_cast<NodeId>(&node - graph_.nodes.data()); }

  // `x`, where `node` is a mean of it over its last axes that keeps them; kNone otherwise.
  ValueId mean_of(const Node* node, int64_t* axis) const {
    if (node == nullptr || node->op != Op::kReduceMean ||
        node->attributes.get_or<int64_t>("keepdims", 1) == 0)
      return kNone;
    const ValueType& x = type(node->inputs[0]);
    const TensorView* axes = constant_of(graph_, node->input(1));
    if (axes == nullptr || axes->dtype != DType::kI64 || !x.ranked) return kNone;
    const auto rank = static_cast<int64_t>(x.dims.size()), count = axes->shape.elements();
    uint32_t seen = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = axes->as<int64_t>()[i];
      const int64_t at = value < 0 ? value + rank : value;
      if (at < rank - count || at >= rank) return kNone;
      seen |= 1u << at;
    }
    *axis = rank - count;
    const bool all = count > 0 && seen == ((1u << rank) - 1u) - ((1u << *axis) - 1u);
    return all ? node->inputs[0] : kNone;
  }

  // The value that is squared to `id`.
  ValueId squared(ValueId id) const {
    const Node* node = graph_.producer(id);
    if (node == nullptr || !uses_.only_one(id)) return kNone;
    const ValueId x = node->inputs.empty() ? kNone : node->inputs[0];
    if (node->op == Op::kMul && x == node->inputs[1]) return x;
    return node->op == Op::kPow && is_number(graph_, node->inputs[1], 2) ? x : kNone;
  }

  // 1 / sqrt(v) or, `*is_root`, sqrt(v).
  ValueId root_of(ValueId v, bool* is_root) const {
    const Node* node = reader(v, Op::kSqrt);
    if (node == nullptr) {
      node = reader(v, Op::kPow);
      if (node == nullptr || node->inputs[0] != v) return kNone;
      *is_root = is_number(graph_, node->inputs[1], 0.5);
      if (!*is_root && !is_number(graph_, node->inputs[1], -0.5)) return kNone;
      return node->outputs[0];
    }
    const ValueId root = node->outputs[0];
    *is_root = true;
    if (const Node* inverse = reader(root, Op::kReciprocal); inverse != nullptr) {
      *is_root = false;
      return inverse->outputs[0];
    }
    const Node* quotient = reader(root, Op::kDiv);
    if (quotient != nullptr && quotient->inputs[1] == root &&
        is_number(graph_, quotient->inputs[0], 1) &&
        type(quotient->outputs[0]).dims == type(root).dims) {
      *is_root = false;
      return quotient->outputs[0];
    }
    return root;
  }

  // One number for every column of a row of x.
  bool is_row(ValueId id, const LayerNormMatch& m) const {
    const ValueType &row = type(id), &x = type(m.x);
    if (row.kind != Kind::kTensor || !row.ranked || row.dims.size() > x.dims.size()) return false;
    const size_t columns = x.dims.size() - static_cast<size_t>(m.axis);
    const size_t more = x.dims.size() - row.dims.size();
    if (row.dims.size() < columns) return false;
    for (size_t i = 0; i < row.dims.size(); ++i) {
      const Dim& wanted = x.dims[i + more];
      if (i + columns < row.dims.size() ? row.dims[i] != Dim(1)
                                        : row.dims[i] != wanted || wanted.symbol == "?")
        return false;
    }
    return true;
  }

  std::optional<LayerNormMatch> find(const Node& variance) const {
    LayerNormMatch m;
    const ValueId square = mean_of(&variance, &m.axis);
    const ValueId distance = square == kNone ? kNone : squared(square);
    if (distance == kNone || type(distance).dims != type(square).dims) return std::nullopt;
    // distance = x - mean(x), or it is x itself
    const Node* difference = graph_.producer(distance);
    const Node* mean = difference != nullptr && difference->op == Op::kSub
                           ? graph_.producer(difference->inputs[1])
                           : nullptr;
    int64_t axis = 0;
    m.x = mean_of(mean, &axis);
    m.centered = m.x != kNone && axis == m.axis && m.x == difference->inputs[0];
    if (!m.centered) m.x = distance;
    // root or inverse of variance + epsilon
    const Node* sum = reader(variance.outputs[0], Op::kAdd);
    if (sum == nullptr) return std::nullopt;
    const std::optional<double> epsilon = number_of(graph_, other_of(*sum, variance.outputs[0]));
    if (!epsilon || type(sum->outputs[0]).dims.size() != type(m.x).dims.size()) return std::nullopt;
    m.epsilon = static_cast<float>(*epsilon);
    bool is_root = false;
    ValueId root = root_of(sum->outputs[0], &is_root);
    if (root == kNone || type(root).dims.size() != type(m.x).dims.size()) return std::nullopt;
    // A factor of rows may come first.
    if (const Node* factor = is_root ? nullptr : scaled_inverse(root, distance, m)) {
      m.scale = other_of(*factor, root);
      root = factor->outputs[0];
    }
    const size_t squares = graph_.producer(square)->op == Op::kMul ? 2 : 1;
    const bool found = m.centered && !is_root && uses_.of(root).size() == 2
                           ? finish_apart(root, *mean, distance, squares, &m)
                           : finish(root, is_root, mean, distance, squares, &m);
    if (!found || !is_float_type(type(m.x).dtype)) return std::nullopt;
    if (m.scale == kNone &&
        (!type(m.x).dims.back().is_constant() || type(m.x).dtype != DType::kF32 ||
         m.axis + 1 != static_cast<int64_t>(type(m.x).dims.size())))
      return std::nullopt;
    return m;
  }

  static bool is_float_type(DType type) {
    return type == DType::kF32 || type == DType::kF64 || type == DType::kF16 ||
           type == DType::kBF16;
  }

  const Node* scaled_inverse(ValueId inverse, ValueId distance, const LayerNormMatch& m) const {
    const Node* product = reader(inverse, Op::kMul);
    if (product == nullptr) return nullptr;
    const ValueId other = other_of(*product, inverse);
    return other != distance && is_row(other, m) ? product : nullptr;
  }

  // distance / root or distance * inverse, [the factor of rows,] [the addend].
  bool finish(ValueId root, bool is_root, const Node* mean, ValueId distance, size_t squares,
              LayerNormMatch* m) const {
    const Node* product = reader(root, is_root ? Op::kDiv : Op::kMul);
    if (product == nullptr || other_of(*product, root) != distance ||
        (is_root && product->inputs[1] != root))
      return false;
    if (m->centered && (!uses_.only_one(mean->outputs[0]) || uses_.is_output(distance) ||
                        uses_.of(distance).size() != squares + 1))
      return false;
    m->last = id_of(*product);
    const auto y = [&] { return graph_.node(m->last).outputs[0]; };
    if (m->scale == kNone) {
      take_cast(y(), m);
      if (const Node* scaled = reader(y(), Op::kMul)) {
        if (takes_row(other_of(*scaled, y()), *m)) {
          m->scale = other_of(*scaled, y());
          m->last = id_of(*scaled);
        }
      }
    }
    if (!m->centered) return true;
    if (m->scale != kNone) take_cast(y(), m);
    if (const Node* shifted = reader(y(), Op::kAdd)) take_bias(*shifted, y(), m);
    return true;
  }

  bool takes_row(ValueId id, const LayerNormMatch& m) const {
    return id != graph_.node(m.last).outputs[0] && is_row(id, m) &&
           type(id).dtype == type(graph_.node(m.last).outputs[0]).dtype;
  }
  void take_bias(const Node& shifted, ValueId y, LayerNormMatch* m) const {
    const ValueId other = other_of(shifted, y);
    if (!takes_row(other, *m)) return;
    m->bias = other;
    m->last = id_of(shifted);
  }
  // x of 16 bits that was cast to float32, where the result `y` is cast back.
  void take_cast(ValueId y, LayerNormMatch* m) const {
    const Node *front = graph_.producer(m->x), *back = reader(y, Op::kCast);
    if (front == nullptr || front->op != Op::kCast || back == nullptr) return;
    const ValueId x = front->inputs[0];
    const DType narrow = type(x).dtype;
    if ((narrow != DType::kF16 && narrow != DType::kBF16) || type(m->x).dtype != DType::kF32 ||
        type(back->outputs[0]).dtype != narrow)
      return;
    m->x = x;
    m->last = id_of(*back);
  }

  // x * inverse + (bias - mean * inverse), where `inverse` has the factor in it: TensorFlow's
  // batch_normalization, which Keras makes its layer norm of.
  bool finish_apart(ValueId inverse, const Node& mean, ValueId distance, size_t squares,
                    LayerNormMatch* m) const {
    const ValueId average = mean.outputs[0];
    if (uses_.is_output(inverse) || uses_.is_output(average) || uses_.is_output(distance) ||
        uses_.of(distance).size() != squares || uses_.of(average).size() != 2)
      return false;
    const Node *scaled = nullptr, *shift = nullptr;
    for (NodeId n : uses_.of(inverse)) {
      const Node& node = graph_.node(n);
      if (node.op != Op::kMul) return false;
      if (other_of(node, inverse) == m->x) scaled = &node;
      if (other_of(node, inverse) == average) shift = &node;
    }
    if (scaled == nullptr || shift == nullptr) return false;
    const Node* rest = reader(shift->outputs[0], Op::kSub);
    if (rest == nullptr || rest->inputs[1] != shift->outputs[0] || !is_row(rest->inputs[0], *m))
      return false;
    const Node* sum = reader(rest->outputs[0], Op::kAdd);
    if (sum == nullptr || other_of(*sum, rest->outputs[0]) != scaled->outputs[0] ||
        !uses_.only_one(scaled->outputs[0]))
      return false;
    m->bias = rest->inputs[0];
    m->last = id_of(*sum);
    return true;
  }

  const Graph& graph_;
  const Uses uses_;
};

}  // namespace

Result<Graph> fuse_layer_norm(const Graph& graph, const PassOptions&) {
  return LayerNormFuser(graph).run();
}

}  // namespace lmn::graph
