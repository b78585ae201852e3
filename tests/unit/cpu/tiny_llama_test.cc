// SPDX-License-Identifier: Apache-2.0
//
// Tiny random models of the Llama family on every CPU target that this machine has, from GGUF bytes
// to logits: against loops in double, and the same bits whatever the chunks and the team.
#include "plan/tiny_llama.h"

#include <string_view>

#include "cpu/cpu_device.h"

using namespace lmn;
using namespace plan_test;

namespace {

// precise: 16-bit activations for quantised weights; else 8-bit ones where the target wants them.
void expect_on_every_target(const TinySpec& spec, double tolerance, DType kv = DType::kF32,
                            bool precise = true) {
  const TinyModel tiny(spec);
  const models::LanguageModel model = load(tiny);
  const std::vector<int32_t> tokens = some_tokens(spec.vocab);
  const std::vector<Vector> want = NaiveLlama(tiny).run(tokens);
  for (std::string_view target : cpu::available_targets()) {
    auto device = cpu::create_cpu_device(target);
    ASSERT_OK(device);
    graph::PassOptions options;
    options.linear_input_type = [&](DType weight, int64_t columns, bool) {
      return (*device)->kernels().linear_input_type(weight, columns, precise);
    };
    auto graph = graph::optimize(model.graph, options);
    ASSERT_OK(graph);
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      auto team = make_team(threads);
      auto plan = make_plan(*graph, **device, *team, plan_options(kTokens, kPages));
      for (size_t chunk : {size_t{1}, size_t{3}, size_t{9}, size_t{kTokens}}) {
        const std::vector<float> got = score(*plan, *team, kPages, spec.vocab, tokens, chunk, kv);
        if (first.empty()) first = got;
        EXPECT(same_bits(got, first));
      }
    }
    EXPECT(deviation(first, want) < tolerance);
  }
}

}  // namespace

TEST(tiny_llama_on_every_target) { expect_on_every_target(TinySpec{}, 5e-6); }

TEST(tiny_llama_of_float16_on_every_target) {
  TinySpec spec;
  spec.weight_type = models_test::kF16;
  spec.attention_bias = spec.feed_forward_bias = true;
  expect_on_every_target(spec, 2e-3, DType::kF16);  // of keys and values
}

TEST(tiny_llama_of_bytes_on_every_target) {
  TinySpec spec;
  spec.weight_type = models_test::kQ8_0;
  spec.v_type = models_test::kF32;
  expect_on_every_target(spec, 1e-3);
  expect_on_every_target(spec, 0.02, DType::kF32, /*precise=*/false);
}
