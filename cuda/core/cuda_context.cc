// SPDX-License-Identifier: Apache-2.0
#include "cuda/core/cuda_context.h"

#include <cuda_runtime.h>

namespace lmn::cuda {
namespace {

// The driver's functions are found by the runtime, which has loaded it.
template <typename Function>
cudaError_t find_in_driver(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess) return code;
  if (result != cudaDriverEntryPointSuccess) return cudaErrorInsufficientDriver;
  *function = reinterpret_cast<Function>(found);
  return cudaSuccess;
}

}  // namespace

Status Context::open(int ordinal, Health& health) {
  CUresult (*device_of)(CUdevice*, int) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  for (const cudaError_t code :
       {find_in_driver("cuCtxGetCurrent", &get_), find_in_driver("cuCtxPushCurrent", &push_),
        find_in_driver("cuCtxPopCurrent", &pop_), find_in_driver("cuDeviceGet", &device_of),
        find_in_driver("cuDevicePrimaryCtxRetain", &retain)})
    LMN_RETURN_IF_ERROR(health.map(code, "asking the driver for its functions"));
  LMN_RETURN_IF_ERROR(health.map(cudaInitDevice(ordinal, 0, 0), "initialising the device"));
  CUdevice device{};
  CUresult result = device_of(&device, ordinal);
  if (result == CUDA_SUCCESS) result = retain(&handle_, device);
  // Codes of the driver are the runtime's.
  return health.map(static_cast<cudaError_t>(result), "taking its primary context");
}

CurrentDevice::CurrentDevice(const Context& context)
    : context_(context), pushed_(!context.is_current() && context.push()) {}

CurrentDevice::~CurrentDevice() {
  if (pushed_) context_.pop();
}

}  // namespace lmn::cuda
