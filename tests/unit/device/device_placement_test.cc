// SPDX-License-Identifier: Apache-2.0
//
// Placement by the memory that a device has: all of a model, some of its layers, or the figures.
#include "capi/placement.h"
#include "cpu/cpu_device.h"
#include "device_fixture.h"
#include "engine/fake_model.h"

using namespace device_test;

namespace {

struct Placing {
  explicit Placing(int64_t memory_bytes)
      : gpu({.memory_bytes = memory_bytes}),
        team(plan_test::make_team(1)),
        model(plan_test::load(TinyModel(quantised_spec()))) {
    engine::StepLimits limits;
    limits.tokens = 16;
    limits.sequences = limits.outputs = 2;
    limits.table_stride = 3;
    limits.vocab_size = static_cast<int32_t>(model.config.vocab);
    recipe.emplace(
        capi::PlanRecipe{*team, limits, true, {}, model.config.layers, {}, {}, {}, {}, [] {
                           return cpu::create_cpu_device("");
                         }});
    const engine::KvShape kv = {static_cast<int32_t>(model.config.layers),
                                static_cast<int32_t>(model.config.kv_heads),
                                static_cast<int32_t>(model.config.head_dim)};
    recipe->need.kv = *engine::kv_bytes(kv, DType::kF16, 192);
    recipe->need.kv_tokens = 192;
    recipe->need.sequences = 2;
  }
  Result<capi::PlacedModel> place() { return place_model(*recipe, model.graph, *gpu); }

  fake_cuda::FakeGpu gpu;
  std::unique_ptr<parallel::ThreadTeam> team;
  models::LanguageModel model;
  std::optional<capi::PlanRecipe> recipe;
};

// Of the whole model: the plan's, and the cache's.
int64_t bytes_of_all() {
  Placing placing(int64_t{1} << 40);
  auto placed = placing.place();
  ASSERT_OK(placed);
  EXPECT_EQ(placed->kv_parts.size(), size_t{1});
  EXPECT(placed->host == nullptr);
  return placed->memory.packed + placed->memory.arena + placing.recipe->need.kv;
}

}  // namespace

TEST(a_device_with_room_has_the_whole_model) {
  Placing placing(bytes_of_all());
  auto placed = placing.place();
  ASSERT_OK(placed);
  EXPECT_EQ(placed->kv_parts.size(), size_t{1});
  EXPECT(placed->kv_parts[0].device == &*placing.gpu);
  EXPECT_EQ(placing.gpu.bytes_in_use(), placed->memory.packed + placed->memory.arena);
  EXPECT_EQ(placing.gpu.pinned_in_use(), placed->memory.pinned);
  EXPECT(placed->memory.pinned > 2 * placing.model.config.vocab * 4);  // logits, for one
}

TEST(a_host_without_room_for_logits_says_what_there_is) {
  Placing placing(int64_t{1} << 60);
  placing.recipe->limits.tokens = placing.recipe->limits.outputs = INT32_MAX;
  const auto placed = placing.place();
  EXPECT(placed.status().code() == Code::kOutOfMemory);
  const std::string message(placed.status().message());
  for (const char* part : {"page-locked memory of the host", "lower max_sequences"})
    EXPECT(message.find(part) != std::string::npos);
  EXPECT_EQ(placing.gpu.bytes_in_use() + placing.gpu.pinned_in_use(), 0);
}

TEST(a_device_without_room_for_all_has_the_last_layers) {
  Placing placing(bytes_of_all() - 1);
  auto placed = placing.place();
  ASSERT_OK(placed);
  ASSERT(placed->kv_parts.size() == size_t{2});
  EXPECT(placed->kv_parts[0].device == placed->host.get());
  EXPECT(placed->kv_parts[1].device == &*placing.gpu);
  EXPECT_EQ(placed->kv_parts[0].layers, 1);
  EXPECT_EQ(placed->kv_parts[0].layers + placed->kv_parts[1].layers,
            static_cast<int32_t>(placing.model.config.layers));

  engine::EngineParts parts;
  parts.team = plan_test::make_team(1);
  parts.runner = std::move(placed->runner);
  parts.kv_parts = placed->kv_parts;
  engine::EngineOptions how;
  how.context_tokens = 96;
  how.kv_tokens = 192;
  how.max_sequences = 2;
  auto made = engine::Engine::create(std::move(parts), how);
  ASSERT_OK(made);
  const auto request = engine::must_submit(
      **made, engine::greedy(
                  engine::some_prompt(3, 20, static_cast<int32_t>(placing.model.config.vocab)), 6));
  EXPECT_EQ(engine::collect(*request).tokens.size(), size_t{6});
}

TEST(a_device_without_room_for_a_layer_says_what_there_is) {
  Placing placing(1000);
  const auto placed = placing.place();
  EXPECT(placed.status().code() == Code::kOutOfMemory);
  const std::string message(placed.status().message());
  for (const char* part : {"MiB of weights", "MiB of KV cache for 192 tokens",
                           "on device cuda:1, of whose 0.0 MiB 0.0 are free", "lower kv_tokens"})
    EXPECT(message.find(part) != std::string::npos);
  EXPECT_EQ(placing.gpu.bytes_in_use(), 0);
}
