// SPDX-License-Identifier: Apache-2.0
//
// PlanImpl: the one Plan. plan.cc builds it, plan_run.cc runs it on a device that is not the host;
// on the host running is inline here. It owns its weights, its arena, and the stream on which such
// a device runs it, which goes first: it waits for what uses the rest. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "parallel/clock.h"
#include "plan/binder.h"
#include "plan/device_block.h"
#include "plan/layout.h"
#include "plan/plan.h"
#include "plan/plan_queue.h"
#include "plan/plan_sampler.h"
#include "plan/stage_profile.h"
#include "plan/weights.h"

namespace lmn::plan {

struct Stage {
  ops::KernelFn kernel;  // null: the stage before does its work
  const void* args;
  bool whole;          // every worker does all of it, into its own copy
  bool barrier_after;  // before the next stage
};

struct Port {
  std::string name;
  DType dtype;
  int symbol;         // of its rows; -1: `rows` of them
  int64_t rows;       // at most
  int64_t row_bytes;  // from one row to the next
  int64_t offset;     // in the arena
  std::byte* host;    // where the caller writes or reads it: in the arena, where the host has it
};

class PlanImpl final : public Plan {
 public:
  PlanImpl(Device& device, int workers)
      : device_(device),
        workers_(device.is_host() ? workers : 1),
        weights_(device, device.kernels()) {}

  Status build(const graph::Graph& graph, parallel::ThreadTeam& team, const PlanOptions& options);

  const float* output(std::string_view name) const override {
    const Port* port = find(outputs_, name);
    return port == nullptr ? nullptr : reinterpret_cast<const float*>(port->host);
  }
  int64_t columns(std::string_view name) const override {
    const Port* port = find(inputs_, name);
    if (port == nullptr) port = find(outputs_, name);
    return port == nullptr ? 0 : port->row_bytes / info(port->dtype).block_bytes;
  }
  const float* device_output(std::string_view name) const override {
    const Port* port = find(outputs_, name);
    return port == nullptr ? nullptr : reinterpret_cast<const float*>(arena_.data() + port->offset);
  }

  void set_symbol(std::string_view name, int64_t value) override {
    const int s = symbol_index(name);
    LMN_CHECK(s >= 0 && name != "pages");
    LMN_CHECK(value >= 0 && value <= bounds_[static_cast<size_t>(s)]);
    set(static_cast<size_t>(s), value);
  }

  Status bind_kv(std::span<const ops::KvLayer> layers) override;

  Status run(parallel::ThreadTeam& team, const StepHints& hints) override {
    LMN_CHECK(kv_bound_ || kv_.empty());
    if (queue_.exists()) return run_queued(hints);
    LMN_CHECK(team.size() == workers_);
    if (!profiles_.empty()) {
      run_profiled(team);
    } else {
      team.run([&](int index) { walk(team, index); });
    }
    return {};
  }

  Stream* stream() override { return queue_.exists() ? &queue_.stream() : nullptr; }
  ops::LaunchQueue& queue() override { return queue_.launches(); }
  Status enqueue(const StepHints& hints) override;
  Status fetch(std::string_view name, int64_t begin, int64_t count) override;
  std::span<SampleRow> samples() override { return sampler_.samples(); }
  std::span<const SampleChoice> choices() const override { return sampler_.choices(); }
  Status enqueue_sampling(int64_t count, bool greedy) override {
    return sampler_.enqueue(queue_, device_output("logits"), count, greedy);
  }

  int32_t kv_layers() const override { return static_cast<int32_t>(kv_.size()); }
  int32_t kv_heads() const override { return kv_.empty() ? 0 : kv_.front().kv_heads; }
  int32_t head_dim() const override { return kv_.empty() ? 0 : kv_.front().head_dim; }
  const PlanMemory& memory() const override { return memory_; }
  int barriers() const override {
    return static_cast<int>(std::count_if(stages_.begin(), stages_.end(),
                                          [](const Stage& stage) { return stage.barrier_after; }));
  }

  void set_profiles(int count) override {
    profiles_.clear();
    for (int i = 0; i < count; ++i)
      profiles_.push_back(std::make_unique<StageProfile>(bound_.stages));
    selected_ = 0;
  }
  void select_profile(int index) override {
    LMN_CHECK(index == 0 || static_cast<size_t>(index) < profiles_.size());
    selected_ = static_cast<size_t>(index);
  }
  std::vector<ProfileEntry> profile(int index) const override {
    LMN_CHECK(static_cast<size_t>(index) < profiles_.size());
    return profiles_[static_cast<size_t>(index)]->entries();
  }

  std::string dump() const override;

 protected:
  void* input_data(std::string_view name, DType dtype) override {
    const Port* port = find(inputs_, name);
    return port == nullptr || port->dtype != dtype ? nullptr : port->host;
  }

