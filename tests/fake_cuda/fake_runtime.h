// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime and driver on the CPU, under cuda/core: its memory is that of guarded_heap.h, its
// kernels are the executor's. Where a mistake could hide it is as strict as the documentation of
// CUDA allows a device to be:
// - each thread has a stack of contexts; a call of the runtime on a thread that has none makes and
//   takes the primary context of device 0; what belongs to one context is not used under another;
// - work of a stream is done when somebody waits for it, or, with a seed, at some moment before;
// - page-locked memory is read when the copy is done, other memory at the call; what the host
//   changes in between is noted (core/device.h), of graphs between launch and end; all is written
//   when the copy is done;
// - memory of a pool is there for other streams once the stream that it was allocated on was waited
//   for; what is not there, or not any more, is an illegal address;
// - in a capture of mode thread-local, what CUDA forbids fails and ends the capture;
// - errors of kernels are found by a later call and stay, and so do those codes that end a context;
//   the last error of a thread stays until it is asked for.
// What a program does that it may not is noted, too, as codes get lost in destructors. One lock for
// all: work is done under it.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

constexpr int kDevices = 16;

struct Counters {
  int64_t kernels = 0;   // done
  int64_t captures = 0;  // that were ended well
  int64_t graphs = 0;    // that were asked for, cudaGraphInstantiate
  int64_t replays = 0;
  int64_t waits = 0;  // cudaStreamSynchronize
  int64_t trims = 0;
  int64_t bytes_to_host = 0, bytes_to_device = 0;
};

struct Failure {
  cudaError_t code;
  int after;  // calls that do well before
  int times;  // calls that fail
};

struct FakeDevice {
  int multiprocessors = 0;
  int64_t total_bytes = int64_t{1} << 33;
  uint64_t seed = 0;  // 0: nothing is done before somebody waits
  Counters counters;
  std::map<std::string, Failure> failures;  // by function; kKernel: when a kernel is done
};
inline constexpr const char* kKernel = "a kernel";

struct Fake {
  int driver_version = 13000;
  int has_pools = 1;
  int shared_bytes = 101376;
  bool ticks = false;                // an event is 1/1024 ms after the one before it, on any stream
  std::set<int> active;              // devices that have a primary context
  std::vector<std::string> misused;  // what was done that may not be
  int pushes = 0;
  int objects = 0;  // streams, events, pools, graphs, allocations that are still there
  FakeDevice devices[kDevices];
};
Fake& fake();
// As in a new process; of one device: what is still there is gone, its context, too.
void reset();
void reset(int device);
// What was left in streams that were destroyed is done, and what is wrong by then is told, once.
std::vector<std::string> finish(int device);

int64_t pool_bytes(int device);  // that are in use
int64_t pinned_bytes(int device);

CUcontext context_of(int device);
// Of the calling thread.
CUcontext current();
void set_current(CUcontext context);
size_t depth();
cudaError_t last_error();  // and leaves it

}  // namespace fake_cuda
