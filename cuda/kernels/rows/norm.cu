// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/rows/norm.cuh"

namespace lmn::cuda {

void launch_op(const ops::RmsNormArgs& a, ops::LaunchQueue& queue) {
  simt::launch<rms_norm>(queue, {blocks(a.rows), 1, 1, kNormThreads, kNormShared}, a);
}

void launch_op(const ops::RmsNormQuantizeArgs& a, ops::LaunchQueue& queue) {
  const simt::LaunchShape shape{blocks(a.rows), 1, 1, kNormThreads, kNormShared};
  if (a.y_type == DType::kQA16) {
    simt::launch<rms_norm_quantize<true>>(queue, shape, a);
  } else {
    simt::launch<rms_norm_quantize<false>>(queue, shape, a);
  }
}

void launch_op(const ops::QuantizeArgs& a, ops::LaunchQueue& queue) {
  const int64_t warps = kNormThreads / simt::kWarp;
  const simt::LaunchShape shape{blocks(simt::div_up(a.rows * (a.columns / 32), warps)), 1, 1,
                                kNormThreads};
  if (a.y_type == DType::kQA16) {
    simt::launch<quantize<true>>(queue, shape, a);
  } else {
    simt::launch<quantize<false>>(queue, shape, a);
  }
}

}  // namespace lmn::cuda
