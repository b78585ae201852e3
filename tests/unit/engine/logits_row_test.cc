// SPDX-License-Identifier: Apache-2.0
//
// Every table of row kernels against the arithmetic that logits_row_kernels.h documents, written
// out plainly and compared bit for bit; cuts against a full sort.
#include "engine/logits_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "testing.h"

namespace lmn::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kAnyId = std::numeric_limits<int32_t>::max();

// 2^y by ldexp and rounding to even, with the same polynomial.
float plain_exp2(float y) {
  if (!(y > -125)) return 0;
  const float n = std::nearbyint(y), t = y - n;
  float p = 0x1.5bba14p-10F;
  for (const float c : {0x1.3cea88p-7F, 0x1.c6b752p-5F, 0x1.ebf9bcp-3F, 0x1.62e42ap-1F, 1.0F})
    p = p * t + c;
  return std::ldexp(p, static_cast<int>(n));
}

float plain_lanes_sum(const float (&lanes)[16]) {
  float sum[16];
  std::copy(std::begin(lanes), std::end(lanes), sum);
  for (const int half : {8, 4, 2, 1}) {
    for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

bool kept(const RowCut& cut, float logit, size_t id) {
  return logit > cut.bound || (logit == cut.bound && static_cast<int32_t>(id) <= cut.last_id);
}

// A row of `vocab` logits, some forbidden, and many equal when `steps` > 0 (multiples of 1/steps).
std::vector<float> make_row(uint32_t seed, size_t vocab, float spread, int steps, bool forbid) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(vocab);
  for (float& x : row) {
    x = normal(random);
    if (steps > 0) x = std::round(x * static_cast<float>(steps)) / static_cast<float>(steps);
    if (forbid && random() % 7 == 0) x = -kInfinity;
  }
  row[random() % vocab] = spread;  // one is not forbidden
  return row;
}

struct Scanned {
  std::vector<float> row, block_max;
  RowScan scan;
  RowView view() const { return {row.data(), block_max.data(), static_cast<int32_t>(row.size())}; }
};
Scanned scanned(const RowKernels& kernels, std::vector<float> row) {
  Scanned s{std::move(row), {}, {}};
  s.block_max.resize(size_t(row_blocks(static_cast<int32_t>(s.row.size()))));
  s.scan =
      kernels.scan(s.row.data(), static_cast<int32_t>(s.row.size()), s.block_max.data(), nullptr);
  return s;
}

void expect_same(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT(got.size() == want.size());
  size_t different = 0;
  for (size_t i = 0; i < got.size(); ++i)
    different += std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]);
  EXPECT_EQ(different, size_t{0});
}

void check_scan(const RowKernels& kernels, const Scanned& s) {
  std::vector<float> copy(s.row.size() + 1, 0.5F), again(s.block_max.size());
  const auto vocab = static_cast<int32_t>(s.row.size());
  const RowScan copied = kernels.scan(s.row.data(), vocab, again.data(), copy.data());
  EXPECT(copied.max == s.scan.max && copied.block == s.scan.block && again == s.block_max);
  EXPECT_EQ(copy.back(), 0.5F);
  copy.pop_back();
  expect_same(copy, s.row);
  EXPECT_EQ(s.scan.max, *std::max_element(s.row.begin(), s.row.end()));
  std::vector<float> want;
  for (size_t i = 0; i < s.row.size(); i += 64) {
    const auto end = s.row.begin() + ptrdiff_t(std::min(s.row.size(), i + 64));
    want.push_back(*std::max_element(s.row.begin() + ptrdiff_t(i), end));
  }
  EXPECT(s.block_max == want);  // by value: of -0 and 0 either may stand for both
  const auto first = std::find(want.begin(), want.end(), s.scan.max) - want.begin();
  EXPECT_EQ(s.scan.block, static_cast<int32_t>(first));
  EXPECT_EQ(s.scan.finite,
            std::all_of(s.row.begin(), s.row.end(), [](float x) { return std::isfinite(x); }));
}

