// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/norms.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"

namespace lmn::cuda::tensor {
namespace {

using ops::TensorOp;

// Which operands and outputs of a node are what; -1: the operator has none.
struct Roles {
  int skip = -1, bias = -1, scale = 1, offset = -1;
  int total = -1, mean = -1, inverse = -1;
};

Status bind(const Binding& b, const Roles& roles, int64_t rows, int64_t columns, bool centered,
            float epsilon) {
  const ops::TensorNode& node = b.node;
  LMN_RETURN_IF_ERROR(check_floats(node));
  if (columns == 0) return node.unsupported("rows without elements");
  NormParams params{};
  const auto set = [&](int i, NormOperand* operand) -> Status {
    if (i < 0 || !node.has(i)) return {};
    operand->type = node.dtype(i);
    const int64_t elements = node.shape(i).elements();
    operand->step = elements == 1 && columns != 1 ? 0 : 1;
    if (operand->step == 1 &&
        (elements % columns != 0 || node.shape(i).last() != node.shape(0).last()))
      return node.unsupported("operand %d is no row, and no rows, of its input", i);
    operand->rows =
        operand->step == 0 || elements == columns ? 0 : static_cast<uint32_t>(elements / columns);
    return {};
  };
  LMN_RETURN_IF_ERROR(set(0, &params.x));
  LMN_RETURN_IF_ERROR(set(roles.skip, &params.skip));
  LMN_RETURN_IF_ERROR(set(roles.bias, &params.bias));
  LMN_RETURN_IF_ERROR(set(roles.scale, &params.scale));
  LMN_RETURN_IF_ERROR(set(roles.offset, &params.offset));
  // Scale and bias that are rows of their own may broadcast in ways that are no repetition.
  if (params.scale.rows > 1 || params.offset.rows > 1)
    return node.unsupported("a scale that differs from row to row");
  params.rows = static_cast<uint32_t>(rows);
  params.columns = static_cast<uint32_t>(columns);
  params.form = row_form(columns);
  params.centered = centered;
  params.epsilon = epsilon;
  const auto output_type = [&](int i) {
    return i >= 0 && static_cast<size_t>(i) < b.outputs.size()
               ? b.outputs[static_cast<size_t>(i)].dtype
               : DType::kF32;
  };
  params.y_type = b.outputs[0].dtype;
  params.total_type = output_type(roles.total);
  params.moment_type = output_type(roles.mean >= 0 ? roles.mean : roles.inverse);
  if (params.y_type == node.dtype(0)) b.kernel.in_place = 0;
  b.kernel.set([params, roles](const ops::Operands& io, const ops::Worker& worker) {
    NormParams p = params;
    const auto input = [&](int i) { return i < 0 ? nullptr : io.input<std::byte>(i); };
    const auto output = [&](int i) { return i < 0 ? nullptr : io.output<std::byte>(i); };
    p.x.data = input(0);
    p.skip.data = input(roles.skip);
    p.bias.data = input(roles.bias);
    p.scale.data = input(roles.scale);
    p.offset.data = input(roles.offset);
    p.y = output(0);
    p.total = output(roles.total);
    p.mean = output(roles.mean);
    p.inverse = output(roles.inverse);
    simt::launch<normalize>(
        *worker.queue, {blocks(group_blocks(p.form, p.rows)), 1, 1, kGroupThreads, kGroupShared},
        p);
  });
  return {};
}

}  // namespace

Status bind_norm(const Binding& b) {
  const Shape& x = b.node.shape(0);
  Roles roles;
  int64_t columns = 1;
  if (b.node.op() == TensorOp::kSimplifiedLayerNormalization) {
    columns = b.node.shape(1).elements();
    roles.inverse = 1;
  } else {
    int64_t axis;
    LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -1), x.rank, &axis));
    for (int d = static_cast<int>(axis); d < x.rank; ++d) columns *= x[d];
    roles.offset = 2;
    if (b.node.op() == TensorOp::kLayerNormalization) {
      roles.mean = 1;
      roles.inverse = 2;
    }
  }
  const int64_t rows = columns == 0 ? 0 : x.elements() / columns;
  return bind(b, roles, rows, columns, b.node.op() == TensorOp::kLayerNormalization,
              b.node.number("epsilon", 1e-5f));
}

Status bind_skip_norm(const Binding& b) {
  const bool simplified = b.node.op() == TensorOp::kSkipSimplifiedLayerNormalization;
  Roles roles;
  roles.skip = 1;
  roles.scale = 2;
  roles.offset = simplified ? -1 : 3;
  roles.bias = simplified ? 3 : 4;
  roles.mean = 1;
  roles.inverse = 2;
  roles.total = 3;
  const Shape& x = b.node.shape(0);
  return bind(b, roles, x.rows(), x.last(), !simplified, b.node.number("epsilon", 1e-12f));
}

}  // namespace lmn::cuda::tensor
