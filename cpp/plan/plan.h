// SPDX-License-Identifier: Apache-2.0
//
// Plan: a graph bound to one device. Building chooses kernels, packs weights into the layout they
// want, gives every intermediate value a place in one arena, and flattens the graph to a list of
// stages. Running walks that list with a thread team and allocates nothing.
//
// - After build() nothing points into the model file: weights, norms and biases live in device
//   memory of the plan.
// - A plan is used by one thread at a time (the engine's), which is member 0 of the team.
// - Inputs and outputs are written and read in place, in host memory. On a device that is not the
//   host this is a page-locked copy, sent before the kernels and fetched after them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/sampling.h"
#include "core/status.h"
#include "core/tensor.h"
#include "graph/graph.h"
#include "ops/op_args.h"
#include "ops/worker.h"
#include "parallel/thread_team.h"
#include "plan/profile.h"

namespace lmn::plan {

// Up to so many rows, every worker quantises a Linear's input for itself instead of waiting at a
// barrier for its share: a barrier costs about 1 us, normalising and quantising a row of 4096 about
// as much.
inline constexpr int64_t kReplicateRows = 4;

// Of one step, for launchers that size their grids; results do not depend on it.
struct StepHints {
  int64_t context = 0;      // no row attends to more positions; 0: PlanOptions::max_context
  int64_t single_rows = 0;  // so many rows, from the first, are each the only one of their sequence
};

enum class FileUse : int32_t {
  kSoon = 0,  // read a few milliseconds from now
  kOver = 1,  // not needed any more: the pages may be dropped
};

// Bytes of a plan.
struct PlanMemory {
  int64_t packed = 0;  // weights in kernel layout, norms, biases
  int64_t arena = 0;   // inputs, intermediate values, outputs, and what kernels work in
  int64_t pinned = 0;  // of the host, page-locked: its side of what goes to and from the device
};

struct PlanOptions {
  // Bounds of the symbols: what one run may hold at most. All at least 1.
  int64_t max_tokens = 0;              // "tokens"
  int64_t max_outputs = 0;             // "outputs"
  int64_t max_sequences = 0;           // "sequences"
  int64_t max_pages_per_sequence = 0;  // "pages": the row stride of block_tables

  // Positions of a sequence at most. Needed where the device is not the host.
  int64_t max_context = 0;

  // Called once with memory(), before any of it is allocated: an error ends the build. May be null.
  std::function<Status(const PlanMemory& memory)> before_allocation;
  // Called before any part of a tensor of the file is read, once for every part (about 2 MiB when
  // packed): by all members of the team, several at once. An error ends the build (the file
  // changed, somebody cancelled); of several, the first is kept. May be null.
  std::function<Status(const TensorView& tensor)> before_read;
  // What happens to bytes of the file. Members of the team, several at once, tell of a matrix a few
  // megabytes at a time; the building thread tells of whole vectors, and at the end, when nobody
  // reads any more, once more that each whole matrix is over: parts leave the pages that they
  // share. So kOver comes twice for a byte of a matrix. May be null.
  std::function<void(std::span<const std::byte> bytes, FileUse use)> file_use;
  // Bytes of weights packed so far, and of all. Called by the building thread. May be null.
  std::function<void(int64_t done, int64_t total)> progress;
};

class Plan {
 public:
  // UNSUPPORTED names an operator the device lacks or a weight type it cannot read; OUT_OF_MEMORY
  // what did not fit. The team packs weights; runs must use a team of the same size.
  static Result<std::unique_ptr<Plan>> build(graph::Graph graph, Device& device,
                                             parallel::ThreadTeam& team,
                                             const PlanOptions& options);
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Where the caller writes input `name` before run(): [rows of its bound, columns]. Null: no such
  // input. block_tables has max_pages_per_sequence columns, whatever the step needs. Valid as long
  // as the plan.
  template <typename T>
  T* input(std::string_view name) {
    static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, float>);
    return static_cast<T*>(input_data(name, std::is_same_v<T, float> ? DType::kF32 : DType::kI32));
  }
  // Elements of a row of an input or output; 0: no such one.
  virtual int64_t columns(std::string_view name) const = 0;
  // [rows, columns], valid until the next run. Null: no such output.
  virtual const float* output(std::string_view name) const = 0;

  // Sets "tokens", "outputs" or "sequences" for the runs that follow, in [0, bound]: the caller's
  // duty. Cheap when unchanged.
  virtual void set_symbol(std::string_view name, int64_t value) = 0;

  // The caches of all layers, layer 0 first; copied. INVALID_ARGUMENT where they do not fit the
  // model.
  virtual Status bind_kv(std::span<const ops::KvLayer> layers) = 0;

  // One step. Inputs, symbols and caches are set. Allocates nothing. An error is the device's, and
  // outputs are then not what they should be; on the host there is none.
  virtual Status run(parallel::ThreadTeam& team, const StepHints& hints = {}) = 0;

  // A step on a device that is not the host, in parts. enqueue() queues on stream() what sends the
  // inputs and the kernels; it may be recorded, for the symbols and hints of that moment. What
  // outputs are then is in device memory, and in host memory once fetch() was queued behind it and
  // the stream was waited for.
  virtual Stream* stream() { return nullptr; }  // null: the device is the host
  virtual ops::LaunchQueue& queue() = 0;        // of the stream
  virtual Status enqueue(const StepHints& hints) = 0;
  virtual const float* device_output(std::string_view name) const = 0;
  // Rows [begin, begin + count) of an output, to where output() has them.
  virtual Status fetch(std::string_view name, int64_t begin, int64_t count) = 0;
  // Tokens drawn on the device: the first `count` of samples() from the rows of the output
  // "logits", which are in choices() once the stream was waited for. Empty: the device does not
  // sample. `greedy`: no sample has a scale. May be recorded.
  virtual std::span<SampleRow> samples() = 0;
  virtual std::span<const SampleChoice> choices() const = 0;
  virtual Status enqueue_sampling(int64_t count, bool greedy) = 0;

  virtual int32_t kv_layers() const = 0;
  virtual int32_t kv_heads() const = 0;  // 0 without KV caches
  virtual int32_t head_dim() const = 0;
  virtual const PlanMemory& memory() const = 0;
  // Per run, with the symbols as they are set.
  virtual int barriers() const = 0;

  // Keeps `count` profiles, all zero, from here on; 0, which is how a plan begins, keeps none and
  // costs nothing. A profile costs a run two looks at the clock for each stage, and its cost
  // (ops/cost.h) after the last.
  virtual void set_profiles(int count) = 0;
  // The profile to which the runs that follow count, from 0; at first 0.
  virtual void select_profile(int index) = 0;
  // An entry for each stage, with the times of member 0, which waits at the barrier behind it;
  // before them "team" "start": member 0 setting the others going. On a device that is not the
  // host the times are the device's, "start" is the sending of inputs, and kernels, which otherwise
  // begin while the one before ends, come one after the other. Names live as long as the plan. Any
  // thread, also beside a run; each figure is exact, together they are not one moment.
  virtual std::vector<ProfileEntry> profile(int index) const = 0;

  // Stages, barriers and arena offsets, one a line, with the symbols as they are set.
  virtual std::string dump() const = 0;

 protected:
  Plan() = default;
  virtual void* input_data(std::string_view name, DType dtype) = 0;
};

}  // namespace lmn::plan
