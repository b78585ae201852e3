// SPDX-License-Identifier: Apache-2.0
//
// The executor: runs kernels of cuda/ on a CPU, as cuda/core/simt_host.cuh promises them. Blocks
// come one after the other, the threads of a block are fibres that run until they wait.
//
// What it finds, and reports as a fault of the kernel, naming it, the block and the threads:
// - two threads that touch the same byte of shared memory, one of them writing, with no barrier
//   between them (sync_block for the block, sync_warp within a warp);
// - reads of shared memory that nobody wrote, and of bytes whose asynchronous copy was not waited
//   for; shared memory is new, and poisoned, in every block;
// - accesses beyond shared memory or an allocation of guarded_heap.h, and such that are not aligned
//   to their size;
// - where kernels overlap, accesses to global memory before wait_for_previous() but by load_once;
// - threads that wait for each other in different places, or for threads that have ended.
// All but the last need the kernel's file compiled with -fsanitize=thread, whose calls hooks.cc
// answers (no ThreadSanitizer is linked); under AddressSanitizer, that finds what lies beyond.
//
// After the first fault of a launch the rest of it is not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ops/worker.h"

namespace simt_tests {

// What LaunchQueue::stream points at: where launches go.
class LaunchStream {
 public:
  // 0, or LaunchQueue::failure: then it will not be done.
  virtual int32_t launch(std::function<void()> kernel) = 0;

 protected:
  ~LaunchStream() = default;
};

// A launch that goes to no stream (LaunchQueue::stream null) runs at once.

// The first fault since the last call, or empty; any thread's.
std::string take_fault();

// Launches since the program began.
int64_t launches();

// Whether kernels were compiled so that accesses are seen.
bool observes_memory();

namespace detail {
void access(const void* at, size_t bytes, bool write, bool aligned);
}

}  // namespace simt_tests
