// SPDX-License-Identifier: Apache-2.0
//
// sampler_bench: what choosing one token costs on one core, by vocabulary, distribution and
// parameters: median over rounds in which all cases take turns, in microseconds.
//   sampler_bench [rounds] [table of row kernels]
//
// The floor. Every choice reads its row once: 196 KB at 49,152 logits, which come from the second
// level cache at 32 bytes a cycle (Zen 4): 1.8 us at 3.4 GHz. A weight takes 21 operations on 8
// lanes, at best four a cycle: 9.5 us for the row, which temperature and top_p pay on top, once.
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "parallel/clock.h"

namespace {

using namespace lmn::engine;

struct Case {
  std::string name;
  std::vector<float> row;
  std::vector<int32_t> tokens;
  SamplingParams params;
  std::vector<double> us;
};

// `peaked`: eight tokens hold nearly all the mass, as after a well-trained model.
std::vector<float> row_of(size_t vocab, float spread, bool peaked) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(vocab);
  for (float& x : row) x = normal(random);
  for (size_t i = 0; peaked && i < 8; ++i)
    row[(i * 6151 + 17) % vocab] = 20 - static_cast<float>(i);
  return row;
}

std::vector<Case> cases(size_t vocab) {
  std::vector<Case> all;
  const auto add = [&](const char* name, float spread, bool peaked, auto change) -> Case& {
    all.push_back({name, row_of(vocab, spread, peaked), {}, {}, {}});
    change(all.back().params);
    return all.back();
  };
  add("greedy", 2.5F, false, [](auto& p) { p.temperature = 0; });
  add("temperature 1", 2.5F, false, [](auto&) {});
  add("top_k 40", 2.5F, false, [](auto& p) { p.top_k = 40; });
  add("top_k 2000", 2.5F, false, [](auto& p) { p.top_k = 2000; });
  add("top_p 0.9", 2.5F, false, [](auto& p) { p.top_p = 0.9F; });
  add("top_p 0.9, peaked", 2.5F, true, [](auto& p) { p.top_p = 0.9F; });
  add("top_p 0.9, flat", 0.025F, false, [](auto& p) { p.top_p = 0.9F; });
  add("min_p 0.05", 2.5F, false, [](auto& p) { p.min_p = 0.05F; });
  add("top_k 40, top_p 0.9, min_p 0.05", 2.5F, false,
      [](auto& p) { p.top_k = 40, p.top_p = 0.9F, p.min_p = 0.05F; });
  add("greedy, 20 logprobs", 2.5F, false, [](auto& p) { p.temperature = 0, p.logprobs = 20; });
  add("temperature 1, 20 logprobs", 2.5F, false, [](auto& p) { p.logprobs = 20; });
  add("greedy, one bias", 2.5F, false, [](auto& p) {
    p.temperature = 0, p.logit_bias = {{5, 1.0F}};
  });
  Case& repeated = add("greedy, penalty, 4000 tokens", 2.5F, false,
                       [](auto& p) { p.temperature = 0, p.repetition_penalty = 1.1F; });
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i)
    repeated.tokens.push_back(static_cast<int32_t>(random() % 1500 * 31 % vocab));
  return all;
}

double median(std::vector<double>& of) {
  const auto middle = of.begin() + static_cast<ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
  const RowKernels* kernels = &row_kernels();
  for (const RowKernels* table : all_row_kernels()) {
    if (argc > 2 && std::string(argv[2]) == table->name) kernels = table;
  }
  std::printf("row kernels: %s\n", kernels->name);
  int64_t sink = 0;
  for (const size_t vocab : {size_t{256}, size_t{49'152}, size_t{151'936}}) {
    lmn::memory::Ledger ledger;
    Sampler sampler(static_cast<int32_t>(vocab), ledger, *kernels);
    std::vector<Case> all = cases(vocab);
    std::vector<int32_t> top_ids(20);
    std::vector<float> top_logprobs(20);
    const int calls = vocab < 1000 ? 64 : 4;  // to a measurement; the first of them warms the row
    for (int round = 0; round < rounds; ++round) {
      for (Case& c : all) {
        const size_t top = c.params.logprobs > 0 ? 20 : 0;
        const auto call = [&](int i) {
          sink += sampler
                      .choose(c.params, {c.row, c.tokens, 0, static_cast<uint64_t>(round * 64 + i)},
                              {std::span(top_ids).first(top), std::span(top_logprobs).first(top)})
                      .token_id;
        };
        call(0);
        const int64_t start = lmn::parallel::now_ns();
        for (int i = 1; i < calls; ++i) call(i);
        c.us.push_back(static_cast<double>(lmn::parallel::now_ns() - start) / 1e3 / (calls - 1));
      }
    }
    std::printf("vocabulary %zu\n", vocab);
    for (Case& c : all) std::printf("  %-34s %9.3f us\n", c.name.c_str(), median(c.us));
  }
  return sink < 0 ? 1 : 0;  // a token was refused
}
