// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear/few_rows_launch.cuh"

namespace lmn::cuda {

void launch_few_rows_qa8(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  launch_few_rows<false>(weight, p, queue);
}

}  // namespace lmn::cuda
