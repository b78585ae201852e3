// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device over a runtime of tests. Each its own, as one that failed is closed: a fault is
// that of one case.
#include "executor.h"
#include "fake_gpu.h"
#include "test_device.h"

namespace simt_tests {

std::shared_ptr<lmn::Device> test_device() {
  return fake_cuda::shared_device(std::make_shared<fake_cuda::FakeGpu>());
}
std::optional<int64_t> counted_launches() { return launches(); }

}  // namespace simt_tests
