// SPDX-License-Identifier: Apache-2.0
//
// Cast, CastLike and BitCast (elementwise.def): rounding, ranges, narrow types, strings.
#include <limits>

#include "core/float16.h"
#include "cpu/tensor/half_math.h"
#include "cpu/tensor/small_float.h"
#include "tensor_case.h"

namespace {

using lmn::DType;
using lmn::Shape;
using lmn::cpu::Half;
using lmn::cpu::kInfinity;
using lmn::cpu::kNaN;
using lmn::cpu::TensorCase;
using lmn::ops::Attributes;

// Numbers of types in onnx.proto.
enum : int64_t {
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kUint64 = 13,
  kE4M3FN = 17,
  kE4M3FNUZ = 18,
  kE5M2 = 19,
  kE5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kE2M1 = 23,
  kE8M0 = 24
};

template <typename To, typename From>
std::vector<To> cast(const std::vector<From>& x, int64_t to, Attributes attributes = {},
                     DType from = lmn::cpu::kTypeOf<From>) {
  attributes.set("to", to);
  TensorCase c("Cast", attributes);
  c.in<From>({static_cast<int64_t>(x.size())}, x, from);
  ASSERT_OK(c.run());
  return c.values<To>();
}
using Codes = std::vector<uint8_t>;

}  // namespace

TEST(half_conversion_is_that_of_core) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = std::bit_cast<Half>(static_cast<uint16_t>(bits));
    const float want = lmn::f16_to_f32(half.bits);
    ASSERT(std::bit_cast<uint32_t>(lmn::cpu::to_float(half)) == std::bit_cast<uint32_t>(want));
  }
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 4093) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    Half half;
    lmn::cpu::BFloat bfloat;
    lmn::cpu::from_float(x, &half);
    lmn::cpu::from_float(x, &bfloat);
    ASSERT(half.bits == lmn::f32_to_f16(x) && bfloat.bits == lmn::f32_to_bf16(x));
  }
}

TEST(small_floats_round_to_nearest_even) {
  for (DType dtype :
       {DType::kF8E4M3FN, DType::kF8E4M3FNUZ, DType::kF8E5M2, DType::kF8E5M2FNUZ, DType::kF4E2M1}) {
    const lmn::cpu::SmallFormat format = lmn::cpu::small_format(dtype);
    const int codes = format.sign;  // of positive numbers
    for (int code = 0; code < codes; ++code) {
      const float x = lmn::cpu::decode_small(format, static_cast<uint8_t>(code));
      if (std::isnan(x) || std::isinf(x)) continue;
      ASSERT(lmn::cpu::encode_small(format, x, true) == code);
      if (code + 1 > format.largest) continue;
      const float next = lmn::cpu::decode_small(format, static_cast<uint8_t>(code + 1));
      const float middle = (x + next) / 2;  // exact
      const int even = code % 2 == 0 ? code : code + 1;
      ASSERT(lmn::cpu::encode_small(format, middle, true) == even);
      ASSERT(lmn::cpu::encode_small(format, std::nextafter(middle, 0.0f), true) == code);
      ASSERT(lmn::cpu::encode_small(format, std::nextafter(middle, 1e9f), true) == code + 1);
    }
  }
  // Largest numbers and the first codes, from the papers' tables.
  EXPECT_EQ(lmn::cpu::decode_small(lmn::cpu::small_format(DType::kF8E4M3FN), 0x7E), 448.0f);
  EXPECT_EQ(lmn::cpu::decode_small(lmn::cpu::small_format(DType::kF8E4M3FNUZ), 0x7F), 240.0f);
  EXPECT_EQ(lmn::cpu::decode_small(lmn::cpu::small_format(DType::kF8E5M2), 0x7B), 57344.0f);
  EXPECT_EQ(lmn::cpu::decode_small(lmn::cpu::small_format(DType::kF8E5M2FNUZ), 0x7F), 57344.0f);
  EXPECT_EQ(lmn::cpu::decode_small(lmn::cpu::small_format(DType::kF8E4M3FN), 0x01), 0x1p-9f);
  EXPECT_EQ(lmn::cpu::decode_small(lmn::cpu::small_format(DType::kF4E2M1), 0x07), 6.0f);
}

TEST(cast_to_small_floats_beyond_the_range) {
  const std::vector<float> x = {kNaN, kInfinity, -kInfinity, 1e6f, -0.0f};
  const Attributes open = {{"saturate", int64_t{0}}};
  EXPECT(cast<uint8_t>(x, kE4M3FN) == Codes({0x7F, 0x7E, 0xFE, 0x7E, 0x80}));
  EXPECT(cast<uint8_t>(x, kE4M3FN, open) == Codes({0x7F, 0x7F, 0xFF, 0x7F, 0x80}));
  EXPECT(cast<uint8_t>(x, kE4M3FNUZ) == Codes({0x80, 0x7F, 0xFF, 0x7F, 0x00}));
  EXPECT(cast<uint8_t>(x, kE4M3FNUZ, open) == Codes({0x80, 0x80, 0x80, 0x80, 0x00}));
  EXPECT(cast<uint8_t>(x, kE5M2, open) == Codes({0x7E, 0x7C, 0xFC, 0x7C, 0x80}));
  EXPECT(cast<uint8_t>(x, kE5M2FNUZ, open) == Codes({0x80, 0x80, 0x80, 0x80, 0x00}));
  EXPECT(cast<uint8_t>(std::vector<float>{9, -9, 0.3f, 2.5f}, kE2M1) == Codes({7, 15, 1, 4}));
  const std::vector<float> powers = {1, 1.5f, 3, 0, kNaN, kInfinity, 3.4e38f};
  EXPECT(cast<uint8_t>(powers, kE8M0) == Codes({127, 128, 129, 0, 255, 254, 254}));
  EXPECT(cast<uint8_t>(powers, kE8M0, {{"round_mode", std::string("down")}}) ==
         Codes({127, 127, 128, 0, 255, 254, 254}));
  EXPECT(cast<uint8_t>(powers, kE8M0,
                       {{"round_mode", std::string("nearest")}, {"saturate", int64_t{0}}}) ==
         Codes({127, 128, 129, 255, 255, 255, 255}));
}

