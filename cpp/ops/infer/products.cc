// SPDX-License-Identifier: Apache-2.0
//
// Types of the matrix products of tensor_ops/products.def.
#include "ops/infer/activation.h"
#include "ops/infer/infer.h"
#include "ops/infer/spatial.h"

namespace lmn::ops {
namespace {

Status expect_factors(const TensorNode& node) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                            DType::kI32, DType::kI64, DType::kU32, DType::kU64}));
  if (node.dtype(0) != node.dtype(1)) {
    return node.fail("inputs are %s and %s; cast one to the type of the other",
                     std::string(info(node.dtype(0)).name).c_str(),
                     std::string(info(node.dtype(1)).name).c_str());
  }
  return {};
}

// a times b, with batch dimensions in front of the last two.
Status matrix_product(const TensorNode& node, const Shape& a, const Shape& b, Shape* shape) {
  if (a.rank == 0 || b.rank == 0) return node.fail("an input is a scalar; use Mul");
  const int64_t inner_a = a.last(), inner_b = b[b.rank == 1 ? 0 : b.rank - 2];
  if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b) {
    return node.fail("%s times %s: the inner sizes differ", a.to_string().c_str(),
                     b.to_string().c_str());
  }
  Shape batch_a = a, batch_b = b, out;
  batch_a.rank = std::max(0, a.rank - 2);
  batch_b.rank = std::max(0, b.rank - 2);
  LMN_RETURN_IF_ERROR(broadcast(node, batch_a, batch_b, &out));
  if (a.rank > 1) out[out.rank++] = a[a.rank - 2];
  if (b.rank > 1) out[out.rank++] = b.last();
  *shape = out;
  return check_elements(node, out);
}

// Shape of an operand of FusedMatMul after its transpositions.
Shape transposed(const TensorNode& node, int i, const char* last_two, const char* batch) {
  Shape shape = node.shape(i);
  if (shape.rank < 2) return shape;
  if (node.integer(batch, 0) != 0) {  // the first dimension comes before the last
    const int64_t first = shape[0];
    for (int d = 0; d + 2 < shape.rank; ++d) shape[d] = shape[d + 1];
    shape[shape.rank - 2] = first;
  }
  if (node.integer(last_two, 0) != 0) std::swap(shape[shape.rank - 2], shape[shape.rank - 1]);
  return shape;
}

}  // namespace

Status infer_MatMul(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_factors(node));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  return matrix_product(node, node.shape(0), node.shape(1), &outputs[0].shape);
}

Status infer_FusedMatMul(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(expect_factors(node));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  return matrix_product(node, transposed(node, 0, "transA", "transBatchA"),
                        transposed(node, 1, "transB", "transBatchB"), &outputs[0].shape);
}

Status infer_Gemm(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 3));
  LMN_RETURN_IF_ERROR(expect_factors(node));
  if (node.has(2) && node.dtype(2) != node.dtype(0)) {
    return node.fail("C is %s and A is %s; cast one to the type of the other",
                     std::string(info(node.dtype(2)).name).c_str(),
                     std::string(info(node.dtype(0)).name).c_str());
  }
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  for (int i = 0; i < 2; ++i) {
    if (node.rank(i) != 2) return node.fail("input %d has rank %d, not 2", i, node.rank(i));
  }
  LMN_RETURN_IF_ERROR(matrix_product(node, transposed(node, 0, "transA", ""),
                                     transposed(node, 1, "transB", ""), &outputs[0].shape));
  if (!node.has(2)) return {};
  const Shape &out = outputs[0].shape, &c = node.shape(2);
  Shape both;
  LMN_RETURN_IF_ERROR(broadcast(node, out, c, &both));
  for (int i = 0; i < both.rank; ++i) {
    const bool grows = both.rank > 2 || (out[i] >= 0 && both[i] >= 0 && both[i] != out[i]);
    if (grows) {
      return node.fail("C of shape %s does not broadcast to %s", c.to_string().c_str(),
                       out.to_string().c_str());
    }
  }
  return {};
}

Status infer_FusedGemm(const TensorNode& node, TensorTypes outputs) {
  Activation activation;
  LMN_RETURN_IF_ERROR(read_activation(node, &activation));
  return infer_Gemm(node, outputs);
}

}  // namespace lmn::ops
