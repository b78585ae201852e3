// SPDX-License-Identifier: Apache-2.0
//
// What inference of quantized.def reads from a node, and kernels read again.
#pragma once

#include "ops/infer/axes.h"
#include "ops/tensor_op.h"

namespace lmn::ops {

// How scales lie along x: x is [outer, size, inner], scales are [outer, blocks, inner] with blocks
// of `block` elements, or one for each of `size`, or one for all.
struct ScaleLayout {
  enum class Kind : uint8_t { kTensor, kAxis, kBlocks } kind = Kind::kTensor;
  int64_t outer = 1, size = 1, inner = 1, blocks = 1, block = 1;
};
// Of QuantizeLinear and DequantizeLinear, whose shapes are all known.
Status read_scale_layout(const TensorNode& node, ScaleLayout* layout);

// A node with some operands of another, in another order: what inference of its float sibling
// takes.
class OperandView {
 public:
  OperandView(const TensorNode& node, std::initializer_list<int> operands)
      : operands_(pick(node, operands)),
        node_(node.op(), node.attributes(), node.name(), operands_, node.outputs()) {}
  OperandView(const OperandView&) = delete;
  const TensorNode& node() const { return node_; }

 private:
  static std::vector<Operand> pick(const TensorNode& node, std::initializer_list<int> operands) {
    std::vector<Operand> picked;
    for (int i : operands) picked.push_back(node.operand(i));
    return picked;
  }
  std::vector<Operand> operands_;
  TensorNode node_;
};

}  // namespace lmn::ops