 private:
  Status read_bounds(const PlanOptions& options);
  Status check_kernels(const graph::Graph& graph);
  Status read_caches(const graph::Graph& graph);
  Status find_ports(const graph::Graph& graph);
  Status allocate(const graph::Graph& graph, const PlanOptions& options);
  int64_t arena_bytes(const graph::Graph& graph);
  int64_t workspace_bytes(const graph::Graph& graph) const;
  int64_t output_bytes() const;
  Status create_queue(int64_t workspace_bytes);
  Status bind(Binder* binder);
  Status run_queued(const StepHints& hints);
  Status send_inputs(int64_t context);
  void enqueue_stage(size_t stage);
  Status enqueue_profiled();

  static const Port* find(const std::vector<Port>& ports, std::string_view name) {
    for (const Port& port : ports) {
      if (port.name == name) return &port;
    }
    return nullptr;
  }
  int64_t rows_of(const Port& port) const {
    return port.symbol < 0 ? port.rows : values_[static_cast<size_t>(port.symbol)];
  }
  void find_barriers(const graph::Graph& graph, const std::vector<int>& kv_layer);

  // One member's way through the stages. `profile`: null, or of member 0; *last then becomes when
  // it was through.
  void walk(parallel::ThreadTeam& team, int index) { walk<false>(team, index, nullptr, nullptr); }
  template <bool kProfile>
  void walk(parallel::ThreadTeam& team, int index, [[maybe_unused]] StageProfile* profile,
            [[maybe_unused]] int64_t* last) {
    std::byte* scratch = arena_.data() + layout_.arena_bytes + index * scratch_bytes_;
    std::byte* shared = arena_.data() + layout_.arena_bytes + workers_ * scratch_bytes_;
    const ops::Worker share{index, index, workers_, scratch, shared};
    const ops::Worker alone{index, 0, 1, scratch, nullptr};
    for (const Stage& stage : stages_) {
      stage.kernel(stage.args, stage.whole ? alone : share);
      [[maybe_unused]] int64_t ran = 0;
      if constexpr (kProfile) ran = parallel::now_ns();
      if (stage.barrier_after) team.barrier(index);
      if constexpr (kProfile) {
        const int64_t now = stage.barrier_after ? parallel::now_ns() : ran;
        profile->add(static_cast<size_t>(&stage - stages_.data()), ran - *last, now - ran);
        *last = now;
      }
    }
  }

  void run_profiled(parallel::ThreadTeam& team) {
    StageProfile& profile = *profiles_[selected_];
    int64_t last = parallel::now_ns();
    team.run([&](int index) {
      if (index != 0) return walk(team, index);
      const int64_t now = parallel::now_ns();
      profile.add_start(now - last);
      last = now;
      walk<true>(team, index, &profile, &last);
    });
    profile.end_run(parallel::now_ns() - last);
  }

  void set(size_t symbol, int64_t value) {
    if (values_[symbol] == value) return;
    values_[symbol] = value;
    for (int64_t* rows : bound_.rows[symbol]) *rows = value;
    const bool few = value <= kReplicateRows;
    if (few != few_[symbol]) set_few(symbol, few);
  }

  // Whether workers keep own copies of activations with so many rows: changes strides, barriers and
  // shares.
  void set_few(size_t symbol, bool few) {
    few_[symbol] = few;
    for (const StridePatch& patch : bound_.strides[symbol])
      *patch.stride = few ? patch.copy_bytes : 0;
    size_t regime = 0;
    for (size_t s = 0; s < few_.size(); ++s) regime |= (few_[s] ? size_t{1} : 0) << s;
    const std::vector<bool>& barrier_before = barriers_[regime];
    for (size_t i = 0; i < stages_.size(); ++i) {
      const BoundStage& bound = bound_.stages[i];
      stages_[i].whole =
          bound.writes_own_copy && bound.symbol >= 0 && few_[static_cast<size_t>(bound.symbol)];
      stages_[i].barrier_after = i + 1 < stages_.size() && barrier_before[i + 1];
    }
  }

  Device& device_;
  const int workers_;
  Bounds bounds_{};
  Layout layout_;
  Weights weights_;
  PlanMemory memory_;
  DeviceBlock arena_;          // intermediate values, the workers' scratch, what they share
  int64_t scratch_bytes_ = 0;  // of one worker
  int64_t max_context_ = 0;
  PlanSampler sampler_;
  std::vector<std::unique_ptr<Event>> events_;  // of a profiled run
  PlanQueue queue_;                             // goes before what its stream works in
  std::vector<ByteRange> sent_;                 // scratch of enqueue()
  std::vector<ops::KvLayer> kv_;
  bool kv_bound_ = false;
  BoundStages bound_;
  std::vector<Stage> stages_;
  std::array<int64_t, kSymbols.size()> values_{};
  std::array<bool, kSymbols.size()> few_{};
  // For every regime (bit s: symbol s has few rows), before which stages the team waits. Regimes
  // that differ only in symbols without own copies are not told apart, and share the vector of the
  // regime without them.
  std::array<std::vector<bool>, size_t{1} << kSymbols.size()> barriers_;
  std::vector<Port> inputs_, outputs_;
  std::vector<std::string> operands_;  // of every stage, for dump()
  std::vector<std::unique_ptr<StageProfile>> profiles_;
  size_t selected_ = 0;
};

}  // namespace lmn::plan