// To a multiple of 2^-34, ties to even.
double plain_mass(float weight) {
  return std::ldexp(std::nearbyint(std::ldexp(double(weight), 34)), -34);
}

void check_weigh(const RowKernels& kernels, const Scanned& s, float temperature, const RowCut* cut,
                 float min_weight) {
  const WeightScale scale{s.scan.max, weight_scale(temperature)};
  const size_t blocks = s.block_max.size();
  std::vector<float> weights(blocks * 64, 0);
  std::vector<double> running(blocks);
  double total = 0;
  for (size_t b = 0; b < blocks; ++b) {
    float lanes[16] = {};
    for (size_t id = b * 64; id < std::min(s.row.size(), b * 64 + 64); ++id) {
      float w = plain_exp2((s.row[id] - scale.max) * scale.scale);
      if (cut != nullptr && (!kept(*cut, s.row[id], id) || w < min_weight)) w = 0;
      weights[id] = w;
      lanes[id % 16] += w;
    }
    running[b] = total += plain_mass(plain_lanes_sum(lanes));
  }
  std::vector<double> got_running(blocks);
  const WeightPass plain{scale, cut, min_weight, got_running.data(), nullptr, nullptr};
  EXPECT_EQ(kernels.weigh(s.view(), plain), total);
  EXPECT(got_running == running);
  if (cut == nullptr) return;
  std::vector<float> got(weights.size(), 0);
  WeightPass pass{scale, cut, min_weight, nullptr, got.data(), nullptr};
  EXPECT_EQ(kernels.weigh(s.view(), pass), total);
  expect_same(got, weights);
  pass.weights = nullptr;
  pass.known = got.data();
  EXPECT_EQ(kernels.weigh(s.view(), pass), total);

  const float bounds[kBounds] = {std::nextafter(cut->bound, kInfinity), scale.max - 1, scale.max,
                                 scale.max + 1};
  if (bounds[0] > bounds[1]) return;
  double sums[kBounds], want[kBounds] = {};
  kernels.sums_above(s.view(), got.data(), bounds, sums);
  float lanes[kBounds][16] = {};
  size_t used = 0;
  for (size_t b = 0; b < blocks; ++b) {
    used += s.block_max[b] >= bounds[0] ? 1 : 0;
    for (size_t id = b * 64; id < std::min(s.row.size(), b * 64 + 64); ++id) {
      for (int k = 0; k < kBounds; ++k) {
        if (s.row[id] >= bounds[k]) lanes[k][id % 16] += weights[id];
      }
    }
    if (used % 4 != 0 && b + 1 < blocks) continue;
    for (int k = 0; k < kBounds; ++k) {
      want[k] += double(plain_lanes_sum(lanes[k]));
      std::fill(std::begin(lanes[k]), std::end(lanes[k]), 0.0F);
    }
  }
  for (int k = 0; k < kBounds; ++k) {
    EXPECT_EQ(sums[k], want[k]);
    double above = 0;
    for (size_t id = 0; id < s.row.size(); ++id)
      above += s.row[id] >= bounds[k] ? plain_mass(weights[id]) : 0;
    EXPECT_EQ(kernels.mass_above(s.view(), got.data(), bounds[k]), above);
  }
}

void check_gather(const RowKernels& kernels, const Scanned& s, const RowCut& cut, float ceiling) {
  std::vector<float> weights(s.row.size());
  std::iota(weights.begin(), weights.end(), 0.5F);
  std::vector<Candidate> out(s.row.size());
  const int32_t count = kernels.gather(s.view(), cut, ceiling, weights.data(), out.data());
  size_t next = 0;
  bool same = true;
  for (size_t id = 0; id < s.row.size(); ++id) {
    if (!kept(cut, s.row[id], id) || s.row[id] >= ceiling) continue;
    ASSERT(next < size_t(count));
    const Candidate& c = out[next++];
    same &= c.id == static_cast<int32_t>(id) && c.logit == s.row[id] && c.weight == weights[id];
  }
  EXPECT(same);
  EXPECT_EQ(size_t(count), next);
}

