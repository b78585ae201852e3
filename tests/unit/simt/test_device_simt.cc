// SPDX-License-Identifier: Apache-2.0
//
// Each its own, as one that failed is closed: a fault is that of one case. Its memory is guarded.
#include "executor.h"
#include "host_device.h"
#include "test_device.h"

namespace simt_tests {

std::shared_ptr<lmn::Device> test_device() { return make_host_device(); }
std::optional<int64_t> counted_launches() { return launches(); }

}  // namespace simt_tests
