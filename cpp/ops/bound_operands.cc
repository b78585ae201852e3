// SPDX-License-Identifier: Apache-2.0
#include "ops/bound_operands.h"

#include "ops/infer/axes.h"

namespace lmn::ops {
namespace {

// One bit for each operand.
uint32_t bound_operands(TensorOp op) {
  switch (op) {
    case TensorOp::kReduceL1:
    case TensorOp::kReduceL2:
    case TensorOp::kReduceLogSum:
    case TensorOp::kReduceLogSumExp:
    case TensorOp::kReduceMax:
    case TensorOp::kReduceMean:
    case TensorOp::kReduceMin:
    case TensorOp::kReduceProd:
    case TensorOp::kReduceSum:
    case TensorOp::kReduceSumSquare:
    case TensorOp::kTile:
    case TensorOp::kCenterCropPad:
    case TensorOp::kUpsample:
      return 1u << 1;
    case TensorOp::kDFT:
    case TensorOp::kCol2Im:
    case TensorOp::kMelWeightMatrix:
      return 1u << 1 | 1u << 2;
    case TensorOp::kPad:
    case TensorOp::kSTFT:
      return 1u << 1 | 1u << 3;
    case TensorOp::kResize:
      return 1u << 1 | 1u << 2 | 1u << 3;
    case TensorOp::kSlice:
      return 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4;
    default:
      return 0;
  }
}

}  // namespace

bool can_bind(const TensorNode& node) {
  const uint32_t read = bound_operands(node.op());
  for (int i = 0; i < node.inputs(); ++i) {
    if ((read >> i & 1u) != 0 && node.has(i) && !knows_list(node, i)) return false;
  }
  return true;
}

}  // namespace lmn::ops
