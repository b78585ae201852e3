// SPDX-License-Identifier: Apache-2.0
//
// Program: a graph of general tensors that runs. Shapes of inputs may differ from run to run: for
// every combination a specialisation is made once (specialization.h): all types inferred, shape
// arithmetic folded away, kernels bound, memory laid out. Running one allocates nothing but outputs
// that the caller did not bring and values whose shapes depend on data.
//
// Threads: run() may be called by any number of threads at once; each run has its own frame of
// intermediate values. Results do not depend on the team (DESIGN section 7).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/status.h"
#include "graph/graph.h"
#include "ops/tensor_kernel.h"
#include "parallel/thread_team.h"

namespace lmn::plan {

// How the stages of a program are walked (schedule.h).
enum class Runner : uint8_t { kAuto, kLockstep, kTaskGraph };

struct ProgramOptions {
  // Combinations of input shapes whose specialisations are kept; the least recently used goes
  // first.
  int64_t max_specializations = 64;
  // Bytes of one run: intermediate values, values whose shape depends on data, outputs that it
  // allocates, and what was computed beforehand for inputs of these shapes. What is kept between
  // runs is bounded by the same number. 0: no limit.
  int64_t max_arena_bytes = 0;
  // A run that takes longer ends between two operators or iterations. 0: no limit.
  int64_t max_run_ns = 0;
  int workers = 1;  // of the teams that runs will have
  // kAuto: by the width and the costs of the graph. What has values of data-dependent shapes always
  // runs in lockstep.
  Runner runner = Runner::kAuto;
  // Null, or a device that is not the host: it runs the nodes that it has kernels for, and keeps
  // what they need of the constants in its memory. Subgraphs stay on the host.
  std::shared_ptr<Device> accelerator = nullptr;
};

// What one run is given.
struct RunOptions {
  // Null, or one that nobody else uses now; without it the calling thread does everything.
  parallel::ThreadTeam* team = nullptr;
  // Set by any thread: the run ends between two operators or iterations. Null: nobody does.
  const std::atomic<bool>* cancelled = nullptr;
};

struct ProgramPort {
  std::string name;
  graph::ValueType type;  // of an input: what a run may bring
};

struct Specialization;
struct Frame;
struct RunContext;
class BudgetShare;
class MemoryBudget;
class FrameCache;
class DeviceConstants;
struct Accelerator;
class Program;
using AllocateFn = ops::AllocateTensor;

// A run whose inputs and outputs stay where they are: all that depends on shapes and addresses is
// done when it is made. The program outlives it. One run at a time.
class BoundProgram {
 public:
  ~BoundProgram();
  Status run(const RunOptions& options);

 private:
  friend class Program;
  explicit BoundProgram(const Program& program);

