// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/fused.def.
#include "ops/infer/fused.h"

#include <algorithm>

namespace lmn::ops {

Status infer_FusedLinear(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 4));
  for (int i = 0; i < 4; ++i) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  outputs[0].dtype = DType::kF32;
  const bool transposed = node.integer("transposed", 0) != 0;
  if (!node.type(1).is_known() || node.rank(1) != 2) return node.fail("W is not a matrix");
  const int64_t inner = node.shape(1)[transposed ? 1 : 0],
                columns = node.shape(1)[transposed ? 0 : 1];
  if (node.has(2) && node.type(2).ranked() && node.shape(2) != Shape{columns})
    return node.fail("bias is %s, expected [%lld]", node.shape(2).to_string().c_str(),
                     static_cast<long long>(columns));
  if (!node.type(0).ranked()) return {};
  Shape out = node.shape(0);
  if (out.rank < 1 || (out.last() >= 0 && out.last() != inner))
    return node.fail("x is %s, and W %s", out.to_string().c_str(),
                     node.shape(1).to_string().c_str());
  out[out.rank - 1] = columns;
  if (!node.has(3)) {
    outputs[0].shape = out;
    return {};
  }
  if (!node.type(3).ranked()) return {};
  if (node.rank(3) < 1 || (node.shape(3).last() >= 0 && node.shape(3).last() != columns))
    return node.fail("residual is %s, and the product %s", node.shape(3).to_string().c_str(),
                     out.to_string().c_str());
  return broadcast(node, out, node.shape(3), &outputs[0].shape);
}

Status read_permutation(const TensorNode& node, std::string_view key, std::array<int, 4>* perm) {
  *perm = {0, 1, 2, 3};
  const Ints* wanted = node.integers(key);
  if (wanted == nullptr) return {};
  uint32_t seen = 0;
  for (int64_t axis : *wanted) seen |= axis >= 0 && axis < 4 ? 1u << axis : 0;
  if (wanted->size() != 4 || seen != 15u)
    return node.fail("%s is no order of four axes", std::string(key).c_str());
  std::transform(wanted->begin(), wanted->end(), perm->begin(),
                 [](int64_t axis) { return static_cast<int>(axis); });
  return {};
}

Status infer_DotAttention(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 6));
  for (int i = 0; i < 6; ++i) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  outputs[0].dtype = DType::kF32;
  std::array<std::array<int, 4>, 4> perms;
  constexpr std::string_view kKeys[] = {"q_perm", "k_perm", "v_perm", "y_perm"};
  for (size_t i = 0; i < 4; ++i) LMN_RETURN_IF_ERROR(read_permutation(node, kKeys[i], &perms[i]));
  if (!node.ranked()) return {};
  Shape shapes[3], batches[3];
  for (int i = 0; i < 3; ++i) {
    if (node.rank(i) != 4)
      return node.fail("operand %d is %s, expected 4 axes", i, node.shape(i).to_string().c_str());
    shapes[i].rank = 4;
    for (int d = 0; d < 4; ++d)
      shapes[i][d] = node.shape(i)[perms[static_cast<size_t>(i)][static_cast<size_t>(d)]];
    batches[i] = Shape{shapes[i][0], shapes[i][1]};
  }
  const auto differ = [](int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; };
  Shape scores, out;
  LMN_RETURN_IF_ERROR(broadcast(node, batches[0], batches[1], &scores));
  LMN_RETURN_IF_ERROR(broadcast(node, Shape(scores), batches[2], &scores));
  scores.rank = out.rank = 4;
  scores[2] = shapes[0][2];
  scores[3] = shapes[1][2];
  if (node.has(3)) {
    if (node.rank(3) > 4)
      return node.fail("mask is %s, expected 4 axes", node.shape(3).to_string().c_str());
    LMN_RETURN_IF_ERROR(broadcast(node, Shape(scores), node.shape(3), &scores));
  }
  if (differ(shapes[0][3], shapes[1][3]) || differ(scores[3], shapes[2][2]))
    return node.fail("q is %s, k %s and v %s", shapes[0].to_string().c_str(),
                     shapes[1].to_string().c_str(), shapes[2].to_string().c_str());
  for (int i : {4, 5}) {
    if (node.has(i) && node.type(i).is_known() && node.shape(i).elements() != 1)
      return node.fail("a scale is %s", node.shape(i).to_string().c_str());
  }
  const Shape y{scores[0], scores[1], scores[2], shapes[2][3]};
  for (int d = 0; d < 4; ++d) out[d] = y[perms[3][static_cast<size_t>(d)]];
  outputs[0].shape = out;
  return {};
}

}  // namespace lmn::ops
