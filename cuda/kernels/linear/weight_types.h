// SPDX-License-Identifier: Apache-2.0
//
// From the type of quantised weights, which is known when a launcher runs, to the kernel that has
// it as a template argument.
#pragma once

#include "core/dtype.h"

namespace lmn::cuda {

// launch.template operator()<kType>() for the quantised type `weight`: one that plan_pack takes.
template <typename Launch>
void with_quantized_type(DType weight, const Launch& launch) {
  switch (weight) {
    case DType::kQ4_0:
      return launch.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return launch.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return launch.template operator()<DType::kQ5_0>();
    case DType::kQ5_1:
      return launch.template operator()<DType::kQ5_1>();
    case DType::kQ4_K:
      return launch.template operator()<DType::kQ4_K>();
    case DType::kQ5_K:
      return launch.template operator()<DType::kQ5_K>();
    case DType::kQ6_K:
      return launch.template operator()<DType::kQ6_K>();
    case DType::kQ8_0:
      return launch.template operator()<DType::kQ8_0>();
    default:
      return;  // plan_pack takes no other
  }
}

}  // namespace lmn::cuda
