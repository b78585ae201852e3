// SPDX-License-Identifier: Apache-2.0
#include "plan/program/device_part.h"

#include <algorithm>
#include <cstring>

#include "plan/arena.h"

namespace lmn::plan {
namespace {

// Of what lies side by side in one block: a device's own allocations are aligned as much.
constexpr int64_t kDeviceAlignment = 256;
constexpr int64_t kFailureBytes = sizeof(uint64_t);

int64_t aligned(int64_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}
size_t index_of(int32_t id) { return static_cast<size_t>(id); }

// Several pieces of the host's memory in one block of the device's.
Result<DeviceBlock> copy_pieces(Device& device, std::span<const TensorView> pieces,
                                std::vector<std::byte*>* addresses) {
  int64_t bytes = 0;
  for (const TensorView& piece : pieces) bytes += aligned(std::max<int64_t>(piece.bytes(), 1));
  LMN_ASSIGN_OR_RETURN(DeviceBlock block,
                       DeviceBlock::create_uninitialized(device, static_cast<size_t>(bytes)));
  std::byte* to = block.data();
  for (const TensorView& piece : pieces) {
    const int64_t size = piece.bytes();
    if (size > 0)
      LMN_RETURN_IF_ERROR(device.copy_from_host(to, piece.data, static_cast<size_t>(size)));
    addresses->push_back(to);
    to += aligned(std::max<int64_t>(size, 1));
  }
  return block;
}

class StepPlanner {
 public:
  StepPlanner(const graph::Graph& graph, const Specialization& s)
      : graph_(graph), s_(s), on_host_(s.roots.size()), on_device_(s.roots.size()) {
    for (size_t id = 0; id < s.roots.size(); ++id) {
      const bool known = s.states[id] == ValueState::kKnown;
      on_host_[id] = known || (s.states[id] == ValueState::kPlaced &&
                               graph.values[id].producer == graph::kNone);
      on_device_[id] = known;
    }
  }

  std::vector<DeviceStep> plan() {
    for (size_t i = 0; i < s_.stages.size(); ++i) {
      const ProgramStage& stage = s_.stages[i];
      const graph::Node& node = graph_.node(stage.node);
      if (stage.on_device) {
        add_device_stage(static_cast<int32_t>(i), node);
      } else {
        add_host_stage(static_cast<int32_t>(i), node, stage.late);
      }
    }
    for (const graph::Output& output : graph_.outputs) {
      if (s_.states[index_of(output.value)] != ValueState::kLate) bring_to_host(output.value);
    }
    return std::move(steps_);
  }

 private:
  using Kind = DeviceStep::Kind;

  int32_t root(graph::ValueId id) const { return s_.roots[index_of(id)]; }
  int64_t bytes(int32_t root) const {
    const ops::TensorType& type = s_.values[index_of(root)].type;
    return type.shape.elements() * element_bytes(type.dtype);
  }
  bool is_late(graph::ValueId id) const { return s_.states[index_of(id)] == ValueState::kLate; }

  // Whether it has to be waited for.
  bool bring_to_host(graph::ValueId id) {
    const int32_t r = root(id);
    if (on_host_[index_of(r)]) return false;
    on_host_[index_of(r)] = true;
    if (bytes(r) == 0) return false;
    steps_.push_back({Kind::kToHost, r, 0, bytes(r)});
    return true;
  }
  void add_device_stage(int32_t stage, const graph::Node& node) {
    for (const graph::ValueId id : node.inputs) {
      if (id == graph::kNone || on_device_[index_of(root(id))]) continue;
      const int32_t r = root(id);
      on_device_[index_of(r)] = true;
      if (bytes(r) == 0) continue;
      steps_.push_back({Kind::kToDevice, r, 0, bytes(r)});
      reads_host_ = true;
    }
    steps_.push_back({Kind::kStage, stage});
    written(node, on_device_, on_host_);
  }
  void add_host_stage(int32_t stage, const graph::Node& node, bool late) {
    bool wait = reads_host_;
    for (const graph::ValueId id : node.inputs) {
      if (id != graph::kNone && !is_late(id)) wait = bring_to_host(id) || wait;
    }
    if (wait) steps_.push_back({Kind::kWait});
    reads_host_ = false;
    if (late) {
      steps_.push_back({Kind::kLate, stage});
    } else if (!steps_.empty() && steps_.back().kind == Kind::kHostStages) {
      steps_.back().last = stage + 1;
    } else {
      steps_.push_back({Kind::kHostStages, stage, stage + 1});
    }
    written(node, on_host_, on_device_);
  }
  void written(const graph::Node& node, std::vector<bool>& here, std::vector<bool>& there) {
    for (const graph::ValueId id : node.outputs) {
      here[index_of(root(id))] = true;
      there[index_of(root(id))] = false;
    }
  }

