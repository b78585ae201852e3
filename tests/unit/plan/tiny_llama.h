// SPDX-License-Identifier: Apache-2.0
//
// What tests of whole tiny models share: a model from GGUF bytes, tokens for it, and how far logits
// are from others.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "formats/gguf.h"
#include "models/model.h"
#include "plan/naive_llama.h"
#include "plan/plan_fixture.h"

namespace plan_test {

using models_test::TinyModel;
using models_test::TinySpec;

inline constexpr int64_t kPages = 4;
inline constexpr int64_t kTokens = 40;  // three pages, the last one partly

inline models::LanguageModel load(const TinyModel& tiny) {
  auto bytes = std::make_shared<const std::vector<uint64_t>>(tiny.bytes());
  auto file = formats::GgufModel::parse(std::as_bytes(std::span(*bytes)), "tiny");
  ASSERT_OK(file);
  auto model = models::build(*file, bytes);
  ASSERT_OK(model);
  return std::move(model).value();
}

inline std::vector<int32_t> some_tokens(uint32_t vocab, size_t count = kTokens) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(static_cast<int32_t>((i * i * 7 + i * 3 + 5) % vocab));
  return out;
}

// The root mean square of the difference, relative to that of `want`.
inline double deviation(const std::vector<float>& got, const std::vector<Vector>& want) {
  double difference = 0, size = 0;
  size_t i = 0;
  for (const Vector& row : want) {
    for (double w : row) {
      difference += (got[i] - w) * (got[i] - w);
      size += w * w;
      ++i;
    }
  }
  EXPECT_EQ(i, got.size());
  return std::sqrt(difference / size);
}

inline double deviation(const std::vector<float>& got, const std::vector<float>& want) {
  return deviation(got, std::vector<Vector>{Vector(want.begin(), want.end())});
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace plan_test
