// SPDX-License-Identifier: Apache-2.0
//
// Compiled as kernels are, so that their accesses are seen.
#include "faulty_kernels.h"

#include "cuda/core/simt.cuh"

namespace simt_tests {
namespace {

using namespace lmn;

constexpr int kThreads = 64;
constexpr uint32_t kShared = kThreads * 2 * sizeof(float);

struct Params {
  Fault fault;
  const float* in;
  float* out;
};

// Reverses `in` through shared memory, where nothing is wrong.
LMN_KERNEL(kThreads, 1) void reverse(Params p) {
  auto* shared = reinterpret_cast<float*>(simt::shared_memory());
  const int me = simt::thread_index();
  const Fault fault = p.fault;
  shared[me] = 0;
  simt::sync_block();
  if (fault == Fault::kWriteWrite) shared[me % 32] = 1;
  if (fault == Fault::kUnwrittenShared && me == 3) p.out[0] = shared[70];
  if (fault == Fault::kAtomicOnUnwritten && me == 3) simt::atomic_add(&shared[70], 1.0f);
  if (fault == Fault::kBeyondShared && me == 5) shared[2 * kThreads] = 1;
  if (fault == Fault::kBeyondAllocation && me == 6) p.out[0] = p.in[kThreads];
  if (fault == Fault::kBeforeAllocation && me == 6) p.out[-1] = 1;
  if (fault == Fault::kLeavesBarrier && me == 9) return;
  if (fault == Fault::kMisaligned && me == 8)
    *reinterpret_cast<simt::U32x4*>(p.out) = *reinterpret_cast<const simt::U32x4*>(p.in + 1);
  if (fault == Fault::kCopyMisaligned && me == 8) simt::copy_async(shared, p.in + 1);
  if (fault == Fault::kOtherCollectives) {
    if (me % 32 < 16) {
      p.out[me] = simt::shuffle(1.0f, 0);
    } else {
      p.out[me] = static_cast<float>(simt::ballot(true));
    }
  }
  if (fault == Fault::kBarrierAndShuffle && me != 40) p.out[me] = simt::shuffle(1.0f, 0);

  shared[me] = p.in[me];
  if (fault == Fault::kWithinWarp) p.out[me] = shared[me ^ 1];
  if (fault == Fault::kReadOfWritten) p.out[me] = shared[kThreads - 1 - me];
  simt::sync_block();
  const float mine = shared[kThreads - 1 - me];
  if (fault == Fault::kWriteOfRead) shared[me] = 0;

  // The second half of shared memory, 16 bytes for each of the first 16 threads.
  float* copied = shared + kThreads;
  if (me < kThreads / 4) {
    simt::copy_async(copied + 4 * me, p.in + 4 * me);
    simt::copy_commit();
    if (fault == Fault::kCopyNotWaitedFor) p.out[me] = copied[4 * me];
    if (fault != Fault::kCopyLeftOpen) simt::copy_wait<0>();
  }
  if (fault == Fault::kCopyWaitedByOther) p.out[me] = copied[kThreads - 1 - me];
  simt::sync_block();
  if (fault == Fault::kAtomicAndPlain) simt::atomic_add(&copied[0], 0.0f);
  if (fault != Fault::kCopyLeftOpen) p.out[me] = mine + copied[me];
}

}  // namespace

void launch_faulty(Fault fault, const float* in, float* out) {
  ops::LaunchQueue queue;
  simt::LaunchShape shape{2, 1, 1, kThreads, kShared};
  if (fault == Fault::kTooManyThreads) shape.threads = 2048;
  simt::launch<reverse>(queue, shape, Params{fault, in, out});
}

}  // namespace simt_tests
