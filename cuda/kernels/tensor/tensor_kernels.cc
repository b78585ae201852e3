// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/tensor/tensor_kernels.h"

#include <string>

#include "cuda/kernels/tensor/walk.h"

namespace lmn::cuda::tensor {

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

Status check_floats(const ops::TensorNode& node) {
  for (int i = 0; i < node.inputs(); ++i) {
    if (node.has(i) && !is_float(node.dtype(i))) return unsupported_type(node, node.dtype(i));
  }
  return {};
}

Status unsupported_type(const ops::TensorNode& node, DType type) {
  return node.unsupported("no kernel for %s on a GPU", std::string(info(type).name).c_str());
}

Status check_sizes(const Binding& b) {
  const auto check = [&](const ops::TensorType& type) -> Status {
    if (type.shape.elements() <= kMostElements) return {};
    return b.node.unsupported("a tensor of shape %s has more elements than kernels on a GPU count",
                              type.shape.to_string().c_str());
  };
  for (int i = 0; i < b.node.inputs(); ++i) {
    if (b.node.has(i)) LMN_RETURN_IF_ERROR(check(b.node.type(i)));
  }
  for (const ops::TensorType& type : b.outputs) LMN_RETURN_IF_ERROR(check(type));
  return {};
}

namespace {

Status choose(const Binding& b) {
  using ops::TensorOp;
  switch (b.node.op()) {
    case TensorOp::kIdentity:
    case TensorOp::kReshape:
    case TensorOp::kFlatten:
    case TensorOp::kSqueeze:
    case TensorOp::kUnsqueeze:
    case TensorOp::kExpandDims:
      return bind_copy(b);
    case TensorOp::kTranspose:
      return bind_transpose(b);
    case TensorOp::kSlice:
      return bind_slice(b);
    case TensorOp::kExpand:
      return bind_expand(b);
    case TensorOp::kTile:
      return bind_tile(b);
    case TensorOp::kConcat:
      return bind_concat(b);
    case TensorOp::kSplit:
      return bind_split(b);
    case TensorOp::kGather:
      return bind_gather(b);
    case TensorOp::kReduceSum:
    case TensorOp::kReduceMean:
    case TensorOp::kReduceSumSquare:
    case TensorOp::kReduceL1:
    case TensorOp::kReduceL2:
    case TensorOp::kReduceLogSum:
    case TensorOp::kReduceLogSumExp:
    case TensorOp::kReduceProd:
    case TensorOp::kReduceMax:
    case TensorOp::kReduceMin:
      return bind_reduction(b);
    case TensorOp::kSoftmax:
    case TensorOp::kLogSoftmax:
      return bind_softmax(b);
    case TensorOp::kLayerNormalization:
    case TensorOp::kRMSNormalization:
    case TensorOp::kSimplifiedLayerNormalization:
      return bind_norm(b);
    case TensorOp::kSkipLayerNormalization:
    case TensorOp::kSkipSimplifiedLayerNormalization:
      return bind_skip_norm(b);
    case TensorOp::kMatMul:
    case TensorOp::kFusedMatMul:
      return bind_matmul(b);
    case TensorOp::kGemm:
    case TensorOp::kFusedGemm:
      return bind_gemm(b);
    case TensorOp::kFusedLinear:
      return bind_fused_linear(b);
    case TensorOp::kDotAttention:
      return bind_attention(b);
    default:
      return bind_elementwise(b);
  }
}

Status bind(const ops::TensorNode& node, std::span<const ops::TensorType> outputs,
            const ops::KernelTarget& target, ops::TensorKernel* kernel) {
  const Binding b{node, outputs, target, *kernel};
  LMN_RETURN_IF_ERROR(check_sizes(b));
  return choose(b);
}

// Weights are read where they lie.
Status prepare(const ops::TensorNode&, std::shared_ptr<const void>*) { return {}; }

Status evaluate(const ops::TensorNode& node, const ops::EvaluateContext&) {
  return node.unsupported("it is computed on the host");
}

}  // namespace
}  // namespace lmn::cuda::tensor

namespace lmn::cuda {

ops::TensorKernels tensor_kernels() { return {tensor::prepare, tensor::bind, tensor::evaluate}; }

}  // namespace lmn::cuda
