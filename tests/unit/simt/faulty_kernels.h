// SPDX-License-Identifier: Apache-2.0
//
// Kernels that each break one rule of simt.cuh, and the same kernel without the fault.
#pragma once

#include <cstdint>

#include "ops/worker.h"

namespace simt_tests {

enum class Fault : int32_t {
  kNone,
  kWriteWrite,         // two warps write a word
  kReadOfWritten,      // reads what another warp writes
  kWriteOfRead,        // writes what another warp reads
  kWithinWarp,         // reads what a lane of its warp writes
  kUnwrittenShared,    // reads shared memory that nobody wrote
  kCopyNotWaitedFor,   // reads what is still being copied
  kCopyWaitedByOther,  // reads what another thread's copy brought, without a barrier
  kCopyLeftOpen,       // ends before its copies
  kBeyondAllocation,   // reads one element past the end
  kBeforeAllocation,   // writes one before the begin
  kBeyondShared,       // writes past the end of shared memory
  kMisaligned,         // loads 16 bytes from 4 past their multiple
  kCopyMisaligned,     // copies from there
  kLeavesBarrier,      // a thread ends while the others wait for it
  kOtherCollectives,   // half of a warp shuffles, half votes
  kBarrierAndShuffle,  // a lane waits for the block, the others for the warp
  kAtomicOnUnwritten,  // adds to shared memory that nobody wrote
  kAtomicAndPlain,     // reads by itself what is added to atomically: no fault that is seen
  kTooManyThreads,     // a block of 2,048
};

// 64 threads, two blocks. in, out: [64]. A launch at once.
void launch_faulty(Fault fault, const float* in, float* out);

}  // namespace simt_tests
