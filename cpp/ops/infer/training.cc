// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/training.def.
#include <cinttypes>

#include "ops/infer/axes.h"

namespace lmn::ops {
namespace {

// Behind rate and count, `groups` groups of as many inputs: tensors, gradients, states. Outputs are
// the tensors and the states.
Status infer_update(const TensorNode& node, TensorTypes outputs, int groups) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2 + groups, node.inputs()));
  LMN_RETURN_IF_ERROR(node.expect_inputs(node.inputs(), node.inputs()));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kF64}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  const int tensors = (node.inputs() - 2) / groups;
  if (tensors * groups != node.inputs() - 2 ||
      static_cast<int>(outputs.size()) != tensors * (groups - 1)) {
    return node.fail("%d inputs and %d outputs; it takes 2 and %d a tensor, and gives %d",
                     node.inputs(), node.outputs(), groups, groups - 1);
  }
  for (int i : {0, 1}) {
    if (node.type(i).is_known() && node.shape(i).elements() != 1) {
      return node.fail("input %d is %s; it is one number", i, node.shape(i).to_string().c_str());
    }
  }
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const int first = 2 + tensor;
    LMN_RETURN_IF_ERROR(node.expect_dtype(first, {DType::kF32, DType::kF64}));
    Shape shape = node.shape(first);
    for (int group = 1; group < groups; ++group) {
      const int i = first + group * tensors;
      if (node.dtype(i) != node.dtype(first)) {
        return node.fail("input %d is not of the type of input %d", i, first);
      }
      const Shape& other = node.shape(i);
      bool same = other.rank < 0 || shape.rank < 0 || other.rank == shape.rank;
      if (shape.rank < 0) shape = other;
      for (int d = 0; same && d < other.rank; ++d) same = same_size(shape[d], other[d], &shape[d]);
      if (!same) {
        return node.fail("inputs %d and %d are of two shapes, %s and %s", first, i,
                         node.shape(first).to_string().c_str(), other.to_string().c_str());
      }
    }
    for (int group = 0; group + 1 < groups; ++group) {
      TensorType& out = outputs[static_cast<size_t>(tensor + group * tensors)];
      out.dtype = node.dtype(first);
      out.shape = shape;
    }
  }
  return {};
}

}  // namespace

Status infer_Adagrad(const TensorNode& node, TensorTypes outputs) {
  return infer_update(node, outputs, 3);
}
Status infer_Adam(const TensorNode& node, TensorTypes outputs) {
  return infer_update(node, outputs, 4);
}
Status infer_Momentum(const TensorNode& node, TensorTypes outputs) {
  const std::string_view mode = node.text("mode", "");
  if (mode != "standard" && mode != "nesterov") {
    return node.fail("mode is 'standard' or 'nesterov'");
  }
  return infer_update(node, outputs, 3);
}

}  // namespace lmn::ops
