// SPDX-License-Identifier: Apache-2.0
//
// Evaluation of tensor_ops/values.def.
#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {

Status evaluate_NonZero(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  const auto find = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const int64_t count = x.shape.elements();
    std::vector<int64_t> found;
    for (int64_t i = 0; i < count; ++i) {
      if (x.as<T>()[i] != T(0)) found.push_back(i);
    }
    const int64_t n = static_cast<int64_t>(found.size()), rank = std::max(x.shape.rank, 1);
    const Shape shape{rank, n};
    LMN_ASSIGN_OR_RETURN(int64_t* const out, context.make<int64_t>(0, DType::kI64, shape));
    for (int64_t i = 0; i < n; ++i) {
      int64_t index = found[static_cast<size_t>(i)];
      for (int64_t d = rank - 1; d >= 0; --d) {
        const int64_t size = x.shape.rank == 0 ? 1 : x.shape[static_cast<int>(d)];
        out[d * n + i] = index % size;
        index /= size;
      }
    }
    return {};
  };
  if (x.dtype == DType::kBool) return find(TypeTag<uint8_t>{});
  return with_number(node, x.dtype, find);
}

}  // namespace lmn::cpu
