// SPDX-License-Identifier: Apache-2.0
//
// HostDevice: the CUDA device's kernels on the executor, behind core/device.h. Its memory is that
// of guarded_heap.h. Work is queued, and done when somebody waits: a host that reads its results
// earlier, or changes what it has queued a copy of, computes something else than on the CPU.
#pragma once

#include <memory>
#include <string>

#include "core/device.h"
#include "ops/dense_products.h"

namespace simt_tests {

struct HostDeviceOptions {
  int64_t memory_bytes = int64_t{8} << 30;  // that there seems to be
  int multiprocessors = 4;                  // that there seem to be
  // The n-th wait from now fails, as if a kernel had gone wrong, and closes the device; 0: none.
  int fail_after = 0;
  const lmn::ops::DenseProducts* products = nullptr;  // outlive it
};

struct HostDeviceCounters {
  int64_t launched = 0;    // kernels run, by all devices of the program
  int64_t replays = 0;     // of recordings
  int64_t recordings = 0;  // made
  int64_t waits = 0;       // synchronize(), and copies that are done when they return
  int64_t bytes_to_host = 0;
  int64_t bytes_to_device = 0;  // on streams
};

class HostDevice : public lmn::Device {
 public:
  virtual const HostDeviceCounters& counters() const = 0;
  virtual void set_fail_after(int waits) = 0;
  // From now on there is no room for recordings, or there is.
  virtual void set_room_for_recordings(bool room) = 0;
  virtual int64_t bytes_in_use() const = 0;
  virtual int64_t pinned_in_use() const = 0;  // of the host, page-locked
};

std::unique_ptr<HostDevice> make_host_device(const HostDeviceOptions& options = {});

}  // namespace simt_tests