TEST(every_table_gives_the_documented_bits) {
  EXPECT(&row_kernels() == all_row_kernels().front());
  for (const RowKernels* kernels : all_row_kernels()) {
    std::printf("     %s\n", kernels->name);
    uint32_t seed = 0;
    for (const size_t vocab : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 127u, 129u, 640u, 1'001u}) {
      for (const float spread : {0.02F, 3.0F, 400.0F}) {
        const bool forbid = ++seed % 3 == 0;
        const Scanned s =
            scanned(*kernels, make_row(seed, vocab, spread, seed % 2 == 0 ? 4 : 0, forbid));
        check_scan(*kernels, s);
        const float middle = s.row[vocab / 2] == -kInfinity ? 0.0F : s.row[vocab / 2];
        const RowCut cuts[] = {cut_nothing(), cut_at(middle),
                               cut_at(middle, static_cast<int32_t>(vocab / 2)), cut_at(middle, 0)};
        for (const float temperature : {1e-6F, 0.7F, 1.0F, 100.0F}) {
          check_weigh(*kernels, s, temperature, nullptr, 0);
          for (const RowCut& cut : cuts) {
            check_weigh(*kernels, s, temperature, &cut, 0);
            check_weigh(*kernels, s, temperature, &cut, 0.25F);
          }
        }
        for (const RowCut& cut : cuts) {
          check_gather(*kernels, s, cut, kInfinity);
          check_gather(*kernels, s, cut, s.scan.max);
        }
        for (const float bound : {middle, s.scan.max, -kInfinity}) {
          const auto above =
              std::count_if(s.row.begin(), s.row.end(), [&](float x) { return x >= bound; });
          EXPECT_EQ(kernels->count_above(s.row.data(), static_cast<int32_t>(s.row.size()), bound),
                    static_cast<int32_t>(above));
        }
      }
    }
  }
}

TEST(every_table_sees_what_is_not_finite) {
  for (const RowKernels* kernels : all_row_kernels()) {
    for (const size_t vocab : {1u, 30u, 64u, 150u}) {
      for (size_t at = 0; at < vocab; ++at) {
        for (const float bad : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("")}) {
          std::vector<float> row(vocab, 1);
          row[at] = bad;
          EXPECT(!scanned(*kernels, row).scan.finite);
        }
      }
      EXPECT(scanned(*kernels, std::vector<float>(vocab, std::numeric_limits<float>::max()))
                 .scan.finite);
      EXPECT_EQ(scanned(*kernels, std::vector<float>(vocab, -kInfinity)).scan.max, -kInfinity);
    }
  }
  std::vector<float> row(10'000, 0);  // longer than what is looked at in one piece
  EXPECT_EQ(first_non_finite(row), -1);
  for (const size_t at : {9'999u, 8'192u, 4'096u, 4'095u, 0u}) {
    row[at] = std::nanf("");
    EXPECT_EQ(first_non_finite(row), static_cast<int32_t>(at));
  }
}

TEST(scalar_weight_has_the_same_bits) {
  size_t different = 0;
  for (int i = 0; i < 1'300'000; ++i) {
    const float y = -static_cast<float>(i) * 1.0001e-4F;
    different += exp2_weight(y) != plain_exp2(y);
  }
  EXPECT_EQ(different, size_t{0});
}

std::vector<int32_t> sorted_ids(const std::vector<float>& row) {
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row[size_t(a)] > row[size_t(b)]; });
  return order;
}

