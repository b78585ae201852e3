// SPDX-License-Identifier: Apache-2.0
//
// Types of the recurrent networks of tensor_ops/products.def.
#include "ops/infer/recurrent.h"

#include <cinttypes>
#include <cmath>

#include "ops/infer/axes.h"

namespace lmn::ops {
namespace {

bool takes_alpha(ActivationKind kind) {
  using Kind = ActivationKind;
  return kind == Kind::kAffine || kind == Kind::kLeakyRelu || kind == Kind::kThresholdedRelu ||
         kind == Kind::kScaledTanh || kind == Kind::kHardSigmoid || kind == Kind::kElu;
}
bool takes_beta(ActivationKind kind) {
  using Kind = ActivationKind;
  return kind == Kind::kAffine || kind == Kind::kScaledTanh || kind == Kind::kHardSigmoid;
}

// alpha and beta are given, in order, to the functions that have them.
Status read_activations(const TensorNode& node, int count, Recurrence* r) {
  const auto wanted = static_cast<size_t>(count * r->directions);
  const Strings* names = node.texts("activations");
  if (names != nullptr && names->size() != wanted) {
    return node.fail("it has %zu activations and needs %zu", names->size(), wanted);
  }
  const Floats *alpha = node.numbers("activation_alpha"), *beta = node.numbers("activation_beta");
  size_t alphas = 0, betas = 0;
  for (size_t i = 0; i < wanted; ++i) {
    Activation activation;
    if (names != nullptr) {
      LMN_RETURN_IF_ERROR(find_activation(node, (*names)[i], &activation));
    } else {
      const bool gate = i % static_cast<size_t>(count) == 0 && count > 1;
      activation.kind = gate ? ActivationKind::kSigmoid : ActivationKind::kTanh;
    }
    if (takes_alpha(activation.kind) && alpha != nullptr && alphas < alpha->size())
      activation.alpha = (*alpha)[alphas++];
    if (takes_beta(activation.kind) && beta != nullptr && betas < beta->size())
      activation.beta = (*beta)[betas++];
    r->activations.push_back(activation);
  }
  return {};
}

// Operand i, where present, has this shape as far as both are known.
Status expect_shape(const TensorNode& node, int i, const char* what, const Shape& want) {
  if (!node.has(i)) return {};
  const Shape& shape = node.shape(i);
  bool fits = shape.rank == want.rank;
  for (int d = 0; fits && d < want.rank; ++d)
    fits = shape[d] < 0 || want[d] < 0 || shape[d] == want[d];
  if (fits) return {};
  return node.fail("%s has shape %s, not %s", what, shape.to_string().c_str(),
                   want.to_string().c_str());
}

int64_t gates_of(int64_t size, int64_t by) { return size < 0 ? kUnknownSize : size * by; }

Status infer_recurrent(const TensorNode& node, int gates, int activations, TensorTypes outputs) {
  const bool lstm = gates == 4;
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, lstm ? 8 : 6));
  for (int i : {0, 1, 2, 3, 5, 6, 7}) {
    LMN_RETURN_IF_ERROR(
        node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
    if (node.has(i) && node.dtype(i) != node.dtype(0)) {
      return node.fail("input %d is %s and x is %s; cast one", i,
                       std::string(info(node.dtype(i)).name).c_str(),
                       std::string(info(node.dtype(0)).name).c_str());
    }
  }
  LMN_RETURN_IF_ERROR(node.expect_dtype(4, {DType::kI32}));
  for (TensorType& output : outputs) output.dtype = node.dtype(0);
  Recurrence r;
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(read_recurrence(node, gates, activations, &r));
  if (r.hidden > kMaxElements / 16 || r.inputs > kMaxElements / 16)
    return node.unsupported("the network is too large");
  const int64_t d = r.directions, h = r.hidden;
  LMN_RETURN_IF_ERROR(expect_shape(node, 1, "W", {d, gates_of(h, gates), r.inputs}));
  LMN_RETURN_IF_ERROR(expect_shape(node, 2, "R", {d, gates_of(h, gates), h}));
  LMN_RETURN_IF_ERROR(expect_shape(node, 3, "B", {d, gates_of(h, 2 * gates)}));
  LMN_RETURN_IF_ERROR(expect_shape(node, 4, "sequence_lens", {r.batch}));
  const Shape state = r.batch_first ? Shape{r.batch, d, h} : Shape{d, r.batch, h};
  LMN_RETURN_IF_ERROR(expect_shape(node, 5, "initial_h", state));
  if (lstm) {
    LMN_RETURN_IF_ERROR(expect_shape(node, 6, "initial_c", state));
    LMN_RETURN_IF_ERROR(expect_shape(node, 7, "P", {d, gates_of(h, 3)}));
  }
  outputs[0].shape = r.batch_first ? Shape{r.batch, r.steps, d, h} : Shape{r.steps, d, r.batch, h};
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].shape = state;
  return check_elements(node, outputs[0].shape);
}

}  // namespace

Status read_recurrence(const TensorNode& node, int gates, int activations, Recurrence* recurrence) {
  Recurrence r;
  const Shape &x = node.shape(0), &w = node.shape(1), &u = node.shape(2);
  if (x.rank != 3 || w.rank != 3 || u.rank != 3) {
    return node.fail("x, W and R have ranks %d, %d and %d, not 3", x.rank, w.rank, u.rank);
  }
  const std::string_view direction = node.text("direction", "forward");
  r.reverse = direction == "reverse";
  r.directions = direction == "bidirectional" ? 2 : 1;
  if (direction != "forward" && !r.reverse && r.directions == 1) {
    return node.fail("direction is '%.40s'; it is forward, reverse or bidirectional",
                     std::string(direction).c_str());
  }
  const int64_t layout = node.integer("layout", 0);
  if (layout != 0 && layout != 1) return node.fail("layout is %" PRId64 "; it is 0 or 1", layout);
  r.batch_first = layout == 1;
  r.steps = x[r.batch_first ? 1 : 0];
  r.batch = x[r.batch_first ? 0 : 1];
  r.inputs = x[2] >= 0 ? x[2] : w[2];
  r.hidden = u[2];
  const int64_t hidden = node.integer("hidden_size", u[2]);
  if (u[2] < 0 && hidden >= 0) r.hidden = hidden;
  if (u[2] >= 0 && hidden != u[2]) {
    return node.fail("hidden_size is %" PRId64 " and R has shape %s", hidden,
                     u.to_string().c_str());
  }
  if (r.hidden == 0) return node.fail("hidden_size is 0");
  if (u[2] < 0 && r.hidden < 0 && w[1] >= 0) r.hidden = w[1] / gates;
  r.clips = node.attributes().find("clip") != nullptr && node.number("clip", 0) > 0;
  r.clip = node.number("clip", 0);
  if (std::isnan(r.clip) || r.clip < 0) return node.fail("clip is %g", static_cast<double>(r.clip));
  LMN_RETURN_IF_ERROR(read_activations(node, activations, &r));
  *recurrence = r;
  return {};
}

Status infer_RNN(const TensorNode& node, TensorTypes outputs) {
  return infer_recurrent(node, 1, 1, outputs);
}
Status infer_GRU(const TensorNode& node, TensorTypes outputs) {
  return infer_recurrent(node, 3, 2, outputs);
}
Status infer_LSTM(const TensorNode& node, TensorTypes outputs) {
  return infer_recurrent(node, 4, 3, outputs);
}

}  // namespace lmn::ops
