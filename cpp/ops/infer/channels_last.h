// SPDX-License-Identifier: Apache-2.0
//
// Operators over [batch, spatial..., channels] as those over [batch, channels, spatial...], whose
// geometry they share: a node whose operands' shapes are turned.
#pragma once

#include <utility>
#include <vector>

#include "ops/tensor_op.h"

namespace lmn::ops {

// A shape of rank 3 at least; others stay.
inline Shape channels_first(const Shape& last) {
  Shape out = last;
  if (last.rank < 3) return out;
  out[1] = last[last.rank - 1];
  for (int i = 2; i < last.rank; ++i) out[i] = last[i - 1];
  return out;
}
inline Shape channels_last(const Shape& first) {
  Shape out = first;
  if (first.rank < 3) return out;
  out[first.rank - 1] = first[1];
  for (int i = 2; i < first.rank; ++i) out[i - 1] = first[i];
  return out;
}

// Holds what its node() points to; lives no longer than `node`.
class ChannelsFirstNode {
 public:
  // Operand 0, and `also`, are turned.
  explicit ChannelsFirstNode(const TensorNode& node, int also = -1) : original_(node) {
    for (int i = 0; i < node.inputs(); ++i) {
      operands_.push_back(node.operand(i));
      if (i == 0 || i == also)
        operands_.back().type.shape = channels_first(operands_.back().type.shape);
    }
  }
  TensorNode node() const {
    return {original_.op(), original_.attributes(), original_.name(), operands_,
            original_.outputs()};
  }

 private:
  const TensorNode& original_;
  std::vector<Operand> operands_;
};

}  // namespace lmn::ops
