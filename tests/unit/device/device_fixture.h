// SPDX-License-Identifier: Apache-2.0
//
// What tests of a device whose work is queued share: tiny models of the Llama family on the CUDA
// device over a runtime of tests (tests/fake_cuda), and an engine over one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/device_runner.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/split_runner.h"
#include "fake_gpu.h"
#include "graph/split.h"
#include "plan/tiny_llama.h"

namespace device_test {

using namespace lmn;
using models_test::TinyModel;
using models_test::TinySpec;

// Columns of whole superblocks and of parts of one, heads in groups, a vocabulary of several
// panels.
inline TinySpec quantised_spec() {
  TinySpec spec;
  spec.weight_type = models_test::kQ8_0;
  return spec;
}

inline graph::PassOptions passes_of(const Device& device, bool precise) {
  graph::PassOptions options;
  options.linear_input_type = [&device, precise](DType weight, int64_t columns, bool asked) {
    return device.kernels().linear_input_type(weight, columns, precise || asked);
  };
  return options;
}

inline graph::Graph optimized_for(const graph::Graph& graph, const Device& device,
                                  bool precise = true) {
  auto result = graph::optimize(graph, passes_of(device, precise));
  ASSERT_OK(result);
  return std::move(result).value();
}

// An engine over a tiny model. What it points into is released behind it.
class DeviceEngine {
 public:
  struct Setup {
    TinySpec spec = quantised_spec();
    int32_t sequences = 4;
    int32_t tokens = 32;  // of a step
    int32_t context = 96;
    int64_t kv_tokens = 4 * 96;
    int32_t chunk = 0;
    bool prefix_cache = false;
    DType kv = DType::kF16;
    bool split = false;  // the first layer is on the host
    fake_cuda::GpuOptions gpu;
  };
  explicit DeviceEngine(const Setup& setup) : gpu(setup.gpu) {
    const TinyModel tiny(setup.spec);
    const models::LanguageModel model = plan_test::load(tiny);
    engine::StepLimits limits;
    limits.tokens = setup.tokens;
    limits.sequences = setup.sequences;
    limits.outputs = setup.sequences;
    limits.table_stride = static_cast<int32_t>(engine::kv_pages(setup.context));
    limits.vocab_size = static_cast<int32_t>(model.config.vocab);
    plan::PlanOptions options;
    options.max_tokens = limits.tokens;
    options.max_outputs = limits.outputs;
    options.max_sequences = limits.sequences;
    options.max_pages_per_sequence = limits.table_stride;
    options.max_context = int64_t{limits.table_stride} * engine::kKvPageTokens;
    engine::EngineParts parts;
    parts.team = plan_test::make_team(1);
    const auto layers = static_cast<int32_t>(model.config.layers);
    graph::SplitGraph split;
    if (setup.split) {
      auto made_split = graph::split(model.graph, graph::find_node(model.graph, "blk.1."));
      ASSERT_OK(made_split);
      split = std::move(made_split).value();
    }
    auto plan = plan_test::make_plan(optimized_for(setup.split ? split.second : model.graph, *gpu),
                                     *gpu, *parts.team, options);
    float* hidden = plan->input<float>("cut.0");
    const int64_t columns = plan->columns("cut.0");
    auto made_runner = engine::make_device_runner(std::move(plan), limits);
    ASSERT_OK(made_runner);
    runner = made_runner->get();
    parts.kv_parts = {{&*gpu, layers}};
    parts.runner = std::move(made_runner).value();
    if (setup.split) {
      engine::SplitParts two;
      two.head = plan_test::make_plan(optimized_for(split.first, host), host, *parts.team, options);
      two.tail = std::move(parts.runner);
      two.crossing = {{"cut.0", hidden, columns}};
      auto whole = engine::make_split_runner(std::move(two));
      ASSERT_OK(whole);
      parts.runner = std::move(whole).value();
      parts.kv_parts = {{&host, 1}, {&*gpu, layers - 1}};
    }
    engine::EngineOptions how;
    how.context_tokens = setup.context;
    how.kv_tokens = setup.kv_tokens;
    how.kv_dtype = setup.kv;
    how.max_sequences = setup.sequences;
    how.prefill_chunk_tokens = setup.chunk;
    how.prefix_cache = setup.prefix_cache;
    auto made = engine::Engine::create(std::move(parts), how);
    ASSERT_OK(made);
    engine = std::move(made).value();
  }

  fake_cuda::FakeGpu gpu;
  plan_test::HostDevice host;
  std::unique_ptr<engine::Engine> engine;
  engine::DeviceRunner* runner = nullptr;  // the engine's
};

}  // namespace device_test
