// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/reductions.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "cuda/kernels/tensor/walk.h"
#include "ops/infer/axes.h"

namespace lmn::cuda::tensor {
namespace {

using ops::TensorOp;

Reduction reduction_of(TensorOp op) {
  switch (op) {
    case TensorOp::kReduceMean:
      return Reduction::kMean;
    case TensorOp::kReduceSumSquare:
      return Reduction::kSquares;
    case TensorOp::kReduceL1:
      return Reduction::kL1;
    case TensorOp::kReduceL2:
      return Reduction::kL2;
    case TensorOp::kReduceLogSum:
      return Reduction::kLogSum;
    case TensorOp::kReduceLogSumExp:
      return Reduction::kLogSumExp;
    case TensorOp::kReduceProd:
      return Reduction::kProduct;
    case TensorOp::kReduceMax:
      return Reduction::kMax;
    case TensorOp::kReduceMin:
      return Reduction::kMin;
    default:
      return Reduction::kSum;
  }
}

int32_t read_walk(const Walk& walk, uint32_t* sizes, uint32_t* strides) {
  int32_t rank = 0;
  for (const Dimension& d : walk.dimensions()) {
    sizes[rank] = static_cast<uint32_t>(d.size);
    strides[rank++] = static_cast<uint32_t>(d.strides[0]);
  }
  return rank;
}

simt::LaunchShape group_shape(Form form, int64_t outputs) {
  return {blocks(group_blocks(form, outputs)), 1, 1, kGroupThreads, kGroupShared};
}

}  // namespace

Status bind_reduction(const Binding& b) {
  uint32_t axes;
  LMN_RETURN_IF_ERROR(ops::reduced_axes(b.node, &axes));
  const Shape& x = b.node.shape(0);
  const auto strides = dense_strides(x);
  Walk kept, reduced;
  bool by_rows = true;
  for (int d = 0; d < x.rank; ++d) {
    const bool is_reduced = (axes >> d & 1u) != 0;
    (is_reduced ? reduced : kept).add(x[d], {strides[static_cast<size_t>(d)]});
    if (x[d] != 1) by_rows = is_reduced;
  }
  ReduceParams params{};
  params.type = b.node.dtype(0);
  params.reduction = reduction_of(b.node.op());
  params.outputs = static_cast<uint32_t>(b.outputs[0].shape.elements());
  params.terms = static_cast<uint32_t>(reduced.elements());
  if (params.terms == 0) return b.node.unsupported("nothing to reduce");
  params.form = by_rows ? row_form(params.terms) : Form::kColumns;
  params.kept_rank = read_walk(kept, params.kept_sizes, params.kept_strides);
  params.reduced_rank = read_walk(reduced, params.reduced_sizes, params.reduced_strides);
  const bool as_float = is_float(params.type);
  const bool extreme = params.reduction == Reduction::kMax || params.reduction == Reduction::kMin;
  const bool whole = params.type == DType::kI32 || params.type == DType::kI64 ||
                     (extreme && (params.type == DType::kI8 || params.type == DType::kU8 ||
                                  params.type == DType::kBool));
  const bool logs =
      params.reduction == Reduction::kLogSum || params.reduction == Reduction::kLogSumExp;
  if (!as_float && (!whole || logs)) return unsupported_type(b.node, params.type);
  b.kernel.set([params, as_float](const ops::Operands& io, const ops::Worker& worker) {
    ReduceParams p = params;
    p.x = io.input<std::byte>(0);
    p.y = io.output<std::byte>(0);
    const simt::LaunchShape shape = group_shape(p.form, p.outputs);
    if (as_float) {
      simt::launch<reduce<float>>(*worker.queue, shape, p);
    } else {
      simt::launch<reduce<int64_t>>(*worker.queue, shape, p);
    }
  });
  return {};
}

Status bind_softmax(const Binding& b) {
  const Shape& x = b.node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -1), x.rank, &axis));
  SoftmaxParams params{};
  params.type = b.node.dtype(0);
  if (!is_float(params.type)) return unsupported_type(b.node, params.type);
  int64_t outer = 1, terms = x.rank == 0 ? 1 : x[static_cast<int>(axis)], inner = 1;
  for (int d = 0; d < x.rank; ++d) {
    if (d < axis) outer *= x[d];
    if (d > axis) inner *= x[d];
  }
  params.logarithm = b.node.op() == TensorOp::kLogSoftmax;
  params.terms = static_cast<uint32_t>(terms);
  params.inner = static_cast<uint32_t>(inner);
  params.outputs = static_cast<uint32_t>(outer * inner);
  params.form = inner == 1 ? row_form(terms) : Form::kColumns;
  b.kernel.in_place = 0;
  b.kernel.set([params](const ops::Operands& io, const ops::Worker& worker) {
    SoftmaxParams p = params;
    p.x = io.input<std::byte>(0);
    p.y = io.output<std::byte>(0);
    simt::launch<softmax>(*worker.queue, group_shape(p.form, p.outputs), p);
  });
  return {};
}

}  // namespace lmn::cuda::tensor
