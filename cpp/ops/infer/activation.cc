// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/activation.h"

#include <cctype>
#include <limits>

namespace lmn::ops {
namespace {

struct Known {
  std::string_view name;
  Activation activation;
};
constexpr Known kKnown[] = {
    {"relu", {ActivationKind::kRelu}},
    {"tanh", {ActivationKind::kTanh}},
    {"sigmoid", {ActivationKind::kSigmoid}},
    {"affine", {ActivationKind::kAffine, 1.0f, 0.0f}},
    {"leakyrelu", {ActivationKind::kLeakyRelu, 0.01f}},
    {"thresholdedrelu", {ActivationKind::kThresholdedRelu, 1.0f}},
    {"scaledtanh", {ActivationKind::kScaledTanh, 1.0f, 1.0f}},
    {"hardsigmoid", {ActivationKind::kHardSigmoid, 0.2f, 0.5f}},
    {"elu", {ActivationKind::kElu, 1.0f}},
    {"softsign", {ActivationKind::kSoftsign}},
    {"softplus", {ActivationKind::kSoftplus}},
    {"clip",
     {ActivationKind::kClip, std::numeric_limits<float>::lowest(),
      std::numeric_limits<float>::max()}},
    {"silu", {ActivationKind::kSilu}},
    {"gelu", {ActivationKind::kGelu}},
};

}  // namespace

Status find_activation(const TensorNode& node, std::string_view name, Activation* activation) {
  std::string lower(name.substr(0, 40));
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Known& known : kKnown) {
    if (known.name != lower) continue;
    *activation = known.activation;
    return {};
  }
  return node.unsupported("activation '%s' is not known", lower.c_str());
}

Status read_activation(const TensorNode& node, Activation* activation) {
  const std::string_view name = node.text("activation", "");
  if (name.empty()) return {};
  LMN_RETURN_IF_ERROR(find_activation(node, name, activation));
  activation->alpha = node.number("activation_alpha", activation->alpha);
  activation->beta = node.number("activation_beta", activation->beta);
  if (const Floats* parameters = node.numbers("activation_params")) {
    if (!parameters->empty()) activation->alpha = (*parameters)[0];
    if (parameters->size() > 1) activation->beta = (*parameters)[1];
  }
  return {};
}

}  // namespace lmn::ops
