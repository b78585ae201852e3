// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/linear/tiles.cuh"

namespace lmn::cuda {

void launch_tiles_half(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  if (weight == DType::kF16) return launch_kind<HalfKind<DType::kF16>>(p, queue);
  launch_kind<HalfKind<DType::kBF16>>(p, queue);
}

}  // namespace lmn::cuda