  const graph::Graph& graph_;
  const Specialization& s_;
  std::vector<bool> on_host_, on_device_;  // where the value of a root is, up to now
  bool reads_host_ = false;                // copies from the host may not have been made
  std::vector<DeviceStep> steps_;
};

}  // namespace

Status DeviceConstants::place(const graph::Graph& graph, std::span<const int32_t> ids,
                              std::vector<std::byte*>* table) {
  const std::lock_guard lock(mutex_);
  std::vector<int32_t> missing;
  std::vector<TensorView> pieces;
  for (const int32_t id : ids) {
    if (addresses_[index_of(id)] != nullptr) continue;
    missing.push_back(id);
    pieces.push_back(graph.value(id).constant->pieces[0].view);
  }
  if (!missing.empty()) {
    std::vector<std::byte*> addresses;
    LMN_ASSIGN_OR_RETURN(DeviceBlock block, copy_pieces(*device_, pieces, &addresses));
    blocks_.push_back(std::move(block));
    for (size_t i = 0; i < missing.size(); ++i) addresses_[index_of(missing[i])] = addresses[i];
  }
  for (const int32_t id : ids) (*table)[index_of(id)] = addresses_[index_of(id)];
  return {};
}

int64_t DeviceConstants::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const DeviceBlock& block : blocks_) bytes += static_cast<int64_t>(block.bytes());
  return bytes;
}

Sides sides_of(const graph::Graph& graph, const Specialization& s) {
  Sides sides{std::vector<bool>(s.roots.size()), std::vector<bool>(s.roots.size())};
  for (const ProgramStage& stage : s.stages) {
    std::vector<bool>& side = stage.on_device ? sides.device : sides.host;
    for (const auto* ids : {&graph.node(stage.node).inputs, &graph.node(stage.node).outputs}) {
      for (const graph::ValueId id : *ids) {
        if (id != graph::kNone) side[index_of(s.roots[index_of(id)])] = true;
      }
    }
  }
  for (const graph::Output& output : graph.outputs)
    sides.host[index_of(s.roots[index_of(output.value)])] = true;
  return sides;
}

Result<std::unique_ptr<const DevicePart>> make_device_part(
    const graph::Graph& graph, const Specialization& s, const Accelerator& accelerator,
    const Sides& sides, std::span<const int> first, std::span<const int> last) {
  auto part = std::make_unique<DevicePart>();
  part->device = accelerator.device;
  const size_t count = s.roots.size();
  part->table.assign(count, nullptr);
  std::vector<int> uploaded(count, -1);  // the stage that first reads a root on the device
  for (size_t i = s.stages.size(); i-- > 0;) {
    if (!s.stages[i].on_device) continue;
    part->scratch_bytes =
        std::max(part->scratch_bytes, static_cast<int64_t>(s.stages[i].kernel.scratch_bytes));
    for (const graph::ValueId id : graph.node(s.stages[i].node).inputs) {
      if (id != graph::kNone) uploaded[index_of(s.roots[index_of(id)])] = static_cast<int>(i);
    }
  }
  std::vector<Interval> intervals;
  std::vector<int32_t> ids, constants, known;
  std::vector<TensorView> pieces;
  for (size_t id = 0; id < count; ++id) {
    if (s.roots[id] != static_cast<int32_t>(id) || !sides.device[id]) continue;
    const ops::TensorType& type = s.values[id].type;
    if (s.states[id] == ValueState::kKnown) {
      const bool is_constant = graph.values[id].constant != nullptr;
      (is_constant ? constants : known).push_back(static_cast<int32_t>(id));
      if (!is_constant) pieces.push_back({type.dtype, type.shape, s.values[id].data});
      continue;
    }
    const int begin = first[id] >= 0 ? first[id] : uploaded[id];
    intervals.push_back(
        {type.shape.elements() * element_bytes(type.dtype), begin, std::max(begin, last[id]), 0});
    ids.push_back(static_cast<int32_t>(id));
  }
  part->arena_bytes = assign_offsets(intervals);
  for (size_t i = 0; i < ids.size(); ++i)
    part->placements.push_back({ids[i], intervals[i].offset, intervals[i].bytes});
  LMN_RETURN_IF_ERROR(accelerator.constants->place(graph, constants, &part->table));
  if (!known.empty()) {
    std::vector<std::byte*> addresses;
    LMN_ASSIGN_OR_RETURN(part->known, copy_pieces(*part->device, pieces, &addresses));
    for (size_t i = 0; i < known.size(); ++i) part->table[index_of(known[i])] = addresses[i];
  }
  part->steps = StepPlanner(graph, s).plan();
  return std::unique_ptr<const DevicePart>(std::move(part));
}

int64_t DeviceFrame::bytes(const DevicePart& part) {
  return aligned(part.arena_bytes) + aligned(part.scratch_bytes) + kDeviceAlignment;
}

Result<std::unique_ptr<DeviceFrame>> DeviceFrame::create(const DevicePart& part) {
  auto frame = std::make_unique<DeviceFrame>();
  LMN_ASSIGN_OR_RETURN(frame->stream, part.device->create_stream());
  // Zeroed: the word of a failure is.
  LMN_ASSIGN_OR_RETURN(frame->arena,
                       DeviceBlock::create(*part.device, static_cast<size_t>(bytes(part))));
  LMN_ASSIGN_OR_RETURN(frame->heard, PinnedBlock::create(*part.device, kFailureBytes));
  frame->table = part.table;
  for (const Specialization::Placement& p : part.placements)
    frame->table[index_of(p.root)] = frame->arena.data() + p.offset;
  frame->scratch = frame->arena.data() + aligned(part.arena_bytes);
  frame->failure = frame->scratch + aligned(part.scratch_bytes);
  frame->queue.stream = frame->stream->handle();
  frame->queue.device = frame->stream->device_index();
  frame->queue.multiprocessors = part.device->multiprocessors();
  frame->queue.overlaps = frame->stream->overlaps_kernels();
  return frame;
}

}  // namespace lmn::plan
