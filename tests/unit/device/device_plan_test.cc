// SPDX-License-Identifier: Apache-2.0
//
// Plans on the CUDA device's kernels: like loops in double, the same bits in any chunks, and
// nothing left behind.
#include "device_fixture.h"
#include "graph/split.h"

using namespace device_test;
using namespace plan_test;

namespace {

std::vector<float> logits_on_device(const TinySpec& spec, size_t chunk, DType kv,
                                    fake_cuda::FakeGpu& gpu) {
  const models::LanguageModel model = load(TinyModel(spec));
  auto team = make_team(2);  // packs; kernels are queued by one
  auto plan =
      make_plan(optimized_for(model.graph, *gpu), *gpu, *team, plan_options(kTokens, kPages));
  return score(*plan, *team, kPages, spec.vocab, some_tokens(spec.vocab), chunk, kv);
}

void expect_like_naive_on_device(const TinySpec& spec, double tolerance, DType kv = DType::kF32) {
  fake_cuda::FakeGpu gpu;
  const std::vector<Vector> want = NaiveLlama(TinyModel(spec)).run(some_tokens(spec.vocab));
  const std::vector<float> whole = logits_on_device(spec, kTokens, kv, gpu);
  EXPECT(deviation(whole, want) < tolerance);
  // Whenever the device gets to its work.
  fake_cuda::FakeGpu eager({.seed = 7});
  EXPECT(same_bits(logits_on_device(spec, 1, kv, gpu), whole));
  for (size_t chunk : {7, 17}) EXPECT(same_bits(logits_on_device(spec, chunk, kv, eager), whole));
  EXPECT_EQ(gpu.bytes_in_use(), 0);
}

}  // namespace

TEST(a_tiny_llama_on_the_device) { expect_like_naive_on_device(TinySpec{}, 2e-5); }
TEST(a_tiny_llama_on_the_device_with_half_a_cache) {
  expect_like_naive_on_device(TinySpec{}, 3e-3, DType::kF16);
}
TEST(a_quantised_tiny_llama_on_the_device) {
  expect_like_naive_on_device(quantised_spec(), 3e-3, DType::kF16);
}
TEST(a_tiny_qwen2_on_the_device) {
  TinySpec spec;
  spec.architecture = "qwen2";
  spec.attention_bias = true;
  spec.kv_heads = 4;
  expect_like_naive_on_device(spec, 2e-5);
}

// Of tables of 8192 pages a step sends those that its rows attend to, and computes the same.
TEST(block_tables_are_sent_as_far_as_a_step_reads_them) {
  constexpr int64_t kManyPages = 8192;
  constexpr int32_t kRows = 20, kPage = Cache::kPageTokens;
  fake_cuda::FakeGpu gpu;
  const TinySpec spec = quantised_spec();
  const models::LanguageModel model = load(TinyModel(spec));
  auto team = make_team(1);
  auto plan =
      make_plan(optimized_for(model.graph, *gpu), *gpu, *team, plan_options(kRows, kManyPages));
  Cache cache(*plan, 5, DType::kF16);
  auto* tables = plan->input<int32_t>("block_tables");
  const int32_t pages[2] = {4, 1};
  for (int32_t s = 0; s < 2; ++s) std::copy_n(pages, 2, tables + s * kManyPages);
  for (int32_t t = 0; t < kRows; ++t) {
    plan->input<int32_t>("token_ids")[t] = (t * 5 + 1) % static_cast<int32_t>(spec.vocab);
    plan->input<int32_t>("positions")[t] = t;
    plan->input<int32_t>("sequence_index")[t] = 1;
    plan->input<int32_t>("kv_slots")[t] = pages[t / kPage] * kPage + t % kPage;
    plan->input<int32_t>("output_rows")[t] = t;
  }
  plan->set_symbol("tokens", kRows);
  plan->set_symbol("outputs", kRows);
  plan->set_symbol("sequences", 2);
  const size_t count = kRows * spec.vocab;
  const int64_t before = gpu.counters().bytes_to_device;
  ASSERT_OK(plan->run(*team, {kRows, 0}));
  EXPECT(gpu.counters().bytes_to_device - before < 4096);
  const std::vector<float> few(plan->output("logits"), plan->output("logits") + count);
  ASSERT_OK(plan->run(*team));  // contexts are not told
  EXPECT(gpu.counters().bytes_to_device - before > 2 * 4 * kManyPages);
  EXPECT(same_bits(few, {plan->output("logits"), plan->output("logits") + count}));
}

