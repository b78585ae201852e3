// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/linear/tiles.cuh"

namespace lmn::cuda {

void launch_tiles_qa16(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  launch_quantized_tiles<true>(weight, p, queue);
}

}  // namespace lmn::cuda