TEST(cast_of_numbers) {
  EXPECT(cast<int32_t>(std::vector<float>{2.9f, -2.9f, kNaN}, kInt32) ==
         std::vector<int32_t>({2, -2, 0}));
  EXPECT(cast<int64_t>(std::vector<double>{1e300, -kInfinity, 4503599627370497.0}, kInt64) ==
         std::vector<int64_t>({INT64_MAX, INT64_MIN, 4503599627370497}));
  EXPECT(cast<uint64_t>(std::vector<double>{0x1p63, 1e30}, kUint64) ==
         std::vector<uint64_t>({uint64_t{1} << 63, UINT64_MAX}));
  EXPECT(cast<int8_t>(std::vector<int32_t>{200, -129}, kInt8) == std::vector<int8_t>({-56, 127}));
  EXPECT(cast<int8_t>(std::vector<int32_t>{7, 8, -9}, kInt4) == std::vector<int8_t>({7, -8, 7}));
  EXPECT(cast<uint8_t>(std::vector<int32_t>{15, 16, -1}, kUint4) == Codes({15, 0, 15}));
  EXPECT(cast<uint8_t>(std::vector<float>{0.0f, -0.0f, 0.1f, kNaN}, kBool) == Codes({0, 0, 1, 1}));
  EXPECT(cast<float>(std::vector<int64_t>{16777217, INT64_MAX}, kFloat) ==
         std::vector<float>({16777216.0f, 0x1p63f}));
  // A double that rounding to float first would put on the wrong side of a tie.
  const std::vector<Half> once = cast<Half>(std::vector<double>{1 + 0x1p-11 + 0x1p-40}, kFloat16);
  EXPECT_EQ(static_cast<float>(once[0]), 1 + 0x1p-10f);
  const std::vector<Half> down = cast<Half>(std::vector<double>{1 + 0x1p-11 - 0x1p-40}, kFloat16);
  EXPECT_EQ(static_cast<float>(down[0]), 1.0f);
  // More elements than a chunk, of a type that goes through another.
  const std::vector<int32_t> many = cast<int32_t>(std::vector<Half>(1111, Half(-7.5f)), kInt32);
  EXPECT(many == std::vector<int32_t>(1111, -7));
}

TEST(cast_of_strings) {
  using Strings = std::vector<std::string>;
  EXPECT(cast<float>(Strings{"1e-5", " +inf", "-INF", "100.5", "1e999", "1e-999"}, kFloat) ==
         std::vector<float>({1e-5f, kInfinity, -kInfinity, 100.5f, kInfinity, 0.0f}));
  EXPECT(std::isnan(cast<float>(Strings{"NaN"}, kFloat)[0]));
  EXPECT(cast<int64_t>(Strings{"9007199254740993", "-5", "2.5"}, kInt64) ==
         std::vector<int64_t>({9007199254740993, -5, 2}));
  EXPECT(cast<std::string>(std::vector<float>{0.1f, 314.15926f, 1, 1e20f, -kInfinity, kNaN},
                           kString) ==
         Strings({"0.1", "314.15927", "1.0", "1e+20", "-INF", "NaN"}));
  EXPECT(cast<std::string>(std::vector<Half>{Half(0.1f)}, kString) == Strings({"0.1"}));
  EXPECT(cast<std::string>(std::vector<int64_t>{INT64_MIN}, kString) ==
         Strings({"-9223372036854775808"}));
  TensorCase bad("Cast", {{"to", int64_t{kFloat}}});
  bad.in<std::string>({2}, {"1", "Hello World!"});
  EXPECT(std::string(bad.run().message()).find("not a number") != std::string::npos);
}

TEST(cast_like_and_bit_cast) {
  TensorCase like("CastLike");
  like.in<float>({2, 1}, {1.5f, -1.5f}).in<int64_t>({0}, {});
  ASSERT_OK(like.run());
  EXPECT(like.shape() == Shape({2, 1}));
  EXPECT(like.values<int64_t>() == std::vector<int64_t>({1, -1}));
  TensorCase bits("BitCast", {{"to", int64_t{kInt32}}});
  bits.in<float>({1}, {1.0f});
  ASSERT_OK(bits.run());
  EXPECT_EQ(bits.values<int32_t>()[0], 0x3F800000);
  TensorCase narrow("BitCast", {{"to", int64_t{kInt4}}});
  narrow.in<uint8_t>({2}, {15, 7}, DType::kU4);
  ASSERT_OK(narrow.run());
  EXPECT(narrow.values<int8_t>() == std::vector<int8_t>({-1, 7}));
}

TEST(cast_refuses) {
  const auto refusal = [](const char* op, Attributes attributes) {
    TensorCase c(op, std::move(attributes));
    c.in<float>({1}, {1});
    return c.refusal();
  };
  EXPECT(refusal("Cast", {{"to", INT64_MIN}}).find("element type") != std::string::npos);
  EXPECT(refusal("Cast", {{"to", int64_t{14}}}).find("element type 14") != std::string::npos);
  EXPECT(refusal("Cast", {{"to", int64_t{1}}, {"round_mode", std::string("odd")}})
             .find("up, down or nearest") != std::string::npos);
  EXPECT(refusal("BitCast", {{"to", int64_t{kInt8}}}).find("32 bits") != std::string::npos);
}