// A profile is measured by the device: one wait for the whole step, the same results.
TEST(a_profiled_run_measures_every_stage_and_waits_once) {
  fake_cuda::FakeGpu gpu;
  const TinySpec spec = quantised_spec();
  const models::LanguageModel model = load(TinyModel(spec));
  const std::vector<int32_t> tokens = some_tokens(spec.vocab);
  auto team = make_team(1);
  auto plan =
      make_plan(optimized_for(model.graph, *gpu), *gpu, *team, plan_options(kTokens, kPages));
  const std::vector<float> plain = score(*plan, *team, kPages, spec.vocab, tokens, kTokens);
  const int64_t waits = gpu.counters().waits;
  EXPECT(same_bits(score(*plan, *team, kPages, spec.vocab, tokens, kTokens), plain));
  const int64_t plain_waits = gpu.counters().waits - waits;

  plan->set_profiles(2);
  plan->select_profile(1);
  const int64_t begin = parallel::now_ns();
  EXPECT(same_bits(score(*plan, *team, kPages, spec.vocab, tokens, kTokens), plain));
  const int64_t took = parallel::now_ns() - begin;
  EXPECT_EQ(gpu.counters().waits - waits, 2 * plain_waits + 1);
  const std::vector<plan::ProfileEntry> entries = plan->profile(1);
  ASSERT(entries.size() > 10);
  EXPECT_EQ(std::string(entries.front().name), "start");
  int64_t sum = 0, linears = 0;
  for (const plan::ProfileEntry& entry : entries) {
    const bool fused = entry.op == "quantize";  // which the stage before may do
    EXPECT(entry.calls == 1 || (fused && entry.calls == 0));
    EXPECT(entry.run_ns >= 0);
    sum += entry.run_ns;
    if (entry.op == "linear") linears += entry.run_ns;
  }
  EXPECT(linears > 0 && sum <= took);
  for (const plan::ProfileEntry& entry : plan->profile(0)) EXPECT_EQ(entry.calls, int64_t{0});
}

// Staged through page-locked memory, two buffers a member, the weights are what they are when they
// are packed in place.
TEST(weights_reach_the_device_through_staging) {
  fake_cuda::FakeGpu gpu;
  const models::LanguageModel model = load(TinyModel(quantised_spec()));
  const auto one = make_team(1), three = make_team(3);
  const graph::Graph graph = optimized_for(model.graph, *gpu);
  const std::vector<int32_t> tokens = some_tokens(quantised_spec().vocab);
  std::vector<float> first;
  for (parallel::ThreadTeam* team : {one.get(), three.get()}) {
    auto plan = make_plan(graph, *gpu, *team, plan_options(kTokens, kPages));
    const std::vector<float> got =
        score(*plan, *team, kPages, quantised_spec().vocab, tokens, kTokens);
    if (first.empty()) first = got;
    EXPECT(same_bits(got, first));
  }
}

// A plan needs to know the longest context, and a device that fails ends a run with its reason.
TEST(a_device_that_fails_ends_the_run_and_is_closed) {
  fake_cuda::FakeGpu gpu;
  const models::LanguageModel model = load(TinyModel(TinySpec{}));
  auto team = make_team(1);
  plan::PlanOptions options = plan_options(4, kPages);
  auto plan = make_plan(optimized_for(model.graph, *gpu), *gpu, *team, options);
  Cache cache(*plan, 4);
  plan->set_symbol("tokens", 0);
  EXPECT(plan->run(*team).ok());
  gpu.fail("cudaStreamSynchronize", cudaErrorIllegalAddress);
  const Status failed = plan->run(*team);
  EXPECT(failed.code() == Code::kInternal);
  EXPECT(failed.message().find("device cuda:1 failed") != std::string_view::npos);
  const Status again = plan->run(*team);
  EXPECT(again.code() == Code::kClosed);
  EXPECT(again.message().find("an error that the test asked for") != std::string_view::npos);

  const fake_cuda::FakeGpu other;
  options.max_context = 0;
  const auto refused =
      plan::Plan::build(optimized_for(model.graph, *other), *other, *team, options);
  EXPECT(refused.status().code() == Code::kInvalidArgument);
}

// Cut before its second layer, a model is what it was: first part, carried over, second part.
TEST(a_graph_in_two_parts_computes_the_same) {
  const TinySpec spec = quantised_spec();
  const models::LanguageModel model = load(TinyModel(spec));
  auto parts = graph::split(model.graph, graph::find_node(model.graph, "blk.1."));
  ASSERT_OK(parts);
  EXPECT_EQ(parts->crossing.size(), size_t{1});
  HostDevice device;
  auto team = make_team(1);
  auto whole = make_plan(optimized(model.graph, device), device, *team, plan_options(8, 1));
  auto first = make_plan(optimized(parts->first, device), device, *team, plan_options(8, 1));
  auto second = make_plan(optimized(parts->second, device), device, *team, plan_options(8, 1));
  EXPECT_EQ(first->kv_layers() + second->kv_layers(), whole->kv_layers());
  std::vector<float> logits[2];
  const int64_t columns = first->columns("cut.0");
  EXPECT_EQ(columns, second->columns("cut.0"));
  Cache caches[] = {Cache(*whole, 1), Cache(*first, 1), Cache(*second, 1)};
  for (plan::Plan* plan : {whole.get(), first.get(), second.get()}) {
    for (int32_t t = 0; t < 8; ++t) {
      plan->input<int32_t>("token_ids")[t] = (t * 5 + 1) % static_cast<int32_t>(spec.vocab);
      plan->input<int32_t>("positions")[t] = t;
      plan->input<int32_t>("sequence_index")[t] = 0;
      plan->input<int32_t>("kv_slots")[t] = t;
      plan->input<int32_t>("output_rows")[t] = t;
    }
    plan->input<int32_t>("block_tables")[0] = 0;
    plan->set_symbol("tokens", 8);
    plan->set_symbol("sequences", 1);
    plan->set_symbol("outputs", 8);
    if (plan == second.get())
      std::copy_n(first->output("cut.0"), 8 * columns, plan->input<float>("cut.0"));
    EXPECT(plan->run(*team).ok());
  }
  const size_t count = 8 * spec.vocab;
  logits[0].assign(whole->output("logits"), whole->output("logits") + count);
  logits[1].assign(second->output("logits"), second->output("logits") + count);
  EXPECT(same_bits(logits[0], logits[1]));
}
