// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/products.def.
#include "ops/infer/infer.h"

namespace lmn::ops {

Status infer_MatMul(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  outputs[0].dtype = node.dtype(0);
  if (node.dtype(0) != node.dtype(1)) return node.fail("inputs are of two types; cast one");
  if (!node.ranked()) return {};
  const Shape &a = node.shape(0), &b = node.shape(1);
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
  if (out.rank + 2 > kMaxRank) return node.unsupported("rank above %d", kMaxRank);
  if (a.rank > 1) out[out.rank++] = a[a.rank - 2];
  if (b.rank > 1) out[out.rank++] = b.last();
  outputs[0].shape = out;
  return {};
}

}  // namespace lmn::ops
