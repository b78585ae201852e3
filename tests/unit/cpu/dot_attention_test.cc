// SPDX-License-Identifier: Apache-2.0
//
// lmnative.Attention against sums in double, for operands that lie in any order and repeat; that
// splits of the work give the same bits is TensorCase's affair.
#include <cmath>

#include "tensor_case.h"

namespace {

using namespace lmn;
using cpu::TensorCase;

using Axes = std::array<int, 4>;

struct Tensor4 {
  Shape shape;  // as it lies
  Axes axes;    // which axis of it is batch, head, row, column
  std::vector<float> values;

  // Of these sizes as [batch, head, row, column]; `seed` makes the values.
  Tensor4(std::array<int64_t, 4> sizes, const Axes& perm, int seed) : axes(perm) {
    shape.rank = 4;
    for (size_t i = 0; i < 4; ++i) shape[perm[i]] = sizes[i];
    for (int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(static_cast<float>((i * 7919 + seed * 104729) % 2003) / 1000.0f - 1.0f);
  }
  // Sizes of 1 repeat.
  double at(std::array<int64_t, 4> index) const {
    int64_t offset = 0, stride = 1;
    std::array<int64_t, 4> lying{};
    for (size_t i = 0; i < 4; ++i) lying[static_cast<size_t>(axes[i])] = index[i];
    for (int d = 3; d >= 0; --d) {
      offset += shape[d] == 1 ? 0 : lying[static_cast<size_t>(d)] * stride;
      stride *= shape[d];
    }
    return static_cast<double>(values[static_cast<size_t>(offset)]);
  }
};

ops::Ints ints(const Axes& axes) { return {axes.begin(), axes.end()}; }

struct Sizes {
  int64_t batches, heads, queries, keys, dim, value_dim;
};

void check(const Sizes& s, const Tensor4& q, const Tensor4& k, const Tensor4& v,
           const Tensor4* mask, const Axes& y_axes, float factor = 1.0f) {
  const float scale = 0.7f;
  TensorCase c("lmnative.Attention", {{"scale", scale},
                                      {"q_perm", ints(q.axes)},
                                      {"k_perm", ints(k.axes)},
                                      {"v_perm", ints(v.axes)},
                                      {"y_perm", ints(y_axes)}});
  c.in(q.shape, q.values).in(k.shape, k.values).in(v.shape, v.values);
  if (mask != nullptr) {
    c.in(mask->shape, mask->values);
  } else {
    c.absent();
  }
  if (factor != 1.0f) c.in<float>({1}, {factor});
  ASSERT_OK(c.run());
  const std::array<int64_t, 4> sizes{s.batches, s.heads, s.queries, s.value_dim};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(c.shape()[i], sizes[static_cast<size_t>(y_axes[static_cast<size_t>(i)])]);
  const std::vector<float> y = c.values<float>();
  Axes back{};
  for (size_t i = 0; i < 4; ++i) back[static_cast<size_t>(y_axes[i])] = static_cast<int>(i);
  Tensor4 got(sizes, back, 0);
  got.values = y;
  double worst = 0;
  std::vector<double> weights(static_cast<size_t>(s.keys));
  for (int64_t row = 0; row < s.batches * s.heads * s.queries; ++row) {
    const int64_t t = row % s.queries, h = row / s.queries % s.heads;
    const int64_t b = row / s.queries / s.heads;
    double sum = 0;
    for (int64_t key = 0; key < s.keys; ++key) {
      double score = 0;
      for (int64_t d = 0; d < s.dim; ++d) score += q.at({b, h, t, d}) * k.at({b, h, key, d});
      score *= static_cast<double>(scale * factor);
      if (mask != nullptr) score += mask->at({b, h, t, key});
      sum += weights[static_cast<size_t>(key)] = std::exp(score);
    }
    for (int64_t d = 0; d < s.value_dim; ++d) {
      double want = 0;
      for (int64_t key = 0; key < s.keys; ++key)
        want += weights[static_cast<size_t>(key)] * v.at({b, h, key, d});
      worst = std::max(worst, std::abs(want / sum - got.at({b, h, t, d})));
    }
  }
  EXPECT(worst < 2e-6);
}

constexpr Axes kHeadsFirst{0, 1, 2, 3}, kTokensFirst{0, 2, 1, 3}, kColumns{0, 1, 3, 2};

TEST(attention_in_the_layout_of_exporters) {
  for (const Sizes s : {Sizes{2, 3, 5, 37, 32, 32}, Sizes{1, 2, 130, 130, 8, 24},
                        Sizes{1, 1, 1, 1, 1, 1}, Sizes{2, 1, 1, 300, 5, 3}}) {
    const Tensor4 q({s.batches, s.heads, s.queries, s.dim}, kTokensFirst, 1);
    const Tensor4 k({s.batches, s.heads, s.keys, s.dim}, kTokensFirst, 2);
    const Tensor4 v({s.batches, s.heads, s.keys, s.value_dim}, kTokensFirst, 3);
    const Tensor4 mask({s.batches, 1, 1, s.keys}, kHeadsFirst, 4);
    check(s, q, k, v, &mask, kTokensFirst);
    check(s, q, k, v, nullptr, kHeadsFirst, -1.5f);
  }
}

TEST(attention_of_operands_in_columns) {
  const Sizes s{2, 2, 9, 21, 7, 6};
  const Axes odd{3, 1, 0, 2};
  const Tensor4 q({s.batches, s.heads, s.queries, s.dim}, odd, 1);
  const Tensor4 k({s.batches, s.heads, s.keys, s.dim}, kColumns, 2);
  const Tensor4 v({s.batches, s.heads, s.keys, s.value_dim}, odd, 3);
  const Tensor4 mask({1, s.heads, s.queries, s.keys}, kHeadsFirst, 4);
  check(s, q, k, v, &mask, odd);
}

// What MatMul and Add repeat: batches, heads, one query for all rows of a mask, one key.
TEST(attention_of_what_repeats) {
  const Sizes s{2, 3, 4, 5, 6, 7};
  const Tensor4 q({1, s.heads, s.queries, s.dim}, kTokensFirst, 1);
  const Tensor4 k({s.batches, 1, s.keys, s.dim}, kHeadsFirst, 2);
  const Tensor4 v({1, 1, s.keys, s.value_dim}, kHeadsFirst, 3);
  const Tensor4 column({1, 1, s.queries, 1}, kHeadsFirst, 4);
  check(s, q, k, v, &column, kHeadsFirst);
  const Tensor4 one_query({1, 1, 1, s.dim}, kHeadsFirst, 1);
  const Tensor4 one_key({1, 1, 1, s.dim}, kHeadsFirst, 2);
  const Tensor4 mask({s.batches, s.heads, s.queries, s.keys}, kHeadsFirst, 4);
  check(s, one_query, one_key, v, &mask, kHeadsFirst);
}

TEST(attention_checks_its_operands) {
  TensorCase c("lmnative.Attention", {{"q_perm", ops::Ints{0, 1, 2, 2}}});
  const std::vector<float> x(4, 1.0f);
  c.in<float>({1, 1, 2, 2}, x).in<float>({1, 1, 2, 2}, x).in<float>({1, 1, 2, 2}, x);
  EXPECT_EQ(c.refusal(), "lmnative.Attention 't': q_perm is no order of four axes");
  TensorCase d("lmnative.Attention");
  d.in<float>({1, 1, 2, 2}, x).in<float>({1, 1, 1, 4}, x).in<float>({1, 1, 2, 2}, x);
  EXPECT_EQ(d.refusal(),
            "lmnative.Attention 't': q is [1, 1, 2, 2], k [1, 1, 1, 4] and v [1, 1, 2, 2]");
}

}  // namespace
