// SPDX-License-Identifier: Apache-2.0
//
// Stream over a cudaStream_t, and recordings over CUDA graphs.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "core/device.h"
#include "cuda/core/cuda_error.h"

namespace lmn::cuda {

// `health` outlives the stream, as the device does. `overlaps`: a kernel may start while the one
// before it ends.
Result<std::unique_ptr<Stream>> create_cuda_stream(int ordinal, Health& health, bool overlaps);

// Makes a device the calling thread's for a scope, and then the one that was.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = ordinal;
    if (before_ != ordinal) (void)cudaSetDevice(ordinal);
    ordinal_ = ordinal;
  }
  ~CurrentDevice() {
    if (before_ != ordinal_) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;

 private:
  int before_ = 0, ordinal_ = 0;
};

}  // namespace lmn::cuda
