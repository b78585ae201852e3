// SPDX-License-Identifier: Apache-2.0
//
// Worker: which part of an operator's work one member of the thread team does. Plain data, no
// includes beyond the fixed-width types: the per-instruction-set kernel files read it (DESIGN
// section 6).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmn::ops {

// Where kernels of a device that queues them put them (core/device.h: Stream), and what sizes their
// grids. One thread uses it at a time, which has entered the stream. Results depend on none of it.
struct LaunchQueue {
  void* stream = nullptr;       // the device's own
  int32_t device = 0;           // which of its kind that is
  int32_t multiprocessors = 1;  // Device::multiprocessors
  // Device memory for kernels of this stream, which come one after the other, 256-byte aligned:
  // KernelTable::workspace_bytes.
  std::byte* workspace = nullptr;
  size_t workspace_bytes = 0;
  // Of the rows of this run: none attends to more than so many positions, and so many, from the
  // first, are each the only one of their sequence.
  int64_t context = 0;
  int64_t single_rows = 0;
  // Kernels may start while the one before them ends (cuda/core/simt.cuh: wait_for_previous).
  bool overlaps = false;
  // The device's code of the first launch that failed; 0: none. Nothing is queued after it.
  int32_t failure = 0;
};

struct Worker {
  int index = 0;  // which member of the team: selects scratch and WorkerLocal copies
  int part = 0;   // which part of the work, in [0, parts)
  int parts = 1;  // parts == 1 with several workers: every worker does all of it, into its own copy
  std::byte* scratch = nullptr;  // this worker's own, KernelTable::scratch_bytes, 64-byte aligned
  // Common to the workers of the team: KernelTable::shared_bytes, 64-byte aligned, all zero before
  // the first kernel of all runs and then the kernels' own: attention's, and between two of these
  // the team waits (plan/barriers.h). Null: there is none, and they do without.
  std::byte* shared = nullptr;
  LaunchQueue* queue = nullptr;  // null on devices whose kernels run on the workers
};

using KernelFn = void (*)(const void* args, const Worker& worker);

}  // namespace lmn::ops
