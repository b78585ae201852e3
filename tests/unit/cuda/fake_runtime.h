// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime and driver of devices without kernels, whose memory is the host's. It keeps what
// the real ones say of contexts: each thread has a stack of them; a call of the runtime that needs
// one, on a thread that has none, makes and takes the primary context of the device that the thread
// has set, which is device 0 here; what belongs to one context is not used under another.
#pragma once

#include <cuda.h>

#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

struct Fake {
  int driver_version = 13000;
  int has_pools = 1;
  int shared_bytes = 101376;
  std::set<int> active;              // devices that have a primary context
  std::vector<std::string> misused;  // functions that were called under another context
  int pushes = 0;
  int objects = 0;  // streams, pools, graphs, allocations that are still there
};
Fake& fake();
void reset();

CUcontext context_of(int device);
// Of the calling thread.
CUcontext current();
void set_current(CUcontext context);
size_t depth();

}  // namespace fake_cuda