TEST(kth_likeliest_is_that_of_a_sort) {
  const RowKernels& kernels = row_kernels();
  for (const size_t vocab : {1u, 64u, 1'000u, 5'003u}) {
    for (const int steps : {0, 2}) {  // also with many equals
      for (const float spread : {1e-30F, 2.0F, 1e30F}) {
        Scanned s = scanned(kernels, make_row(uint32_t(vocab), vocab, spread, steps, true));
        if (vocab > 2) s.row[1] = std::numeric_limits<float>::max();
        if (vocab > 2) s.row[2] = std::numeric_limits<float>::lowest();
        s = scanned(kernels, s.row);
        const auto order = sorted_ids(s.row);
        const auto allowed =
            std::count_if(s.row.begin(), s.row.end(), [](float x) { return x > -kInfinity; });
        std::vector<Candidate> scratch(vocab);
        for (int32_t k = 1; k <= static_cast<int32_t>(vocab); k += 1 + k / 3) {
          const RowCut cut = kth_likeliest(kernels, s.view(), k, s.scan.max, scratch);
          if (k > allowed) {
            EXPECT_EQ(cut.bound, std::numeric_limits<float>::lowest());
            EXPECT_EQ(cut.last_id, kAnyId);
          } else {
            EXPECT_EQ(cut.last_id, order[size_t(k) - 1]);
            EXPECT_EQ(cut.bound, s.row[size_t(cut.last_id)]);
          }
          EXPECT_EQ(cut.beyond, std::nextafter(cut.bound, kInfinity));
        }
      }
    }
  }
}

// The kept set is a prefix of the sorted order by its form; it must hold the mass, and must not
// without its last member.
TEST(nucleus_is_the_smallest_that_holds_the_mass) {
  const RowKernels& kernels = row_kernels();
  int narrow = 0;
  for (const size_t vocab : {1u, 70u, 3'000u, 20'001u}) {
    for (const int steps : {0, 1, 8}) {
      for (const float spread : {0.0F, 0.01F, 2.5F, 60.0F, 1e37F}) {
        const Scanned s =
            scanned(kernels, make_row(uint32_t(vocab) + 5, vocab, spread, steps, steps == 8));
        const auto order = sorted_ids(s.row);
        std::vector<Candidate> scratch(vocab);
        std::vector<float> weights(s.block_max.size() * 64);
        for (const int32_t k : {static_cast<int32_t>(vocab), 700, 3}) {
          if (k > static_cast<int32_t>(vocab)) continue;
          for (const float temperature : {0.05F, 1.0F, 100.0F}) {
            const RowCut first = k == static_cast<int32_t>(vocab)
                                     ? cut_nothing()
                                     : kth_likeliest(kernels, s.view(), k, s.scan.max, scratch);
            const WeightScale scale{s.scan.max, weight_scale(temperature)};
            const double total =
                kernels.weigh(s.view(), {scale, &first, 0, nullptr, weights.data(), nullptr});
            for (const float top_p : {1e-6F, 0.3F, 0.9F, 0.999F, 0.99999994F}) {
              const double mass = double(top_p) * total;
              const RowCut cut = nucleus_cut(
                  kernels, s.view(), {weights.data(), total, mass, scale, first, k}, scratch);
              double sum = 0, last = 0;
              bool inside = true;
              for (const int32_t id : order) {
                if (!kept(cut, s.row[size_t(id)], size_t(id))) break;
                inside &= kept(first, s.row[size_t(id)], size_t(id));
                last = plain_mass(plain_exp2((s.row[size_t(id)] - scale.max) * scale.scale));
                sum += last;
              }
              EXPECT(inside);
              // Sums are exact, and so is the set.
              const bool all = cut.bound == first.bound && cut.last_id == first.last_id;
              EXPECT(sum >= mass || (all && sum >= mass * (1 - 1e-6)));
              EXPECT(sum - last < mass);
              ++narrow;
            }
          }
        }
      }
    }
  }
  EXPECT(narrow > 1'000);
}

}  // namespace
}  // namespace lmn::engine
