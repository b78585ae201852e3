// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear/few_rows_launch.cuh"

namespace lmn::cuda {
namespace {

template <DType kType>
void launch_half_splits(const LinearParams& p, ops::LaunchQueue& queue) {
  if (p.rows == 1) return launch_splits<HalfSplit<kType, 1>>(p, queue);
  launch_splits<HalfSplit<kType, 8>>(p, queue);
}

}  // namespace

void launch_few_rows_float(DType weight, const LinearParams& p, ops::LaunchQueue& queue) {
  if (weight == DType::kF16) return launch_half_splits<DType::kF16>(p, queue);
  if (weight == DType::kBF16) return launch_half_splits<DType::kBF16>(p, queue);
  if (p.rows == 1) return launch_splits<FloatSplit<1>>(p, queue);
  launch_splits<FloatSplit<8>>(p, queue);
}

}  // namespace lmn::cuda
