// SPDX-License-Identifier: Apache-2.0
//
// StageProfile: where the time of a plan's runs went, stage by stage. Member 0 of the team writes,
// any thread reads. It must not know kernels: times are told to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cost.h"
#include "plan/binder.h"
#include "plan/profile.h"

namespace lmn::plan {

class StageProfile {
 public:
  // `stages` outlives the profile.
  explicit StageProfile(const std::vector<BoundStage>& stages)
      : stages_(stages), counters_(std::make_unique<ProfileCounter[]>(stages.size())) {}

  void add_start(int64_t ns) { start_.add(ns); }
  void add(size_t stage, int64_t run_ns, int64_t wait_ns) { counters_[stage].add(run_ns, wait_ns); }
  // After a run: the last stage has no barrier, the run ends with its slowest member. `to_host`: by
  // how many bytes the host's copies of a plan's inputs lie behind what arguments point at.
  void end_run(int64_t wait_ns, ptrdiff_t to_host = 0) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (to_host != 0 && stages_[s].op == ops::Op::kPagedAttention) {
        auto args = *static_cast<const ops::AttentionArgs*>(stages_[s].args);
        args.positions = moved(args.positions, to_host);
        args.sequence_index = moved(args.sequence_index, to_host);
        counters_[s].add_cost(ops::cost(args));
      } else {
        counters_[s].add_cost(ops::cost(stages_[s].op, stages_[s].args));
      }
    }
    if (!stages_.empty()) counters_[stages_.size() - 1].add_wait(wait_ns);
  }

  std::vector<ProfileEntry> entries() const {
    std::vector<ProfileEntry> out;
    out.reserve(stages_.size() + 1);
    out.push_back(start_.entry("team", "start"));
    for (size_t s = 0; s < stages_.size(); ++s)
      out.push_back(counters_[s].entry(ops::name(stages_[s].op), stages_[s].name));
    return out;
  }

 private:
  static const int32_t* moved(const int32_t* at, ptrdiff_t bytes) {
    return reinterpret_cast<const int32_t*>(reinterpret_cast<uintptr_t>(at) +
                                            static_cast<uintptr_t>(bytes));
  }

  const std::vector<BoundStage>& stages_;
  ProfileCounter start_;
  std::unique_ptr<ProfileCounter[]> counters_;
};

}  // namespace lmn::plan
