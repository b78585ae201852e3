// SPDX-License-Identifier: Apache-2.0
#include "fake_gpu.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/core/cuda_device.h"
#include "runtime_state.h"
#include "testing.h"

namespace fake_cuda {
namespace {

bool taken[kDevices] = {};

// Of which so many bytes are free when the device has kept a 32nd, or 512 MiB, for itself.
int64_t total_for(int64_t free_bytes) {
  const auto free_of = [](int64_t total) {
    return total - std::min(total / 32, int64_t{512} << 20);
  };
  int64_t total = std::min(free_bytes + free_bytes / 31, free_bytes + (int64_t{512} << 20));
  while (free_of(total) < free_bytes) ++total;
  return total;
}

}  // namespace

FakeGpu::FakeGpu(const GpuOptions& options) {
  while (ordinal_ + 1 < kDevices && taken[ordinal_]) ++ordinal_;
  reset(ordinal_);
  fake().active.erase(0);
  state().total_bytes = total_for(options.memory_bytes);
  state().multiprocessors = options.multiprocessors;
  state().seed = options.seed;
  auto made = lmn::cuda::create_cuda_device(ordinal_);
  ASSERT_OK(made);
  taken[ordinal_] = true;
  device_ = std::move(made).value();
}

FakeGpu::~FakeGpu() {
  device_.reset();
  for (const std::string& wrong : finish(ordinal_))
    testing::report_failure(__FILE__, __LINE__, "cuda:" + std::to_string(ordinal_) + ": " + wrong);
  reset(ordinal_);
  taken[ordinal_] = false;
}

void FakeGpu::fail(const char* function, cudaError_t code, int nth, int times) {
  const Guard guard;
  state().failures[function] = {code, nth - 1, times};
}

void FakeGpu::fail_no_more() {
  const Guard guard;
  state().failures.clear();
}

}  // namespace fake_cuda
