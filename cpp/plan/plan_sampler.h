// SPDX-License-Identifier: Apache-2.0
//
// PlanSampler: the memory with which a plan's device draws tokens from its logits: what is asked
// for and what came of it, on the device and, page-locked, on the host, and the kernels' own.
#pragma once

#include <cstdint>
#include <span>

#include "core/sampling.h"
#include "ops/kernel.h"
#include "plan/device_block.h"
#include "plan/plan_queue.h"

namespace lmn::plan {

class PlanSampler {
 public:
  // A default one is that of a device that does not sample.
  PlanSampler() = default;
  // For up to `rows` samples at a time of rows of `vocab` logits.
  static Result<PlanSampler> create(Device& device, int64_t rows, int64_t vocab);
  struct Bytes {
    int64_t device = 0, pinned = 0;
  };
  // What such a one takes.
  static Bytes bytes(const ops::KernelTable& table, int64_t rows, int64_t vocab);

  std::span<SampleRow> samples() const {
    return {reinterpret_cast<SampleRow*>(host_samples_.data()), rows_};
  }
  std::span<const SampleChoice> choices() const {
    return {reinterpret_cast<const SampleChoice*>(host_choices_.data()), rows_};
  }
  // Queues the first `count` samples on the way to the device, the draw, and choices on the way
  // back.
  Status enqueue(PlanQueue& queue, const float* logits, int64_t count, bool greedy);

 private:
  ops::KernelFn kernel_ = nullptr;
  size_t rows_ = 0;
  int64_t vocab_ = 0;
  PinnedBlock host_samples_, host_choices_;
  DeviceBlock samples_, choices_, workspace_;
};

}  // namespace lmn::plan
