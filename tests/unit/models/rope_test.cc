// SPDX-License-Identifier: Apache-2.0
//
// Expected values: numpy, float64, by the formulas of the papers (YaRN: as the authors' reference
// code and Hugging Face's modeling_rope_utils compute them).
#include "models/rope.h"

#include <cmath>

#include "testing.h"

using namespace lmn::models;

namespace {

RopeParameters yarn(int64_t rot_dim, double base, double factor, int64_t original) {
  RopeParameters p;
  p.rot_dim = rot_dim;
  p.base = base;
  p.scaling = RopeScaling::kYarn;
  p.factor = factor;
  p.original_context = original;
  return p;
}

void expect_close(float got, double want) { EXPECT_NEAR(got, want, std::abs(want) * 3e-7); }

}  // namespace

TEST(plain_frequencies_are_powers_of_the_base) {
  RopeParameters p;
  p.rot_dim = 8;
  const RopeFrequencies f = rope_frequencies(p);
  ASSERT(f.inv_freq.size() == 4);
  const double want[] = {1.0, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) expect_close(f.inv_freq[i], want[i]);
  EXPECT_EQ(f.magnitude, 1.0f);
  EXPECT_EQ(scaling_name(p), std::string("none"));
}

TEST(linear_scaling_divides_all) {
  RopeParameters p;
  p.rot_dim = 4;
  p.scaling = RopeScaling::kLinear;
  p.factor = 4;
  const RopeFrequencies f = rope_frequencies(p);
  expect_close(f.inv_freq[0], 0.25);
  expect_close(f.inv_freq[1], 0.0025);
  EXPECT_EQ(f.magnitude, 1.0f);
  EXPECT_EQ(scaling_name(p), std::string("linear"));
}

TEST(divisors_apply_one_by_one) {
  RopeParameters p;
  p.rot_dim = 4;
  p.divisors = {1, 8};
  const RopeFrequencies f = rope_frequencies(p);
  expect_close(f.inv_freq[0], 1);
  expect_close(f.inv_freq[1], 0.00125);
  EXPECT_EQ(scaling_name(p), std::string("llama3"));
}

TEST(yarn_keeps_fast_and_stretches_slow_frequencies) {
  const RopeFrequencies f =
      rope_frequencies(yarn(128, 10000, 4, 4096));  // blends dimensions 20 to 46
  expect_close(f.inv_freq[0], 1.0);
  expect_close(f.inv_freq[1], 0.8659643530845642);
  expect_close(f.inv_freq[15], 0.11547819525003433);
  expect_close(f.inv_freq[20], 0.05623413249850273);
  expect_close(f.inv_freq[25], 0.023434553295373917);
  expect_close(f.inv_freq[30], 0.009488517418503761);
  expect_close(f.inv_freq[40], 0.0013378866715356708);
  expect_close(f.inv_freq[45], 0.0004294026002753526);
  expect_close(f.inv_freq[46], 0.00033338036155328155);
  expect_close(f.inv_freq[63], 2.8869550078525208e-05);
  expect_close(f.magnitude, 1.138629436111989);

  RopeParameters p = yarn(64, 1000000, 4, 32768);
  p.beta_fast = 16;
  p.beta_slow = 2;
  p.attention_factor = 0.5;
  const RopeFrequencies g = rope_frequencies(p);  // blends dimensions 13 to 19
  expect_close(g.inv_freq[10], 0.013335213996469975);
  expect_close(g.inv_freq[13], 0.0036517411936074495);
  expect_close(g.inv_freq[20], 4.4456985051510856e-05);
  expect_close(g.inv_freq[31], 3.8498163235090033e-07);
  expect_close(g.magnitude, 0.5 * 1.138629436111989);
  EXPECT_EQ(scaling_name(p), std::string("yarn"));
}
