// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_queue.h"

#include <algorithm>
#include <utility>

namespace lmn::plan {

void join_close(std::vector<ByteRange>* ranges) {
  std::sort(ranges->begin(), ranges->end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (const ByteRange& range : *ranges) {
    if (range.begin >= range.end) continue;
    if (kept > 0 && range.begin - (*ranges)[kept - 1].end < kCloseBytes) {
      (*ranges)[kept - 1].end = std::max((*ranges)[kept - 1].end, range.end);
    } else {
      (*ranges)[kept++] = range;
    }
  }
  ranges->resize(kept);
}

Result<PlanQueue> PlanQueue::create(Device& device, int64_t input_bytes, int64_t output_bytes,
                                    int64_t workspace_bytes) {
  PlanQueue queue;
  LMN_ASSIGN_OR_RETURN(queue.stream_, device.create_stream());
  LMN_ASSIGN_OR_RETURN(queue.inputs_,
                       PinnedBlock::create(device, static_cast<size_t>(input_bytes)));
  LMN_ASSIGN_OR_RETURN(queue.outputs_,
                       PinnedBlock::create(device, static_cast<size_t>(output_bytes)));
  LMN_ASSIGN_OR_RETURN(queue.workspace_, DeviceBlock::create_uninitialized(
                                             device, static_cast<size_t>(workspace_bytes)));
  queue.launches_.stream = queue.stream_->handle();
  queue.launches_.device = queue.stream_->device_index();
  queue.launches_.multiprocessors = device.multiprocessors();
  queue.launches_.overlaps = queue.stream_->overlaps_kernels();
  queue.launches_.workspace = queue.workspace_.data();
  queue.launches_.workspace_bytes = queue.workspace_.bytes();
  return queue;
}

Status PlanQueue::send(std::byte* arena, std::span<const ByteRange> ranges) {
  for (const ByteRange& range : ranges) {
    LMN_RETURN_IF_ERROR(stream_->copy_from_host(arena + range.begin, inputs_.data() + range.begin,
                                                static_cast<size_t>(range.end - range.begin)));
  }
  return {};
}

Status PlanQueue::send_rows(std::byte* arena, int64_t begin, int64_t stride, int64_t row_bytes,
                            int64_t rows) {
  return stream_->copy_rows_from_host(arena + begin, inputs_.data() + begin,
                                      static_cast<size_t>(stride), static_cast<size_t>(row_bytes),
                                      static_cast<size_t>(rows));
}

Status PlanQueue::take_launch_error() {
  const int32_t failure = std::exchange(launches_.failure, 0);
  return failure == 0 ? Status() : stream_->launch_error(failure);
}

}  // namespace lmn::plan
