// SPDX-License-Identifier: Apache-2.0
//
// Where a language model's layers run. On the host all of them; on another device as many as its
// memory takes, from the last, and the others on the host: what is planned is compared with what is
// free before anything is read or allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/status.h"
#include "engine/kv_cache.h"
#include "engine/step_runner.h"
#include "graph/graph.h"
#include "parallel/thread_team.h"
#include "plan/plan.h"

namespace lmn::capi {

// Memory of an engine, in bytes, before any of it is taken; and what a message says of it.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t activations = 0;
  int64_t pinned = 0;  // of the host, page-locked
  int64_t kv = 0;
  int64_t kv_tokens = 0;
  DType kv_dtype = DType::kF16;
  bool kv_q8_fits = false;  // the model's heads allow kv_type q8_0
  int32_t sequences = 0;

  // OUT_OF_MEMORY has these figures and those of the device, or the host, and what lowers the need.
  Status check(Device& device) const;
};

// As check_fits (available_memory.h); of a device that is not the host, whose memory is reserved.
Status check_device_fits(Device& device, int64_t bytes, const char* what, const char* remedy);

// What all plans of an engine are built with. The functions are PlanOptions'.
struct PlanRecipe {
  parallel::ThreadTeam& team;
  engine::StepLimits limits;
  bool precise = false;  // all quantised products take 16-bit activations
  MemoryNeed need;       // kv: of all layers
  int64_t layers = 0;    // of the model
  std::function<Status(const TensorView&)> before_read;
  std::function<void(std::span<const std::byte>, plan::FileUse)> file_use;
  std::function<void(int64_t done, int64_t total)> progress;
  std::function<Status()> check_stopped;  // an error: somebody cancelled
  std::function<Result<std::unique_ptr<Device>>()> open_host;
};

struct PlacedModel {
  std::unique_ptr<Device> host;  // where some layers are beside the device's; or null
  std::unique_ptr<engine::StepRunner> runner;
  std::vector<engine::KvPart> kv_parts;
  plan::PlanMemory memory;  // of all its plans
};

// `graph`: of a LanguageModel, before the passes. The device outlives the result. OUT_OF_MEMORY:
// what the whole model needs, where not even the last layer fits.
Result<PlacedModel> place_model(const PlanRecipe& recipe, const graph::Graph& graph,
                                Device& device);

}  // namespace lmn::capi
