// SPDX-License-Identifier: Apache-2.0
//
// Steps of lmnative.ElementwiseChain to and from their text. Inference checks it; kernels read it
// again by the same function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/elementwise_chain.h"
#include "ops/tensor_op.h"

namespace lmn::ops {

struct ChainOpInfo {
  std::string_view name;
  int operands, numbers;
};
const ChainOpInfo& info(ChainOp op);

std::string to_text(const ChainStep& step);
// The attribute steps of a node. INVALID_ARGUMENT names a step that is none.
Status read_chain(const TensorNode& node, std::vector<ChainStep>* steps);

}  // namespace lmn::ops
