// SPDX-License-Identifier: Apache-2.0
//
// The table of data types against the block structs of ggml-common.h, summed by hand, and the
// arithmetic of shapes.
#include "core/tensor.h"

#include <set>
#include <string>

#include "core/dtype.h"
#include "testing.h"

namespace {

using lmn::DType;
using lmn::info;
using lmn::Shape;
using lmn::TensorView;

TEST(block_layouts) {
  constexpr int kHalf = 2;
  struct {
    DType type;
    const char* name;
    uint32_t elements, bytes;
  } const want[] = {
      {DType::kF32, "f32", 1, 4},
      {DType::kF16, "f16", 1, 2},
      {DType::kBF16, "bf16", 1, 2},
      {DType::kF64, "f64", 1, 8},
      {DType::kI8, "i8", 1, 1},
      {DType::kI16, "i16", 1, 2},
      {DType::kI32, "i32", 1, 4},
      {DType::kI64, "i64", 1, 8},
      {DType::kU8, "u8", 1, 1},
      {DType::kBool, "bool", 1, 1},
      {DType::kQ4_0, "q4_0", 32, kHalf + 32 / 2},                         // d, qs
      {DType::kQ4_1, "q4_1", 32, 2 * kHalf + 32 / 2},                     // d, m, qs
      {DType::kQ5_0, "q5_0", 32, kHalf + 4 + 32 / 2},                     // d, qh, qs
      {DType::kQ5_1, "q5_1", 32, 2 * kHalf + 4 + 32 / 2},                 // d, m, qh, qs
      {DType::kQ8_0, "q8_0", 32, kHalf + 32},                             // d, qs
      {DType::kQ4_K, "q4_k", 256, 2 * kHalf + 12 + 256 / 2},              // d, dmin, scales, qs
      {DType::kQ5_K, "q5_k", 256, 2 * kHalf + 12 + 256 / 8 + 256 / 2},    // d, dmin, scales, qh, qs
      {DType::kQ6_K, "q6_k", 256, 256 / 2 + 256 / 4 + 256 / 16 + kHalf},  // ql, qh, scales, d
  };
  std::set<std::string> names;
  for (const auto& t : want) {
    EXPECT_EQ(info(t.type).name, t.name);
    EXPECT_EQ(info(t.type).block_elements, t.elements);
    EXPECT_EQ(info(t.type).block_bytes, t.bytes);
    EXPECT_EQ(lmn::is_block_quantized(t.type), t.elements > 1);
    EXPECT(names.insert(t.name).second);
  }
}

TEST(every_type_has_a_name_and_a_size) {
  std::set<std::string_view> names;
  for (const auto& type : lmn::kDTypeInfo) {
    EXPECT(!type.name.empty());
    EXPECT(type.block_elements > 0);
    EXPECT(type.block_bytes > 0);
    EXPECT(names.insert(type.name).second);
  }
}

TEST(shapes) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank, 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.to_string(), "[]");
  const Shape weight{49152, 576};
  EXPECT_EQ(weight.rank, 2);
  EXPECT_EQ(weight[0], 49152);
  EXPECT_EQ(weight.last(), 576);
  EXPECT_EQ(weight.rows(), 49152);
  EXPECT_EQ(weight.elements(), 28311552);
  EXPECT_EQ(weight.to_string(), "[49152, 576]");
  EXPECT(weight == (Shape{49152, 576}));
  EXPECT(!(weight == Shape{576, 49152}));
  EXPECT(!(weight == Shape{49152}));
  const Shape empty{3, 0};
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_EQ(empty.rows(), 0);
}

TEST(bytes_of_views) {
  EXPECT_EQ(lmn::row_bytes(DType::kQ4_1, 576), 18 * 20);
  EXPECT_EQ(lmn::row_bytes(DType::kQ6_K, 512), 2 * 210);
  EXPECT_EQ(lmn::row_bytes(DType::kF16, 7), 14);
  const float data[6] = {1, 2, 3, 4, 5, 6};
  const TensorView view{DType::kF32, Shape{2, 3}, reinterpret_cast<const std::byte*>(data)};
  EXPECT_EQ(view.bytes(), 24);
  EXPECT_EQ(view.as<float>()[5], 6.0f);
  EXPECT_EQ((TensorView{DType::kQ8_0, Shape{49152, 576}, nullptr}.bytes()),
            30081024);  // as the default model's file has it
}

}  // namespace
