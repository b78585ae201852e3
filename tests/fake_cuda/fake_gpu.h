// SPDX-License-Identifier: Apache-2.0
//
// FakeGpu: the CUDA device (cuda/core) over the runtime of tests, with the kernels on the executor.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/device.h"
#include "fake_runtime.h"

namespace fake_cuda {

struct GpuOptions {
  int64_t memory_bytes = int64_t{8} << 30;  // that Device::memory() says are free
  int multiprocessors = 4;
  uint64_t seed = 0;  // FakeDevice::seed
};

class FakeGpu {
 public:
  // The first device that no other has, as in a new process; never device 0, which a thread
  // without a context gets.
  explicit FakeGpu(const GpuOptions& options = {});
  // What the device did that it may not, or left behind, fails the test.
  ~FakeGpu();
  FakeGpu(const FakeGpu&) = delete;

  lmn::Device& operator*() const { return *device_; }
  const Counters& counters() const { return state().counters; }
  int64_t bytes_in_use() const { return pool_bytes(ordinal_); }
  int64_t pinned_in_use() const { return pinned_bytes(ordinal_); }
  // From now on the n-th call of the function, and `times - 1` after it, give the code.
  void fail(const char* function, cudaError_t code, int nth = 1, int times = 1);
  // The n-th kernel that is done from now goes wrong, which closes the device.
  void fail_kernel(int nth) { fail(kKernel, cudaErrorIllegalAddress, nth); }
  void fail_no_more();

 private:
  FakeDevice& state() const { return fake().devices[ordinal_]; }

  int ordinal_ = 1;
  std::unique_ptr<lmn::Device> device_;
};

// The device, which keeps the GPU.
inline std::shared_ptr<lmn::Device> shared_device(std::shared_ptr<FakeGpu> gpu) {
  lmn::Device* device = &**gpu;
  return {std::move(gpu), device};
}

}  // namespace fake_cuda
