// SPDX-License-Identifier: Apache-2.0
//
// Sampling on the device (cuda/kernels/sampling) against engine::Sampler on the same rows: the same
// token, or the same logit that is not finite, every time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cuda/kernels/launchers.h"
#include "engine/logits_row.h"
#include "engine/philox.h"
#include "engine/sampler.h"
#include "test_device.h"

namespace lmn::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::vector<std::vector<float>> rows;  // of one length
  std::vector<SampleRow> samples;
};

int64_t compared = 0;

// The rows' distance from each other in memory is more than their length.
void check(const Case& c, int32_t gap = 3) {
  const size_t vocab = c.rows.front().size(), stride = vocab + size_t(gap);
  std::vector<float> logits(stride * (c.rows.size() - 1) + vocab, std::nanf(""));
  for (size_t r = 0; r < c.rows.size(); ++r)
    std::copy(c.rows[r].begin(), c.rows[r].end(), logits.begin() + int64_t(r * stride));
  const SampleChoice untouched{-7, -8, 9};
  std::vector<SampleChoice> choices(c.samples.size(), untouched);
  simt_tests::DeviceRun device(simt_tests::test_device());
  const auto rows = static_cast<int64_t>(c.samples.size());
  ops::SampleArgs args{};
  args.rows = rows;
  args.logits = device.upload(logits);
  args.stride = int64_t(stride);
  args.vocab = int64_t(vocab);
  args.samples = device.upload(c.samples);
  args.choices = device.upload(choices);
  args.workspace = device.allocate(sample_bytes(rows, int64_t(vocab)));
  args.greedy = std::all_of(c.samples.begin(), c.samples.end(),
                            [](const SampleRow& how) { return how.scale == 0; });
  const auto launches = simt_tests::counted_launches();
  ASSERT_OK(device.run([&](ops::LaunchQueue* queue) { launch_op(args, *queue); },
                       device.multiprocessors()));
  if (launches) EXPECT_EQ(*simt_tests::counted_launches() - *launches, args.greedy ? 2 : 3);
  device.download(&choices, args.choices);
  memory::Ledger ledger;
  engine::Sampler sampler(static_cast<int32_t>(vocab), ledger);
  for (size_t i = 0; i < c.samples.size(); ++i) {
    const SampleRow& how = c.samples[i];
    const SampleChoice want =
        how.row < 0 ? untouched : sampler.sample(c.rows[size_t(how.row)], how);
    ++compared;
    if (choices[i].token_id == want.token_id && choices[i].non_finite == want.non_finite &&
        std::memcmp(&choices[i].value, &want.value, sizeof(float)) == 0)
      continue;
    char text[400];
    std::snprintf(text, sizeof(text),
                  "vocab %zu sample %zu: token %d want %d, not finite %d want %d; u %.17g scale %g "
                  "top_k %d top_p %.9g min_p %g",
                  vocab, i, choices[i].token_id, want.token_id, choices[i].non_finite,
                  want.non_finite, how.uniform, double(how.scale), how.top_k, double(how.top_p),
                  double(how.min_p));
    testing::report_failure(__FILE__, __LINE__, text);
  }
}

// What logits look like: spread, rounded to few values (ties), with a few far above the others.
std::vector<float> make_logits(std::mt19937& random, size_t vocab) {
  const float spreads[] = {0, 0.01F, 1, 3, 8, 300, 1e30F};
  const float spread = spreads[random() % 7];
  const int steps = random() % 3 == 0 ? 1 + static_cast<int>(random() % 4) : 0;
  std::normal_distribution<float> normal(random() % 3 == 0 ? 20.0F : 0.0F, spread);
  std::vector<float> row(vocab);
  for (float& x : row) {
    x = normal(random);
    if (steps > 0) x = std::round(x * static_cast<float>(steps)) / static_cast<float>(steps);
  }
  if (random() % 2 == 0) {
    for (int i = 0; i < 5; ++i)
      row[random() % vocab] = 3 * spread + static_cast<float>(random() % 100) * 0.05F * spread;
  }
  if (random() % 4 == 0) row[random() % vocab] = -0.0F;
  return row;
}

SampleRow make_sample(std::mt19937& random, size_t vocab, int32_t row) {
  engine::SamplingParams params;
  const float temperatures[] = {0, 1e-6F, 0.05F, 0.7F,
                                1, 1.5F,  100,   std::numeric_limits<float>::denorm_min()};
  params.temperature = temperatures[random() % 8];
  const int32_t ks[] = {0,
                        0,
                        1,
                        2,
                        40,
                        300,
                        static_cast<int32_t>(vocab) - 1,
                        static_cast<int32_t>(vocab),
                        static_cast<int32_t>(1 + random() % vocab)};
  params.top_k = std::max(0, ks[random() % 9]);
  const float ps[] = {
      1,      1,           0.9F,
      0.5F,   0.999F,      1e-6F,
      1e-30F, 0.99999994F, std::min(1.0F, static_cast<float>(1 + random() % 1000) * 0.001F)};
  params.top_p = ps[random() % 9];
  const float mins[] = {0, 0, 0, 0.05F, 1, 1e-8F, 0.3F};
  params.min_p = mins[random() % 7];
  const double us[] = {0,   0x1.fffffffffffffp-1,         engine::uniform(random(), 1), 0x1p-53,
                       0.5, engine::uniform(random(), 2), engine::uniform(random(), 3)};
  return engine::sample_row(params, us[random() % 7], row);
}

