// SPDX-License-Identifier: Apache-2.0
//
// How a specialisation with a device runs: its steps in order, what is for the device queued on the
// frame's stream. Whatever happens, nothing is left on the stream that touches the caller's memory.
#include <atomic>
#include <cstring>

#include "ops/kernel.h"
#include "plan/program/device_part.h"
#include "plan/program/program.h"
#include "plan/program/run_context.h"

namespace lmn::plan {

static_assert(sizeof(std::atomic<const char*>) == sizeof(uint64_t),
              "a word of the device stands for Operands::failure");

Status Program::execute_on_device(const Specialization& s, Frame& frame,
                                  const RunContext& context) const {
  const EnteredStream entered(*frame.device->stream);
  Status status = run_device_steps(s, frame, context);
  if (status.ok()) return finish_on_device(frame);
  (void)frame.device->stream->synchronize();  // the first error counts
  frame.device->queue.failure = 0;
  (void)finish_on_device(frame);  // a kernel may have noted something
  return status;
}

Status Program::run_device_steps(const Specialization& s, Frame& frame,
                                 const RunContext& context) const {
  using Kind = DeviceStep::Kind;
  DeviceFrame& device = *frame.device;
  Stream& stream = *device.stream;
  const bool limited = context.is_limited();
  ops::Worker worker;
  worker.scratch = device.scratch;
  worker.queue = &device.queue;
  for (const DeviceStep& step : s.device->steps) {
    const auto root = static_cast<size_t>(step.first);
    const auto bytes = static_cast<size_t>(step.bytes);
    switch (step.kind) {
      case Kind::kToDevice:
        LMN_RETURN_IF_ERROR(stream.copy_from_host(device.table[root], frame.table[root], bytes));
        break;
      case Kind::kToHost:
        LMN_RETURN_IF_ERROR(stream.copy_to_host(frame.table[root], device.table[root], bytes));
        break;
      case Kind::kWait:
        LMN_RETURN_IF_ERROR(stream.synchronize());
        break;
      case Kind::kStage: {
        if (limited) LMN_RETURN_IF_ERROR(context.check());
        const ProgramStage& stage = s.stages[root];
        const int32_t* operands = s.operands.data() + stage.operands;
        const auto inputs = static_cast<size_t>(s.operand_counts[root]);
        const ops::Operands io{device.table.data(),
                               {operands, inputs},
                               {operands + inputs, graph_.node(stage.node).outputs.size()},
                               reinterpret_cast<std::atomic<const char*>*>(device.failure)};
        stage.kernel.run(stage.kernel.state.get(), io, worker);
        if (device.queue.failure != 0) return stream.launch_error(device.queue.failure);
        break;
      }
      case Kind::kHostStages:
        LMN_RETURN_IF_ERROR(run_stages(s, frame, root, static_cast<size_t>(step.last), context));
        break;
      case Kind::kLate:
        LMN_RETURN_IF_ERROR(context.check());
        LMN_RETURN_IF_ERROR(run_late(s, frame, s.stages[root].node, context));
        break;
    }
  }
  return {};
}

// Waits, and tells what kernels found wrong in their data.
Status Program::finish_on_device(Frame& frame) const {
  DeviceFrame& device = *frame.device;
  const size_t bytes = device.heard.bytes();
  LMN_RETURN_IF_ERROR(device.stream->copy_to_host(device.heard.data(), device.failure, bytes));
  LMN_RETURN_IF_ERROR(device.stream->synchronize());
  const char* what;
  std::memcpy(&what, device.heard.data(), bytes);
  if (what == nullptr) return {};
  std::memset(device.heard.data(), 0, bytes);  // the next run's
  LMN_RETURN_IF_ERROR(device.stream->copy_from_host(device.failure, device.heard.data(), bytes));
  LMN_RETURN_IF_ERROR(device.stream->synchronize());
  return error(Code::kInvalidArgument, "%s", what);
}

}  // namespace lmn::plan