  const Program& program_;
  std::shared_ptr<MemoryBudget> budget_;
  std::unique_ptr<BudgetShare> memory_;
  std::shared_ptr<const Specialization> specialization_;
  std::unique_ptr<Frame> frame_;
  std::vector<ops::RuntimeValue> inputs_, outputs_;
};

class Program {
 public:
  // Constants of the graph are read where they lie. Outputs that a run allocates keep the device
  // alive. UNSUPPORTED names an operator that the device lacks.
  static Result<std::unique_ptr<Program>> create(graph::Graph graph, std::shared_ptr<Device> device,
                                                 const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::vector<ProgramPort>& inputs() const { return inputs_; }
  const std::vector<ProgramPort>& outputs() const { return outputs_; }
  const graph::Graph& graph() const { return graph_; }
  const AllocateFn& allocate() const { return allocate_; }  // of the device, without a limit
  // Of the combinations of input shapes that are prepared now, how many run as a task graph, and
  // how many in lockstep.
  struct RunnerCounts {
    int64_t task_graph = 0, lockstep = 0;
  };
  RunnerCounts runner_counts() const;
  // Of the combination of input shapes that ran last: operators on the accelerator, on the host,
  // and those on the accelerator whose product its library computes (ops/dense_products.h). All 0
  // before the first run.
  struct PlaceCounts {
    int64_t device = 0, host = 0, library = 0;
  };
  PlaceCounts place_counts() const;

  // Inputs are lent for the call, aligned to their element size. An output whose tensor has data is
  // the caller's buffer and must have the output's type; the others are allocated, 64-byte aligned.
  // INVALID_ARGUMENT names an input and what it should be, or an operator and what its data lack;
  // OUT_OF_MEMORY and TIMEOUT name the limit that was reached; CANCELLED.
  Status run(std::span<const ops::RuntimeValue> inputs, std::span<ops::RuntimeValue> outputs,
             const RunOptions& options) const;
  // All outputs have data: the caller's buffers. `workers`: the most that a team of a run will
  // have.
  Result<std::unique_ptr<BoundProgram>> bind(std::vector<ops::RuntimeValue> inputs,
                                             std::vector<ops::RuntimeValue> outputs,
                                             int workers) const;

  // As run(), of a subgraph in the run of the program that it is part of.
  Status run_in(std::span<const ops::RuntimeValue> inputs, std::span<ops::RuntimeValue> outputs,
                const RunContext& context) const;

 private:
  friend class BoundProgram;
  Program(graph::Graph graph, std::shared_ptr<Device> device, const ProgramOptions& options,
          std::shared_ptr<FrameCache> cache);
  static Result<std::unique_ptr<Program>> create(graph::Graph graph, std::shared_ptr<Device> device,
                                                 const ProgramOptions& options,
                                                 std::shared_ptr<FrameCache> cache);

  // `budget`: null for a new one, where there is a limit. The context points to `limited`.
  RunContext make_context(const RunOptions& options, AllocateFn* limited,
                          std::shared_ptr<MemoryBudget> budget = nullptr) const;
  Status check_input(size_t i, const ops::RuntimeValue& value,
                     std::vector<std::pair<std::string, int64_t>>* symbols) const;
  Result<std::shared_ptr<const Specialization>> specialize(
      std::span<const ops::RuntimeValue> inputs) const;
  int64_t frame_bytes(const Specialization& s, int workers) const;
  Result<std::unique_ptr<Frame>> take_frame(const Specialization& s, int workers) const;
  void keep_frame(const Specialization& s, std::unique_ptr<Frame> frame) const;
  Status set_operands(const Specialization& s, Frame& frame,
                      std::span<const ops::RuntimeValue> inputs,
                      std::span<ops::RuntimeValue> outputs, const AllocateFn& allocate) const;
  Status bind_outputs(const Specialization& s, Frame& frame, std::span<ops::RuntimeValue> outputs,
                      const AllocateFn& allocate) const;
  Status prepare_all() const;
  Result<const void*> prepared(graph::NodeId n) const;
  // device_execution.cc
  Status execute_on_device(const Specialization& s, Frame& frame, const RunContext& context) const;
  Status run_device_steps(const Specialization& s, Frame& frame, const RunContext& context) const;
  Status finish_on_device(Frame& frame) const;
  // execution.cc
  Status execute(const Specialization& s, Frame& frame, std::span<ops::RuntimeValue> outputs,
                 const RunContext& context) const;
  Status finish_output(const Specialization& s, Frame& frame, size_t i, ops::RuntimeValue* output,
                       const AllocateFn& allocate) const;
  Status run_stages(const Specialization& s, Frame& frame, size_t begin, size_t end,
                    const RunContext& context) const;
  Status run_late(const Specialization& s, Frame& frame, graph::NodeId node,
                  const RunContext& context) const;
  // control_flow.cc
  Status run_control(graph::NodeId node, std::span<const ops::RuntimeValue* const> inputs,
                     std::span<ops::RuntimeValue> outputs, const RunContext& context) const;

  graph::Graph graph_;
  const std::shared_ptr<Device> device_;
  const ProgramOptions options_;
  const std::shared_ptr<FrameCache> cache_;  // of the whole program, with its subgraphs
  AllocateFn allocate_;                      // without a limit
  std::vector<ProgramPort> inputs_, outputs_;
  // Of every node: the programs of its subgraphs, in the order of its attributes.
  std::vector<std::vector<std::unique_ptr<Program>>> children_;

  std::unique_ptr<DeviceConstants> constants_;  // of a program with an accelerator
  std::unique_ptr<const Accelerator> accelerator_;

  // Of every node: TensorKernels::prepare. With an accelerator, made when a node turns out to stay
  // on the host.
  mutable std::mutex prepare_mutex_;
  mutable std::vector<std::shared_ptr<const void>> prepared_;
  mutable std::vector<bool> is_prepared_;

  mutable std::mutex mutex_;  // of specializations_
  mutable std::vector<std::shared_ptr<const Specialization>> specializations_;  // recent ones first
};

// One node on the host, now: for constant folding. Outputs that are no tensors are UNSUPPORTED.
Result<std::vector<Tensor>> evaluate(const std::shared_ptr<Device>& device,
                                     const ops::TensorNode& node,
                                     std::span<const TensorView> inputs);

}  // namespace lmn::plan
