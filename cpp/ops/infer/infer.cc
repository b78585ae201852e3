// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/infer.h"

namespace lmn::ops {

Status broadcast(const TensorNode& node, const Shape& a, const Shape& b, Shape* out) {
  Shape result;
  result.rank = std::max(a.rank, b.rank);
  for (int i = 0; i < result.rank; ++i) {
    const int in_a = i - (result.rank - a.rank), in_b = i - (result.rank - b.rank);
    if (!broadcast_size(in_a < 0 ? 1 : a[in_a], in_b < 0 ? 1 : b[in_b], &result[i])) {
      return node.fail("shapes %s and %s do not broadcast: dimension %d differs and is not 1",
                       a.to_string().c_str(), b.to_string().c_str(), i);
    }
  }
  *out = result;
  return {};
}

Status broadcast_all(const TensorNode& node, Shape* out) {
  *out = Shape{};
  for (int i = 0; i < node.inputs(); ++i) {
    if (node.has(i)) LMN_RETURN_IF_ERROR(broadcast(node, *out, node.shape(i), out));
  }
  return {};
}

Status same_as_input(const TensorNode& node, TensorTypes outputs) {
  outputs[0] = node.type(0);
  return {};
}

}  // namespace lmn::ops
