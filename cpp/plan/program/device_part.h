// SPDX-License-Identifier: Apache-2.0
//
// The part of a specialisation that runs on a device whose work is queued (core/device.h): which
// stages, where their values lie there, and the steps of a run, in the order of the stages. Values
// stay where they were made until somebody on the other side reads them. All host stages run on the
// host as ever; before one that reads what the device has written, or may write where a copy still
// reads, the run waits for the stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/device.h"
#include "graph/graph.h"
#include "ops/worker.h"
#include "plan/device_block.h"
#include "plan/program/specialization.h"

namespace lmn::plan {

// Constants of a graph on a device, each copied there when a specialisation first needs it. Any
// thread.
class DeviceConstants {
 public:
  DeviceConstants(std::shared_ptr<Device> device, size_t values)
      : device_(std::move(device)), addresses_(values, nullptr) {}
  // table[id] becomes the address of each.
  Status place(const graph::Graph& graph, std::span<const int32_t> ids,
               std::vector<std::byte*>* table);
  int64_t bytes() const;

 private:
  const std::shared_ptr<Device> device_;
  mutable std::mutex mutex_;
  std::vector<std::byte*> addresses_;  // by value
  std::vector<DeviceBlock> blocks_;
};

// What specialisations of a program on a device are made with.
struct Accelerator {
  std::shared_ptr<Device> device;
  DeviceConstants* constants;
  // What the host's TensorKernels::prepare makes of a node that stays on the host.
  std::function<Result<const void*>(graph::NodeId)> prepare;
};

struct DeviceStep {
  enum class Kind : uint8_t {
    kToDevice,    // a root
    kToHost,      // a root, which is there after the next kWait
    kWait,        // for everything queued
    kStage,       // a stage, queued
    kHostStages,  // [first, last)
    kLate         // a late stage
  };
  Kind kind;
  int32_t first = 0, last = 0;
  int64_t bytes = 0;  // of a root
};

struct DevicePart {
  std::shared_ptr<Device> device;
  std::vector<Specialization::Placement> placements;
  int64_t arena_bytes = 0, scratch_bytes = 0;
  std::vector<std::byte*> table;  // addresses on the device of known values, by root
  DeviceBlock known;              // those of them that are no constants
  std::vector<DeviceStep> steps;
};

// Which roots stages on the host and on the device touch.
struct Sides {
  std::vector<bool> host, device;
};
Sides sides_of(const graph::Graph& graph, const Specialization& s);

// Of a specialisation whose stages and operands are known. `first` and `last`: the stages between
// which each root lives; first is -1 of those that no stage computes.
Result<std::unique_ptr<const DevicePart>> make_device_part(
    const graph::Graph& graph, const Specialization& s, const Accelerator& accelerator,
    const Sides& sides, std::span<const int> first, std::span<const int> last);

// What one run works in on the device; one run at a time.
struct DeviceFrame {
  DeviceBlock arena;  // placements, scratch, and the word of a failure
  PinnedBlock heard;  // that word, on the host
  std::vector<std::byte*> table;
  std::byte *scratch = nullptr, *failure = nullptr;
  ops::LaunchQueue queue;
  std::unique_ptr<Stream> stream;  // the first to go: it waits for what uses the rest

  static Result<std::unique_ptr<DeviceFrame>> create(const DevicePart& part);
  static int64_t bytes(const DevicePart& part);
};

}  // namespace lmn::plan