void check_random(size_t vocab, int launches, size_t rows, uint32_t seed) {
  std::mt19937 random(seed);
  for (int n = 0; n < launches; ++n) {
    Case c;
    for (size_t r = 0; r < rows; ++r) c.rows.push_back(make_logits(random, vocab));
    for (size_t r = 0; r < 2 * rows; ++r)
      c.samples.push_back(make_sample(random, vocab, static_cast<int32_t>(random() % rows)));
    if (random() % 4 == 0) c.samples[random() % c.samples.size()].row = -1;
    check(c, static_cast<int32_t>(random() % 5));
  }
}

TEST(tokens_are_the_samplers) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kShare = 8;  // of what takes minutes there
#else
  constexpr int kShare = 1;
#endif
  compared = 0;
  check_random(1, 4, 8, 1);
  check_random(31, 20, 8, 2);
  check_random(64, 10, 8, 3);
  check_random(1'000, 45 / kShare, 8, 4);
  check_random(4'099, 25 / kShare, 4, 5);
  check_random(49'152, 8 / kShare, 3, 6);
  std::printf("     %lld tokens\n", static_cast<long long>(compared));
  EXPECT(compared > 1'400 / kShare);
}

TEST(the_largest_vocabulary) {
  check_random(262'144, 1, 2, 7);
  EXPECT_EQ(ops::kMaxSampledVocab, 262'144);
}

// More equal logits than are compared with each other, within and beside others.
TEST(thousands_of_equals) {
  std::mt19937 random(11);
  Case c;
  c.rows = {std::vector<float>(5'000, 1.5F), std::vector<float>(5'000, -2)};
  for (size_t i = 0; i < 5'000; ++i) {
    if (random() % 3 != 0) c.rows[1][i] = i % 7 == 0 ? 0.5F : 1;
  }
  for (const int32_t row : {0, 1}) {
    for (const int32_t k : {0, 1, 257, 400, 2'000, 4'999}) {
      for (const float p : {1.0F, 0.0101F, 0.77F}) {
        SampleRow how;
        how.scale = engine::weight_scale(1);
        how.uniform = engine::uniform(random(), 0);
        how.row = row;
        how.top_k = k;
        how.top_p = p;
        if (c.samples.size() % 2 == 0) how.uniform = 0x1.fffffffffffffp-1;
        c.samples.push_back(how);
      }
    }
  }
  check(c);
}

TEST(what_is_not_finite_is_named) {
  for (const size_t vocab : {1u, 31u, 2'049u, 10'000u}) {
    for (const bool greedy : {true, false}) {
      Case c;
      for (const float bad : {kInf, -kInf, std::nanf(""), -std::nanf("")}) {
        for (const size_t at : {size_t{0}, vocab / 2, vocab - 1}) {
          std::vector<float> row(vocab, 1);
          row[at] = bad;
          if (at + 1 < vocab) row[vocab - 1] = std::nanf("");  // a later one
          SampleRow how;
          how.row = static_cast<int32_t>(c.rows.size());
          if (!greedy) how.scale = 1, how.top_p = 0.5F, how.uniform = 0.3;
          c.rows.push_back(row);
          c.samples.push_back(how);
        }
      }
      c.rows.emplace_back(vocab, std::numeric_limits<float>::max());  // finite, as large as it gets
      c.rows.emplace_back(vocab, std::numeric_limits<float>::lowest());
      for (int32_t i = 0; i < 2; ++i) {
        SampleRow how = c.samples.front();
        how.row = static_cast<int32_t>(c.rows.size()) - 1 - i;
        c.samples.push_back(how);
      }
      check(c);
    }
  }
}

TEST(greedy_takes_the_lowest_of_equals) {
  for (const size_t vocab : {3u, 64u, 5'000u}) {
    Case c;
    for (size_t at = 0; at < vocab; at += 1 + vocab / 11) {
      std::vector<float> row(vocab, -2.5F);
      row[at] = row.back() = -1;
      if (at + 3 < vocab) row[at + 3] = -1;
      SampleRow how;
      how.row = static_cast<int32_t>(c.rows.size());
      c.rows.push_back(row);
      c.samples.push_back(how);
    }
    std::vector<float> zeros(vocab, -0.0F);  // -0 and 0 are equal
    zeros.back() = 0;
    SampleRow how;
    how.row = static_cast<int32_t>(c.rows.size());
    c.rows.push_back(zeros);
    c.samples.push_back(how);
    check(c);
  }
}

}  // namespace
}  // namespace lmn::cuda
