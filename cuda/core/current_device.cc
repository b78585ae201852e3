// SPDX-License-Identifier: Apache-2.0
#include "cuda/core/current_device.h"

#include <cuda_runtime.h>

namespace lmn::cuda {

CurrentDevice::CurrentDevice(int ordinal) : ordinal_(ordinal) {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = ordinal;
  if (before_ != ordinal) (void)cudaSetDevice(ordinal);
}

CurrentDevice::~CurrentDevice() {
  if (before_ != ordinal_) (void)cudaSetDevice(before_);
}

}  // namespace lmn::cuda
