// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/attention.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "cuda/kernels/tensor/walk.h"
#include "ops/infer/fused.h"

namespace lmn::cuda::tensor {
namespace {

// axes[d]: which dimension of the tensor is batch, head, row and column.
HeadStrides strides_of(const Shape& shape, const std::array<int, 4>& axes) {
  const auto dense = dense_strides(shape);
  const auto at = [&](size_t d) {
    return shape[axes[d]] == 1 ? 0u : static_cast<uint32_t>(dense[static_cast<size_t>(axes[d])]);
  };
  return {at(0), at(1), at(2), at(3)};
}

}  // namespace

Status bind_attention(const Binding& b) {
  const ops::TensorNode& node = b.node;
  std::array<std::array<int, 4>, 4> axes;
  constexpr const char* kPerms[] = {"q_perm", "k_perm", "v_perm", "y_perm"};
  for (size_t i = 0; i < 4; ++i)
    LMN_RETURN_IF_ERROR(ops::read_permutation(node, kPerms[i], &axes[i]));
  LMN_RETURN_IF_ERROR(check_floats(node));
  // Dimension y_perm[d] of what is computed is dimension d of y.
  std::array<int, 4> of_y{};
  for (size_t d = 0; d < 4; ++d) of_y[static_cast<size_t>(axes[3][d])] = static_cast<int>(d);
  const Shape &y = b.outputs[0].shape, &q = node.shape(0), &k = node.shape(1), &v = node.shape(2);
  AttentionParams params{};
  params.batches = static_cast<uint32_t>(y[of_y[0]]);
  params.heads = static_cast<uint32_t>(y[of_y[1]]);
  params.queries = static_cast<uint32_t>(y[of_y[2]]);
  params.value_dim = static_cast<uint32_t>(y[of_y[3]]);
  params.dim = static_cast<uint32_t>(q[axes[0][3]]);
  params.keys = static_cast<uint32_t>(v[axes[2][2]]);
  if (params.dim > kMostHeadDim || params.value_dim > kMostHeadDim) {
    return node.unsupported("heads of more than %d elements have no kernel on a GPU", kMostHeadDim);
  }
  if (params.keys == 0) return node.unsupported("there are no keys");
  params.q_type = node.dtype(0);
  params.k_type = node.dtype(1);
  params.v_type = node.dtype(2);
  params.y_type = b.outputs[0].dtype;
  params.q_strides = strides_of(q, axes[0]);
  params.k_strides = strides_of(k, axes[1]);
  params.v_strides = strides_of(v, axes[2]);
  params.y_strides = strides_of(y, of_y);
  if (node.has(3)) {
    const Shape& given = node.shape(3);
    Shape mask{1, 1, 1, 1};
    for (int d = 1; d <= given.rank; ++d) mask[4 - d] = given[given.rank - d];
    params.mask_strides = strides_of(mask, {0, 1, 2, 3});
    params.mask_type = node.dtype(3);
  }
  for (int i = 0; i < 2; ++i) {
    if (node.has(4 + i)) params.factor_types[i] = node.dtype(4 + i);
  }
  params.scale = node.number("scale", 1.0f);
  b.kernel.cost =
      1 + static_cast<double>(y.elements() * params.keys) / 500;  // nanoseconds, roughly
  b.kernel.set([params](const ops::Operands& io, const ops::Worker& worker) {
    AttentionParams p = params;
    p.q = io.input<std::byte>(0);
    p.k = io.input<std::byte>(1);
    p.v = io.input<std::byte>(2);
    p.mask = io.input<std::byte>(3);
    for (int i = 0; i < 2; ++i) p.factors[i] = io.input<std::byte>(4 + i);
    p.y = io.output<std::byte>(0);
    simt::launch<dot_attention>(
        *worker.queue,
        {blocks(int64_t{p.batches} * p.heads * simt::div_up(p.queries, kQueries)), 1, 1,
         kAttentionThreads, attention_shared_bytes(p.dim, p.value_dim)},
        p);
  });
  return {};
}

}  // namespace lmn::cuda::tensor
