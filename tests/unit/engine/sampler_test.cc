// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "engine/philox.h"
#include "parallel/clock.h"
#include "sampler_reference.h"
#include "testing.h"

namespace lmn::engine {
namespace {

std::vector<float> random_row(uint32_t seed, size_t vocab, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(vocab);
  for (float& x : row) x = normal(random);
  return row;
}

class Bench {
 public:
  explicit Bench(size_t vocab, const RowKernels& kernels = row_kernels())
      : sampler_(static_cast<int32_t>(vocab), ledger_, kernels) {}
  // The token for number `index` of the stream: what the engine asks for after `index` generated
  // tokens.
  Sampler::Choice choose(const SamplingParams& params, const std::vector<float>& row, uint64_t seed,
                         const std::vector<int32_t>& tokens = {}, int32_t prompt = 0) {
    top_ids_.assign(size_t(std::max(params.logprobs, 0)), {});
    top_logprobs_.assign(top_ids_.size(), {});
    return sampler_.choose(params, {row, tokens, prompt, seed}, {top_ids_, top_logprobs_});
  }
  const std::vector<int32_t>& top_ids() const { return top_ids_; }
  const std::vector<float>& top_logprobs() const { return top_logprobs_; }

 private:
  memory::Ledger ledger_;
  Sampler sampler_;
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logprobs_;
};

// Known answers of Random123 (kat_vectors, "philox4x32 10").
TEST(philox_known_answers) {
  EXPECT((philox4x32({0, 0, 0, 0}, {0, 0}) ==
          std::array<uint32_t, 4>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr uint32_t f = 0xFFFFFFFF;
  EXPECT((philox4x32({f, f, f, f}, {f, f}) ==
          std::array<uint32_t, 4>{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT((philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}) ==
          std::array<uint32_t, 4>{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(uniform_is_in_range_and_even) {
  constexpr int kDraws = 100'000, kBins = 50;
  int bins[kBins] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform(123, uint64_t(i));
    ASSERT(u >= 0 && u < 1);
    ++bins[int(u * kBins)];
  }
  double chi2 = 0;
  for (const int n : bins)
    chi2 += (n - double(kDraws) / kBins) * (n - double(kDraws) / kBins) / (double(kDraws) / kBins);
  EXPECT(chi2 < 85.4);  // 99.9 % quantile of chi-square with 49 degrees of freedom
}

TEST(exp2_weight_is_exp2) {
  double worst = 0;
  for (int i = 0; i < 1'249'000; ++i) {
    const float y = -static_cast<float>(i) * 1e-4F;
    worst = std::max(worst, std::abs(double(exp2_weight(y)) / std::exp2(double(y)) - 1));
  }
  EXPECT(worst < 2e-7);
  EXPECT_EQ(exp2_weight(0), 1.0F);
  EXPECT_EQ(exp2_weight(-125), 0.0F);
  EXPECT_EQ(exp2_weight(-std::numeric_limits<float>::max()), 0.0F);
  EXPECT_EQ(exp2_weight(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_NEAR(weight_scale(2), 0.5 / std::log(2.0), 1e-7);
  EXPECT_EQ(weight_scale(std::numeric_limits<float>::denorm_min()),
            std::numeric_limits<float>::max());
}

TEST(greedy_takes_the_largest_and_the_lowest_id_among_equals) {
  SamplingParams greedy;
  greedy.temperature = 0;
  for (const size_t vocab : {1u, 3u, 4u, 63u, 64u, 65u, 1000u}) {
    Bench bench(vocab);
    for (size_t at = 0; at < vocab; at += 1 + vocab / 17) {
      std::vector<float> row(vocab, -2.5F);
      row[at] = -1;
      if (at + 3 < vocab) row[at + 3] = -1;
      row.back() = -1;
      EXPECT_EQ(bench.choose(greedy, row, 0).token_id, static_cast<int32_t>(at));
    }
  }
}

TEST(non_finite_logits_are_named_wherever_they_are) {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const size_t vocab : {1u, 5u, 130u}) {
    Bench bench(vocab);
    for (const float bad : {inf, -inf, nan, -nan}) {
      for (size_t at = 0; at < vocab; ++at) {
        std::vector<float> row(vocab, 1);
        row[at] = bad;
        const auto choice = bench.choose({}, row, 0);
        EXPECT_EQ(choice.non_finite, static_cast<int32_t>(at));
        EXPECT_EQ(choice.token_id, -1);
      }
    }
    EXPECT_EQ(bench.choose({}, std::vector<float>(vocab, std::numeric_limits<float>::max()), 0)
                  .non_finite,
              -1);
    EXPECT_EQ(
        bench.choose({}, std::vector<float>(vocab, std::numeric_limits<float>::denorm_min()), 0)
            .non_finite,
        -1);
  }
}

// Every filter, alone and together, against the plain computation: the token must be the one at
// which the reference's cumulative distribution by ascending id passes the same uniform number.
TEST(draws_invert_the_reference_distribution) {
  std::vector<SamplingParams> all(14);
  all[1].temperature = 0.7F;
  all[2].temperature = 3;
  all[3].top_k = 1;
  all[4].top_k = 40;
  all[5].top_k = 700;
  all[6].top_p = 0.9F;
  all[7].top_p = 0.05F;
  all[8].min_p = 0.1F;
  all[9].top_k = 50, all[9].top_p = 0.8F;
  all[10].top_k = 300, all[10].top_p = 0.95F, all[10].min_p = 0.02F, all[10].temperature = 1.3F;
  all[11].repetition_penalty = 1.3F, all[11].presence_penalty = 0.5F,
  all[11].frequency_penalty = 0.25F;
  all[12].repetition_penalty = 0.8F, all[12].frequency_penalty = -0.5F, all[12].penalty_last_n = 20,
  all[12].top_k = 20;
  all[13].logit_bias = {{3, 5.0F}, {900, -std::numeric_limits<float>::infinity()}, {3, 1.0F}},
  all[13].top_p = 0.7F;
  constexpr size_t kVocab = 1'000;
  Bench bench(kVocab);
  int compared = 0;
  for (const float spread : {0.3F, 1.0F, 4.0F}) {
    for (uint32_t r = 0; r < 8; ++r) {
      const auto row = random_row(r + 100, kVocab, spread);
      std::vector<int32_t> tokens;
      for (int32_t i = 0; i < 60; ++i)
        tokens.push_back(static_cast<int32_t>((i * i * 7 + int(r)) % 90));
      for (const SamplingParams& params : all) {
        const auto want = reference_distribution(params, row, tokens, 40);
        if (want.near_cut) continue;
        for (uint64_t seed = 0; seed < 20; ++seed) {
          const double u = uniform(seed, 20);  // 20 tokens are generated
          const auto got = bench.choose(params, row, seed, tokens, 40);
          ASSERT(got.token_id >= 0);
          double below = 0;
          for (int32_t id = 0; id < got.token_id; ++id) below += want.p[size_t(id)];
          const double p = want.p[size_t(got.token_id)];
          EXPECT(p > 0);
          EXPECT(u >= below - 1e-5 && u <= below + p + 1e-5);
          ++compared;
        }
      }
    }
  }
  EXPECT(compared > 5'000);
}

TEST(kept_tokens_by_hand) {
  // Probabilities 0.4, 0.3, 0.2, 0.1 in another order.
  const std::vector<float> row = {std::log(0.2F), std::log(0.4F), std::log(0.1F), std::log(0.3F)};
  Bench bench(4);
  const auto kept = [&](const SamplingParams& params) {
    std::set<int32_t> ids;
    for (uint64_t seed = 0; seed < 400; ++seed)
      ids.insert(bench.choose(params, row, seed).token_id);
    return ids;
  };
  using Ids = std::set<int32_t>;
  const auto with = [](auto change) {
    SamplingParams params;
    change(params);
    return params;
  };
  EXPECT((kept({}) == Ids{0, 1, 2, 3}));
  EXPECT((kept(with([](auto& p) { p.top_k = 2; })) == Ids{1, 3}));
  EXPECT((kept(with([](auto& p) { p.top_k = 9; })) == Ids{0, 1, 2, 3}));
  EXPECT((kept(with([](auto& p) { p.top_p = 0.39F; })) == Ids{1}));
  EXPECT((kept(with([](auto& p) { p.top_p = 0.65F; })) == Ids{1, 3}));
  EXPECT((kept(with([](auto& p) { p.top_p = 0.75F; })) == Ids{0, 1, 3}));
  EXPECT((kept(with([](auto& p) { p.min_p = 0.6F; })) == Ids{1, 3}));
  EXPECT((kept(with([](auto& p) { p.min_p = 1; })) == Ids{1}));
  // top_p after top_k: of {0.4, 0.3} renormalised, 0.57 alone holds 0.55.
  EXPECT((kept(with([](auto& p) { p.top_k = 2, p.top_p = 0.55F; })) == Ids{1}));
  // top_p before a temperature of 4 would keep one token of 0.39; after it, the probabilities are
  // 0.30 0.28 0.25 0.17.
  EXPECT((kept(with([](auto& p) { p.temperature = 4, p.top_p = 0.39F; })) == Ids{1, 3}));
  const float minus_inf = -std::numeric_limits<float>::infinity();
  EXPECT((kept(with([&](auto& p) {
            p.logit_bias = {{1, minus_inf}, {3, minus_inf}};
          })) == Ids{0, 2}));
  EXPECT((kept(with([&](auto& p) {
            p.logit_bias = {{0, minus_inf}, {1, minus_inf}, {2, minus_inf}, {3, minus_inf}};
          })) == Ids{-1}));
}

TEST(ties_go_to_the_lowest_ids) {
  const std::vector<float> row(200, 1.5F);
  Bench bench(200);
  SamplingParams params;
  params.top_k = 3;
  std::set<int32_t> ids;
  for (uint64_t seed = 0; seed < 200; ++seed) ids.insert(bench.choose(params, row, seed).token_id);
  EXPECT((ids == std::set<int32_t>{0, 1, 2}));
  params.top_k = 0;
  params.top_p = 0.0101F;  // three of two hundred equal tokens
  ids.clear();
  for (uint64_t seed = 0; seed < 200; ++seed) ids.insert(bench.choose(params, row, seed).token_id);
  EXPECT((ids == std::set<int32_t>{0, 1, 2}));
  // Among dropped equals, and before a likelier token, in a block that is not the first.
  std::vector<float> mixed(200, -1);
  std::fill(mixed.begin() + 70, mixed.begin() + 90, 1.5F);
  mixed[100] = 2;
  params = {};
  params.top_k = 3;
  ids.clear();
  for (uint64_t seed = 0; seed < 200; ++seed)
    ids.insert(bench.choose(params, mixed, seed).token_id);
  EXPECT((ids == std::set<int32_t>{70, 71, 100}));
}

TEST(penalties_by_hand) {
  SamplingParams params;
  params.temperature = 0;
  // Prompt {0, 1}, output {1, 2, 2}. Repetition 2: 4 -> 2, -1 -> -2. Presence 0.5, frequency 0.25
  // on the output only.
  const std::vector<int32_t> tokens = {0, 1, 1, 2, 2};
  Bench bench(4);
  params.repetition_penalty = 2;
  EXPECT_EQ(bench.choose(params, {4, 1, 1, 1.9F}, 0, tokens, 2).token_id, 0);  // 2.0 beats 1.9
  EXPECT_EQ(bench.choose(params, {4, 1, 1, 2.1F}, 0, tokens, 2).token_id, 3);
  EXPECT_EQ(bench.choose(params, {-1, -9, -9, -1.9F}, 0, tokens, 2).token_id,
            3);  // -2.0 against -1.9
  params.repetition_penalty = 1;
  params.presence_penalty = 0.5F;
  params.frequency_penalty = 0.25F;
  EXPECT_EQ(bench.choose(params, {3, 3.7F, 0, 0}, 0, tokens, 2).token_id,
            0);  // 3.7 - 0.75 < 3: token 0 is not in the output
  EXPECT_EQ(bench.choose(params, {3, 3.8F, 0, 0}, 0, tokens, 2).token_id, 1);  // 3.8 - 0.75 > 3
  EXPECT_EQ(bench.choose(params, {3, 0, 3.9F, 0}, 0, tokens, 2).token_id,
            0);               // 3.9 - 1.0 < 3: two occurrences
  params.penalty_last_n = 1;  // sees one of them
  EXPECT_EQ(bench.choose(params, {3, 0, 3.9F, 0}, 0, tokens, 2).token_id, 2);  // 3.9 - 0.75 > 3
  EXPECT_EQ(bench.choose(params, {3, 3.1F, 0, 0}, 0, tokens, 2).token_id,
            1);  // token 1 is out of the window
  // A penalty so small that it would divide to infinity neither breaks nor hides the token.
  params = {};
  params.temperature = 0;
  params.repetition_penalty = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(bench.choose(params, {4, 1, 1, 5}, 0, tokens, 2).token_id, 0);
}

TEST(frequencies_follow_the_distribution) {
  const auto row = random_row(5, 40, 1.5F);
  SamplingParams params;
  params.temperature = 0.9F;
  params.top_k = 20;
  const auto want = reference_distribution(params, row, {}, 0);
  Bench bench(40);
  constexpr int kDraws = 50'000;
  std::vector<int> count(40, 0);
  for (int i = 0; i < kDraws; ++i) ++count[size_t(bench.choose(params, row, uint64_t(i)).token_id)];
  double chi2 = 0;
  for (size_t id = 0; id < 40; ++id) {
    if (want.p[id] == 0) {
      EXPECT_EQ(count[id], 0);
      continue;
    }
    chi2 += (count[id] - kDraws * want.p[id]) * (count[id] - kDraws * want.p[id]) /
            (kDraws * want.p[id]);
  }
  EXPECT(chi2 < 43.8);  // 99.9 % quantile with 19 degrees of freedom
}

TEST(logprobs_are_the_models_own) {
  constexpr size_t kVocab = 5'000;
  Bench bench(kVocab);
  for (uint32_t r = 0; r < 5; ++r) {
    const auto row = random_row(r, kVocab, 3);
    SamplingParams params;
    params.logprobs = 20;
    params.temperature = 0.5F;  // none of these change a logprob
    params.top_k = 5;
    params.logit_bias = {{17, 8.0F}};
    const auto choice = bench.choose(params, row, r);
    double sum = 0;
    for (const float x : row) sum += std::exp(double(x));
    EXPECT_NEAR(choice.logprob, row[size_t(choice.token_id)] - std::log(sum), 2e-6);
    std::vector<int32_t> order(kVocab);
    for (size_t i = 0; i < kVocab; ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return row[size_t(a)] > row[size_t(b)]; });
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(bench.top_ids()[i], order[i]);
      EXPECT_NEAR(bench.top_logprobs()[i], row[size_t(order[i])] - std::log(sum), 2e-6);
    }
  }
  for (const float temperature : {1.0F, 0.8F}) {  // nothing is filtered, nothing changed
    const auto row = random_row(77, kVocab, 2);
    SamplingParams params;
    params.temperature = temperature;
    params.logprobs = 0;
    const auto choice = bench.choose(params, row, 1);
    double sum = 0;
    for (const float x : row) sum += std::exp(double(x));
    EXPECT_NEAR(choice.logprob, row[size_t(choice.token_id)] - std::log(sum), 2e-6);
  }
  SamplingParams all;  // as many as there are tokens
  all.logprobs = 3;
  Bench small(3);
  EXPECT_EQ(small.choose(all, {1, 3, 2}, 0).non_finite, -1);
  EXPECT((small.top_ids()[0] == 1 && small.top_ids()[1] == 2 && small.top_ids()[2] == 0));
}

TEST(extreme_temperatures) {
  Bench bench(100);
  const auto row = random_row(1, 100, 2);
  SamplingParams params;
  params.temperature = std::numeric_limits<float>::denorm_min();  // as good as greedy
  const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  for (uint64_t seed = 0; seed < 50; ++seed)
    EXPECT_EQ(bench.choose(params, row, seed).token_id, best);
  for (const float temperature : {1e-3F, 0.05F, 100.0F}) {
    params.temperature = temperature;
    const auto want = reference_distribution(params, row, {}, 0);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const int32_t got = bench.choose(params, row, seed).token_id;
      const auto below = want.p.begin() + got;
      const double sum = std::accumulate(want.p.begin(), below, 0.0);
      EXPECT(uniform(seed, 0) >= sum - 1e-5 && uniform(seed, 0) <= sum + *below + 1e-5);
    }
  }
  std::vector<float> huge = row;  // differences beyond the range of float
  huge[10] = std::numeric_limits<float>::max();
  huge[20] = std::numeric_limits<float>::lowest();
  params.temperature = 1;
  for (const float top_p : {1.0F, 0.5F}) {
    params.top_p = top_p;
    for (uint64_t seed = 0; seed < 50; ++seed)
      EXPECT_EQ(bench.choose(params, huge, seed).token_id, 10);
  }
}

// Penalties, bias, every filter; vocabularies that are no multiple of a block; forbidden tokens.
TEST(every_instruction_set_chooses_the_same) {
  std::vector<SamplingParams> all(12);
  all[0].temperature = 0;
  all[1].temperature = 0.02F;
  all[2].temperature = 100;
  all[3].top_k = 7;
  all[4].top_k = 900;
  all[5].top_p = 0.9F;
  all[6].top_p = 0.5F, all[6].temperature = 100;
  all[7].min_p = 0.07F;
  all[8].top_k = 200, all[8].top_p = 0.8F, all[8].min_p = 0.01F;
  all[9].repetition_penalty = 1.4F, all[9].frequency_penalty = 0.3F, all[9].top_p = 0.95F;
  all[10].logit_bias = {{0, -std::numeric_limits<float>::infinity()}, {0, 2.0F}};
  all[11].repetition_penalty = 0.5F, all[11].temperature = 0;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 300; ++i) tokens.push_back(i * i % 70);
  const auto sets = all_row_kernels();
  for (const size_t vocab : {70u, 1'000u, 4'099u}) {
    for (const float spread : {0.1F, 3.0F}) {
      const auto row = random_row(static_cast<uint32_t>(vocab), vocab, spread);
      for (SamplingParams& params : all) {
        params.logprobs = 5;
        Bench first(vocab, *sets.front());
        for (const RowKernels* kernels : sets.subspan(1)) {
          Bench other(vocab, *kernels);
          for (uint64_t seed = 0; seed < 15; ++seed) {
            const auto want = first.choose(params, row, seed, tokens, 100);
            const auto got = other.choose(params, row, seed, tokens, 100);
            ASSERT(want.token_id >= 0);
            EXPECT_EQ(got.token_id, want.token_id);
            EXPECT(got.logprob == want.logprob && other.top_ids() == first.top_ids() &&
                   other.top_logprobs() == first.top_logprobs());
          }
        }
      }
    }
  }
}

// Penalties and bias keep block maxima up to date instead of looking at the row again.
TEST(changed_logits_are_found_in_every_block) {
  constexpr size_t kVocab = 330;
  Bench bench(kVocab);
  const float minus_inf = -std::numeric_limits<float>::infinity();
  const auto row = random_row(3, kVocab, 1);
  std::vector<float> left = row;
  SamplingParams params;
  params.temperature = 0;
  for (size_t i = 0; i < kVocab; ++i) {  // the best goes, the next best is found, to the last
    const auto best =
        static_cast<int32_t>(std::max_element(left.begin(), left.end()) - left.begin());
    EXPECT_EQ(bench.choose(params, row, 0).token_id, best);
    left[size_t(best)] = minus_inf;
    params.logit_bias.push_back({best, minus_inf});
  }
  EXPECT_EQ(bench.choose(params, row, 0).token_id, -1);
  for (int32_t id = 0; id < static_cast<int32_t>(kVocab); id += 13) {
    params.logit_bias = {{id, 50.0F}, {(id + 100) % int32_t(kVocab), 60.0F}, {id, 20.0F}};
    EXPECT_EQ(bench.choose(params, row, 0).token_id, id);
  }
}

TEST(time_at_a_real_vocabulary) {
  constexpr size_t kVocab = 49'152;
  Bench bench(kVocab);
  const auto row = random_row(9, kVocab, 2.5F);
  const auto time = [&](const char* what, const SamplingParams& params) {
    std::vector<double> us;
    for (uint64_t i = 0; i < 60; ++i) {
      const int64_t start = parallel::now_ns();
      (void)bench.choose(params, row, i);
      us.push_back(static_cast<double>(parallel::now_ns() - start) / 1e3);
    }
    std::nth_element(us.begin(), us.begin() + 30, us.end());
    std::printf("     %-28s %6.0f us (median, vocabulary 49152)\n", what, us[30]);
  };
  SamplingParams params;
  params.temperature = 0;
  time("greedy", params);
  params.temperature = 1;
  time("temperature", params);
  params.top_k = 40;
  time("top_k 40", params);
  params.top_k = 0, params.top_p = 0.9F;
  time("top_p 0.9", params);
  params.top_k = 40, params.min_p = 0.05F;
  time("top_k 40, top_p 0.9, min_p", params);
  params = {}, params.temperature = 100, params.top_p = 0.9F;
  time("top_p 0.9 of a flat row", params);
  params = {}, params.logprobs = 20, params.temperature = 0;
  time("greedy, 20 logprobs", params);
}

}  // namespace
}  // namespace lmn::engine
