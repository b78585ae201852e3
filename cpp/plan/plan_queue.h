// SPDX-License-Identifier: Apache-2.0
//
// PlanQueue: how a plan reaches a device that is not the host: a stream, memory for the kernels'
// own use, and page-locked copies of inputs and outputs. On the host there is none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "ops/worker.h"
#include "plan/device_block.h"

namespace lmn::plan {

// Bytes, from the first of the arena.
struct ByteRange {
  int64_t begin = 0, end = 0;
};

// A copy takes about a microsecond, however short, and as long again for so many bytes.
inline constexpr int64_t kCloseBytes = 32 * 1024;
// Ranges in ascending order, those that lie close together joined.
void join_close(std::vector<ByteRange>* ranges);

class PlanQueue {
 public:
  // A default one is that of a plan on the host.
  PlanQueue() = default;
  static Result<PlanQueue> create(Device& device, int64_t input_bytes, int64_t output_bytes,
                                  int64_t workspace_bytes);

  bool exists() const { return stream_ != nullptr; }
  Stream& stream() { return *stream_; }
  ops::LaunchQueue& launches() { return launches_; }
  std::byte* inputs() const { return inputs_.data(); }
  std::byte* outputs() const { return outputs_.data(); }

  // Queues copies of these bytes of the inputs to the same places behind `arena`.
  Status send(std::byte* arena, std::span<const ByteRange> ranges);
  // The first `row_bytes` of each of `rows` rows that begin `stride` bytes apart from `begin` on.
  Status send_rows(std::byte* arena, int64_t begin, int64_t stride, int64_t row_bytes,
                   int64_t rows);
  // What launchers could not do since the last call.
  Status take_launch_error();

 private:
  PinnedBlock inputs_, outputs_;
  DeviceBlock workspace_;
  ops::LaunchQueue launches_;
  std::unique_ptr<Stream> stream_;  // the first to go: it waits for what uses the rest
};

}  // namespace lmn::plan
