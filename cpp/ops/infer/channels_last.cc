// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/channels_last.def: those of the operators over channels first, turned.
#include "ops/infer/channels_last.h"

#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

using Infer = Status (*)(const TensorNode& node, TensorTypes outputs);

Status infer_turned(const TensorNode& node, Infer infer, int also, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32}));
  LMN_RETURN_IF_ERROR(infer(ChannelsFirstNode(node, also).node(), outputs));
  if (outputs[0].ranked()) outputs[0].shape = channels_last(outputs[0].shape);
  return {};
}

}  // namespace

// Operands x, w, bias, residual.
Status infer_ChannelsLastConv(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  if (!node.type(1).is_known()) return node.fail("the weights are no constant");
  const auto infer = [](const TensorNode& turned, TensorTypes types) {
    std::vector<Operand> operands;
    for (int i = 0; i < std::min(turned.inputs(), 3); ++i) operands.push_back(turned.operand(i));
    return infer_Conv({turned.op(), turned.attributes(), turned.name(), operands, turned.outputs()},
                      types);
  };
  LMN_RETURN_IF_ERROR(infer_turned(node, infer, 3, outputs));
  const Shape& out = outputs[0].shape;
  if (!node.has(3) || !outputs[0].ranked() || !node.type(3).ranked()) return {};
  bool differs = node.rank(3) != out.rank;
  for (int i = 0; i < out.rank && !differs; ++i)
    differs = node.shape(3)[i] >= 0 && out[i] >= 0 && node.shape(3)[i] != out[i];
  if (!differs) return {};
  return node.fail("residual is %s, expected %s", node.shape(3).to_string().c_str(),
                   out.to_string().c_str());
}

Status infer_ChannelsLastMaxPool(const TensorNode& node, TensorTypes outputs) {
  if (outputs.size() != 1) return node.fail("it has no indices");
  return infer_turned(node, infer_MaxPool, -1, outputs);
}
Status infer_ChannelsLastAveragePool(const TensorNode& node, TensorTypes outputs) {
  return infer_turned(node, infer_AveragePool, -1, outputs);
}
Status infer_ChannelsLastGlobalAveragePool(const TensorNode& node, TensorTypes outputs) {
  return infer_turned(node, infer_GlobalAveragePool, -1, outputs);
}

}  // namespace lmn::ops
