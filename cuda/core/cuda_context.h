// SPDX-License-Identifier: Apache-2.0
//
// The primary context of a device, and how a thread gets it: by the driver's stack of contexts,
// which host and library share. cudaSetDevice would not do: since CUDA 12 it makes a context on the
// device that it names, and so would the call that gives a thread the device back that it had,
// which is device 0 where the host has never chosen one.
#pragma once

#include <cuda.h>

#include "core/status.h"
#include "cuda/core/cuda_error.h"
#include "cuda/core/current_device.h"

namespace lmn::cuda {

class Context {
 public:
  // Initialises the device. Its context then stays to the end of the process, as it does where the
  // runtime makes it: the runtime keeps what it loaded into it, and does not see it go.
  Status open(int ordinal, Health& health);

  // On top of the calling thread's stack, and from there again. False: it is not.
  bool push() const { return push_(handle_) == CUDA_SUCCESS; }
  void pop() const {
    CUcontext popped = nullptr;
    (void)pop_(&popped);
  }
  bool is_current() const {
    CUcontext current = nullptr;
    return get_(&current) == CUDA_SUCCESS && current == handle_;
  }

 private:
  CUcontext handle_ = nullptr;
  CUresult (*get_)(CUcontext*) = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
};

}  // namespace lmn::cuda
