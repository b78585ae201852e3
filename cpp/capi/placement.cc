// SPDX-License-Identifier: Apache-2.0
#include "capi/placement.h"

#include <cstdio>
#include <string>
#include <utility>

#include "capi/available_memory.h"
#include "engine/device_runner.h"
#include "engine/plan_runner.h"
#include "engine/split_runner.h"
#include "graph/passes/passes.h"
#include "graph/split.h"
#include "ops/kernel.h"

namespace lmn::capi {
namespace {

// `layers`: so many of the model's, whose part of the KV cache the device holds.
Result<std::unique_ptr<plan::Plan>> build_plan(const PlanRecipe& recipe, graph::Graph graph,
                                               Device& device, int64_t layers) {
  graph::PassOptions passes;
  passes.linear_input_type = [&](DType weight, int64_t columns, bool asked) {
    return device.kernels().linear_input_type(weight, columns, recipe.precise || asked);
  };
  LMN_ASSIGN_OR_RETURN(graph::Graph optimized, graph::optimize(std::move(graph), passes));
  MemoryNeed need = recipe.need;
  if (recipe.layers > 0) need.kv = need.kv / recipe.layers * layers;
  plan::PlanOptions options;
  options.max_tokens = recipe.limits.tokens;
  options.max_outputs = recipe.limits.outputs;
  options.max_sequences = recipe.limits.sequences;
  options.max_pages_per_sequence = recipe.limits.table_stride;
  options.max_context = int64_t{recipe.limits.table_stride} * engine::kKvPageTokens;
  options.before_allocation = [&](const plan::PlanMemory& memory) {
    need.weights = memory.packed;
    need.activations = memory.arena;
    need.pinned = memory.pinned;
    return need.check(device);
  };
  options.before_read = recipe.before_read;
  options.file_use = recipe.file_use;
  options.progress = recipe.progress;
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> plan,
                       plan::Plan::build(std::move(optimized), device, recipe.team, options));
  if (recipe.check_stopped) LMN_RETURN_IF_ERROR(recipe.check_stopped());
  return plan;
}

void count(const plan::Plan& plan, PlacedModel* out) {
  out->memory.packed += plan.memory().packed;
  out->memory.arena += plan.memory().arena;
  out->memory.pinned += plan.memory().pinned;
}

Result<PlacedModel> place_whole(const PlanRecipe& recipe, const graph::Graph& graph,
                                Device& device) {
  PlacedModel out;
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> plan,
                       build_plan(recipe, graph, device, recipe.layers));
  count(*plan, &out);
  out.kv_parts = {{&device, static_cast<int32_t>(recipe.layers)}};
  if (device.is_host()) {
    LMN_ASSIGN_OR_RETURN(out.runner, engine::make_plan_runner(std::move(plan), recipe.limits));
  } else {
    LMN_ASSIGN_OR_RETURN(out.runner, engine::make_device_runner(std::move(plan), recipe.limits));
  }
  return out;
}

// The last `layers` layers and the output on the device, the others on the host. *fits: the
// device's part did.
Result<PlacedModel> place_split(const PlanRecipe& recipe, const graph::Graph& graph, Device& device,
                                int64_t layers, bool* fits) {
  PlacedModel out;
  const int64_t head = recipe.layers - layers;
  const graph::NodeId begin = graph::find_node(graph, "blk." + std::to_string(head) + ".");
  LMN_ASSIGN_OR_RETURN(graph::SplitGraph parts, graph::split(graph, begin));
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> tail,
                       build_plan(recipe, std::move(parts.second), device, layers));
  *fits = true;
  LMN_ASSIGN_OR_RETURN(out.host, recipe.open_host());
  engine::SplitParts split;
  LMN_ASSIGN_OR_RETURN(split.head, build_plan(recipe, std::move(parts.first), *out.host, head));
  count(*split.head, &out);
  count(*tail, &out);
  for (const std::string& name : parts.crossing)
    split.crossing.push_back({name, tail->input<float>(name), tail->columns(name)});
  LMN_ASSIGN_OR_RETURN(split.tail, engine::make_device_runner(std::move(tail), recipe.limits));
  LMN_ASSIGN_OR_RETURN(out.runner, engine::make_split_runner(std::move(split)));
  out.kv_parts = {{out.host.get(), static_cast<int32_t>(head)},
                  {&device, static_cast<int32_t>(layers)}};
  return out;
}

}  // namespace

Status check_device_fits(Device& device, int64_t bytes, const char* what, const char* remedy) {
  if (device.is_host()) return check_fits(bytes, what, remedy);
  LMN_ASSIGN_OR_RETURN(const DeviceMemory memory, device.memory());
  if (bytes <= memory.free) return device.reserve(static_cast<size_t>(bytes));
  return error(Code::kOutOfMemory,
               "%s needs %.1f MiB on device %s, of whose %.1f MiB %.1f are free; %s", what,
               mebibytes(bytes), device.name().c_str(), mebibytes(memory.total),
               mebibytes(memory.free), remedy);
}

Status MemoryNeed::check(Device& device) const {
  LMN_RETURN_IF_ERROR(check_fits(pinned,
                                 "lmn_engine_create (page-locked memory of the host, for inputs "
                                 "and logits)",
                                 "lower max_sequences or prefill_chunk_tokens"));
  char what[200];
  std::snprintf(what, sizeof(what),
                "lmn_engine_create (%.1f MiB of weights, %.1f MiB of activations for %d "
                "sequences, %.1f MiB of KV cache for %lld tokens in %s)",
                mebibytes(weights), mebibytes(activations), sequences, mebibytes(kv),
                static_cast<long long>(kv_tokens), info(kv_dtype).name.data());
  return check_device_fits(
      device, weights + activations + kv, what,
      kv_dtype == DType::kQ8_0 || !kv_q8_fits
          ? "lower kv_tokens, context_tokens, max_sequences or prefill_chunk_tokens"
          : "lower kv_tokens, context_tokens, max_sequences or "
            "prefill_chunk_tokens, or set kv_type to q8_0");
}

Result<PlacedModel> place_model(const PlanRecipe& recipe, const graph::Graph& graph,
                                Device& device) {
  Result<PlacedModel> whole = place_whole(recipe, graph, device);
  if (device.is_host() || whole.ok() || whole.status().code() != Code::kOutOfMemory) return whole;
  for (int64_t layers = recipe.layers - 1; layers > 0; --layers) {
    bool fits = false;
    Result<PlacedModel> split = place_split(recipe, graph, device, layers, &fits);
    if (fits || split.status().code() != Code::kOutOfMemory) return split;
  }
  return whole;
}

}  // namespace lmn::capi
