// SPDX-License-Identifier: Apache-2.0
//
// Specialization: a program for inputs of given shapes. Every value is in one of three states:
//   known   its elements are known now: constants, and what follows from them and from shapes
//   placed  its type is known now, its elements when the program runs: in the arena, in an input or
//           in an output
//   late    its type is known only when it has been computed (its shape depends on data), or it is
//           no tensor
// A stage computes placed values from known and placed ones; a late stage, anything from anything.
// Values that are other views of the same bytes, or take over the buffer of an operand, share a
// root: the value under whose number the pointer table has their address.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "graph/graph.h"
#include "ops/tensor_kernel.h"
#include "parallel/task_graph.h"
#include "plan/device_block.h"
#include "plan/program/program.h"

namespace lmn::plan {

enum class ValueState : uint8_t { kUnused, kKnown, kPlaced, kLate };

struct ProgramStage {
  graph::NodeId node = 0;
  bool late = false;
  bool on_device = false;       // of the program (device_part.h): its kernel is queued there
  bool barrier_before = false;  // the team waits, as an earlier stage touches the same bytes
  double cost = 0;              // nanoseconds on one core, roughly
  ops::TensorKernel kernel;     // not of late stages
  size_t operands = 0;          // in Specialization::operands: roots of inputs, then of outputs
};

// How many bytes a program keeps between runs, in all specialisations and frames of it and of its
// subgraphs. Any thread.
class FrameCache {
 public:
  explicit FrameCache(int64_t limit) : limit_(limit) {}
  void add(int64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  bool fits(int64_t more) const {
    return limit_ == 0 || bytes_.load(std::memory_order_relaxed) <= limit_ - more;
  }

 private:
  const int64_t limit_;  // 0: none
  std::atomic<int64_t> bytes_{0};
};

struct Frame;
struct DeviceFrame;
struct DevicePart;
struct Accelerator;

struct Specialization {
  std::vector<ops::TensorType> input_types;
  std::vector<ops::Operand> values;  // of every value: its type, where known, and its data
  std::vector<ValueState> states;
  std::vector<int32_t> roots;
  std::vector<Tensor> owned;  // data of known values that are no constants
  std::vector<ProgramStage> stages;
  std::vector<int32_t> operands;
  std::vector<int32_t> operand_counts;  // of inputs, of every stage
  std::vector<std::byte*> table;        // addresses of known values, by root
  struct Placement {
    int32_t root;
    int64_t offset, bytes;
  };
  std::vector<Placement> placements;  // in the arena
  // An output that is an input, is known, is late, or is also another output is copied at the end.
  std::vector<bool> output_is_direct;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;  // of one worker
  bool has_late = false;
  // Not null: the stages run as tasks of these numbers; the arena is laid out for it.
  std::unique_ptr<const parallel::TaskGraph> tasks;
  int64_t owned_bytes = 0;
  std::unique_ptr<const DevicePart> device;  // null: all of it runs on the host

  std::shared_ptr<FrameCache> cache;  // has been told of owned_bytes and of the frames
  mutable std::mutex mutex;           // of frames
  mutable std::vector<std::unique_ptr<Frame>> frames;

  Specialization();
  ~Specialization();
};

// What one run works in. Reused by the next.
struct Frame {
  Frame();
  ~Frame();
  int64_t bytes() const;

  std::unique_ptr<parallel::TaskGraphRun> tasks;  // of a specialisation that has tasks
  DeviceBlock arena;                              // placements, then the workers' scratch
  std::vector<std::byte*> table;                  // of every root
  std::vector<ops::RuntimeValue> late;            // of every value, where the program has late ones
  std::atomic<const char*> failure{nullptr};
  // A worker saw that the run is to stop; relaxed: the others see it a stage later at worst.
  std::atomic<bool> stopped{false};
  int workers = 0;                      // that the scratch suffices for
  std::unique_ptr<DeviceFrame> device;  // of a specialisation that has a device
};

// Of one element, in bytes.
inline int64_t element_bytes(DType dtype) { return info(dtype).block_bytes; }
// UNSUPPORTED where the tensor has more bytes than an address space.
Result<int64_t> tensor_bytes(DType dtype, const Shape& shape);

using AllocateFn = ops::AllocateTensor;

// What makes a specialisation. The errors are those of inference and binding. `prepared`: of every
// node, or empty. `accelerator`: null, or a device that runs the nodes that it has kernels for.
Result<std::shared_ptr<const Specialization>> make_specialization(
    const graph::Graph& graph, const ops::TensorKernels& kernels,
    std::span<const std::shared_ptr<const void>> prepared, std::vector<ops::TensorType> input_types,
    const AllocateFn& allocate, std::shared_ptr<FrameCache> cache, int workers = 1,
    Runner runner = Runner::kAuto, const Accelerator* accelerator = nullptr);

// Computes a node whose inputs are all known now; outputs are allocated. For specialisations, late
// stages and constant folding. Not for control operators.
Status compute_now(const ops::TensorKernels& kernels, const ops::TensorNode& node,
                   std::span<const ops::RuntimeValue* const> inputs,
                   std::span<ops::RuntimeValue> outputs, const AllocateFn& allocate);

// All elements, in order, to a tensor of the same type.
void copy_elements(const Tensor& from, const Tensor& to);
ops::TensorType type_of(const ops::RuntimeValue& value);
bool same_type(const ops::TensorType& a, const ops::TensorType& b);
std::string type_text(const ops::TensorType& type);  // "f32[2, 3]"

// Whether output 0 has the bytes of input 0, in another shape.
bool keeps_bytes(ops::TensorOp op);

}  // namespace lmn::plan
