// SPDX-License-Identifier: Apache-2.0
//
// BatchNormalization of a convolution, with constant statistics: (w x + b - mean) * factor + shift
// is a convolution with other constants. Computed in double, rounded once.
#include <cmath>

#include "graph/passes/matching.h"
#include "graph/passes/passes.h"
#include "graph/rewriter.h"

namespace lmn::graph {
namespace {

constexpr size_t kConvWeight = 1, kConvBias = 2;  // operands of Conv

const float* floats_of(const Graph& graph, ValueId id, int64_t count) {
  const TensorView* view = constant_of(graph, id);
  const bool fits =
      view != nullptr && view->dtype == DType::kF32 && view->shape.elements() == count;
  return fits ? view->as<float>() : nullptr;
}

// The convolution that `norm` follows and may be folded into; null: none.
const Node* folds_into(const Graph& graph, const Uses& uses, const Node& norm) {
  if (!is_tensor_op(norm.op) || name(norm.op) != "BatchNormalization" || norm.outputs.size() != 1 ||
      norm.inputs.size() != 5 || norm.attributes.get_or<int64_t>("training_mode", 0) != 0) {
    return nullptr;
  }
  const Node* conv = graph.producer(norm.inputs[0]);
  if (conv == nullptr || !is_tensor_op(conv->op) || name(conv->op) != "Conv" ||
      !uses.only_one(norm.inputs[0])) {
    return nullptr;
  }
  const TensorView* w = constant_of(graph, conv->inputs[kConvWeight]);
  if (w == nullptr || w->dtype != DType::kF32 || w->shape.rank < 3) return nullptr;
  const int64_t outputs = w->shape[0];
  const ValueId bias = conv->input(kConvBias);
  if (bias != kNone && floats_of(graph, bias, outputs) == nullptr) return nullptr;
  for (size_t i = 1; i < 5; ++i) {
    if (floats_of(graph, norm.inputs[i], outputs) == nullptr) return nullptr;
  }
  return conv;
}

Result<ValueId> folded_convolution(const Graph& graph, const Node& conv, const Node& norm,
                                   Rewriter* rewriter) {
  const TensorView& w = *constant_of(graph, conv.inputs[kConvWeight]);
  const int64_t outputs = w.shape[0], inner = outputs == 0 ? 0 : w.shape.elements() / outputs;
  const auto constant = [&](ValueId id) { return floats_of(graph, id, outputs); };
  const float *scale = constant(norm.inputs[1]), *shift = constant(norm.inputs[2]);
  const float *mean = constant(norm.inputs[3]), *variance = constant(norm.inputs[4]);
  const float* bias = conv.input(kConvBias) == kNone ? nullptr : constant(conv.input(kConvBias));
  const double epsilon = norm.attributes.get_or<float>("epsilon", 1e-5f);
  std::vector<float> weights(static_cast<size_t>(outputs * inner));
  std::vector<float> biases(static_cast<size_t>(outputs));
  for (int64_t o = 0; o < outputs; ++o) {
    const double factor = scale[o] / std::sqrt(variance[o] + epsilon);
    for (int64_t i = o * inner; i < (o + 1) * inner; ++i)
      weights[static_cast<size_t>(i)] = static_cast<float>(w.as<float>()[i] * factor);
    const double own = bias == nullptr ? 0 : bias[o];
    biases[static_cast<size_t>(o)] = static_cast<float>((own - mean[o]) * factor + shift[o]);
  }
  Constant folded =
      owned_constant(graph.value(conv.inputs[kConvWeight]).name + ".folded", std::move(weights));
  folded.pieces[0].view.shape = w.shape;
  const ValueId weight = rewriter->add_constant(std::move(folded));
  const ValueId sum = rewriter->add_constant(
      owned_constant(graph.value(norm.inputs[2]).name + ".folded", std::move(biases)));
  return rewriter->add(conv.op, {rewriter->map(conv.inputs[0]), weight, sum}, conv.attributes,
                       conv.name);
}

}  // namespace

Result<Graph> fold_batch_norm(const Graph& graph, const PassOptions&) {
  const Uses uses(graph);
  std::vector<bool> folded(graph.nodes.size(), false);  // convolutions
  for (const Node& node : graph.nodes) {
    if (const Node* conv = folds_into(graph, uses, node); conv != nullptr)
      folded[static_cast<size_t>(conv - graph.nodes.data())] = true;
  }
  Rewriter rewriter(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (folded[n]) continue;
    const Node& node = graph.nodes[n];
    const Node* conv = folds_into(graph, uses, node);
    if (conv == nullptr) {
      LMN_RETURN_IF_ERROR(rewriter.copy(node));
      continue;
    }
    LMN_ASSIGN_OR_RETURN(const ValueId y, folded_convolution(graph, *conv, node, &rewriter));
    rewriter.replace(node.outputs[0], y);
  }
  return rewriter.finish();
}

}  // namespace lmn::graph
