// SPDX-License-Identifier: Apache-2.0
#include "ops/dequantize.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "dequantize_vectors.h"
#include "testing.h"

namespace {

using namespace lmn;

std::vector<std::byte> bytes_of(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return out;
}

TEST(dequantize_equals_the_gguf_package) {
  for (const DequantizeVector& v : kDequantizeVectors) {
    ASSERT(ops::can_dequantize(v.type));
    std::vector<std::byte> blocks = bytes_of(v.blocks);
    const std::vector<std::byte> floats = bytes_of(v.floats);
    blocks.insert(blocks.begin(), std::byte{0});  // an odd address
    std::vector<float> got(floats.size() / 4), want(floats.size() / 4);
    std::memcpy(want.data(), floats.data(), floats.size());
    ops::dequantize(v.type, blocks.data() + 1, static_cast<int64_t>(got.size()), got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != want[i]) {
        ::testing::report_failure(__FILE__, __LINE__,
                                  std::string(info(v.type).name) + " element " + std::to_string(i) +
                                      " is " + std::to_string(got[i]) + ", want " +
                                      std::to_string(want[i]));
        break;
      }
    }
  }
}

TEST(f32_is_copied) {
  const float x[3] = {1.5f, -2.0f, 3.25f};
  float y[3] = {};
  ops::dequantize(DType::kF32, reinterpret_cast<const std::byte*>(x), 3, y);
  EXPECT_EQ(y[0], 1.5f);
  EXPECT_EQ(y[2], 3.25f);
}

TEST(other_types_are_not_weights) {
  for (DType type :
       {DType::kI8, DType::kI32, DType::kF64, DType::kQA8, DType::kQA16, DType::kBool}) {
    EXPECT(!ops::can_dequantize(type));
  }
}

// Q4_0 by hand: d = 0.5, first byte 0x9F: element 0 is (15 - 8) / 2, element 16 is (9 - 8) / 2.
TEST(q4_0_by_hand) {
  std::byte block[18] = {};
  const uint16_t half = 0x3800;
  std::memcpy(block, &half, sizeof half);
  block[2] = std::byte{0x9F};
  float y[32];
  ops::dequantize(DType::kQ4_0, block, 32, y);
  EXPECT_EQ(y[0], 3.5f);
  EXPECT_EQ(y[16], 0.5f);
  EXPECT_EQ(y[1], -4.0f);
}

}  // namespace
