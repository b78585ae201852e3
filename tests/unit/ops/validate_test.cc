// SPDX-License-Identifier: Apache-2.0
#include "ops/validate.h"

#include <cstring>
#include <string>
#include <vector>

#include "ops/reference.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::ops;

bool says(const Status& status, Code code, const char* words) {
  return status.code() == code && status.message().find(words) != std::string_view::npos;
}

TEST(rows_and_pointers) {
  float x[4] = {};
  RmsNormArgs a{1, x, x, x, 4, 1e-5f};
  ASSERT_OK(validate(a));
  a.rows = 0;
  ASSERT_OK(validate(a));
  a.rows = -1;
  EXPECT(says(validate(a), Code::kInvalidArgument, "rms_norm: rows is -1"));
  a.rows = 1;
  a.weight = nullptr;
  EXPECT(says(validate(a), Code::kInvalidArgument, "weight is a null pointer"));
  a.weight = x;
  a.eps = -1;
  EXPECT(says(validate(a), Code::kInvalidArgument, "eps"));
  a.eps = __builtin_nanf("");
  EXPECT(says(validate(a), Code::kInvalidArgument, "eps"));
}

TEST(quantised_columns_are_whole_blocks) {
  float x[64] = {};
  std::byte y[256];
  QuantizeArgs a{1, x, {y, 0}, 48, DType::kQA8};
  EXPECT(says(validate(a), Code::kInvalidArgument, "columns is 48, it must be a multiple of 32"));
  a.columns = 64;
  ASSERT_OK(validate(a));
  a.y_type = DType::kF32;
  EXPECT(says(validate(a), Code::kInvalidArgument, "y_type"));
}

TEST(attention_heads) {
  float x[512] = {};
  int32_t i[4] = {};
  KvLayer kv{
      reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(x), DType::kF16, 32, 2, 64};
  AttentionArgs a{1, x, 256, &kv, i, i, i, 1, x, 4, 0.125f};
  ASSERT_OK(validate(a));
  a.heads = 3;
  EXPECT(says(validate(a), Code::kInvalidArgument, "heads"));
  a.heads = 4;
  a.q_stride = 128;
  EXPECT(says(validate(a), Code::kInvalidArgument, "q_stride"));
  a.q_stride = 4096;
  kv.head_dim = 60;
  EXPECT(says(validate(a), Code::kUnsupported, "head_dim is 60"));
  kv.head_dim = 264;
  EXPECT(says(validate(a), Code::kUnsupported, "head_dim is 264"));
  kv.head_dim = 64;
  kv.page_tokens = 24;
  EXPECT(says(validate(a), Code::kInvalidArgument, "page_tokens is 24"));
  kv.page_tokens = 32;
  kv.dtype = DType::kI8;
  EXPECT(says(validate(a), Code::kInvalidArgument, "f16, f32 or q8_0"));
  kv.dtype = DType::kQ8_0;
  ASSERT_OK(validate(a));
  kv.head_dim = 40;
  EXPECT(says(validate(a), Code::kInvalidArgument, "head_dim is not a multiple of 32"));
}

TEST(rotation_fits_the_head) {
  float x[64] = {};
  RopeArgs a{1, x, x, 64, 1, 64, 64, RopeStyle::kHalves};
  ASSERT_OK(validate(a));
  a.rot_dim = 66;
  EXPECT(says(validate(a), Code::kInvalidArgument, "rot_dim"));
  a.rot_dim = 63;
  EXPECT(says(validate(a), Code::kInvalidArgument, "rot_dim"));
  a.rot_dim = 64;
  a.x_stride = 32;
  EXPECT(says(validate(a), Code::kInvalidArgument, "x_stride"));
}

TEST(packed_matrices) {
  float x[64] = {};
  PackedMatrix m;
  m.rows = 4;
  m.columns = 8;
  m.segments = {{DType::kF32, 0, 4, 0, 128}};
  m.bytes = 128;
  LinearArgs a{1, {reinterpret_cast<std::byte*>(x), 0}, &m, nullptr, nullptr, x};
  EXPECT(says(validate(a), Code::kInvalidArgument, "weight is a null pointer"));
  m.data = reinterpret_cast<std::byte*>(x);
  ASSERT_OK(validate(a));
  m.segments[0].rows = 3;
  EXPECT(says(validate(a), Code::kInvalidArgument, "segments"));
  m.segments[0].rows = 4;
  m.segments[0].bytes = 192;
  EXPECT(says(validate(a), Code::kInvalidArgument, "outside"));
}

TEST(what_can_be_packed) {
  std::byte bytes[4096] = {};
  std::vector<TensorView> pieces = {{DType::kQ8_0, Shape{4, 64}, bytes},
                                    {DType::kQ4_0, Shape{2, 64}, bytes}};
  ASSERT_OK(validate(PackRequest{pieces, DType::kQA8, false}));
  EXPECT(says(validate(PackRequest{pieces, DType::kF32, false}), Code::kInvalidArgument, "merged"));
  EXPECT(says(validate(PackRequest{pieces, DType::kQA8, true}), Code::kInvalidArgument,
              "interleaved"));
  EXPECT(says(validate(PackRequest{{}, DType::kQA8, false}), Code::kInvalidArgument, "nothing"));
  pieces[1].shape = Shape{2, 32};
  EXPECT(
      says(validate(PackRequest{pieces, DType::kQA8, false}), Code::kInvalidArgument, "columns"));
  pieces[1] = {DType::kI8, Shape{4, 64}, bytes};
  EXPECT(says(validate(PackRequest{pieces, DType::kQA8, false}), Code::kUnsupported, "type i8"));
  pieces = {{DType::kQ4_K, Shape{1, 128}, bytes}};
  EXPECT(says(validate(PackRequest{pieces, DType::kQA8, false}), Code::kInvalidArgument,
              "multiple of 256"));
}

TEST(by_operator) {
  float x[4] = {};
  const AddArgs a{1, x, x, nullptr, 4};
  EXPECT(says(validate(Op::kResidualAdd, &a), Code::kInvalidArgument,
              "residual_add: y is a null pointer"));
}

// The reference kernels against arithmetic done by hand.
TEST(reference_by_hand) {
  const KernelTable& table = reference_kernels();
  for (KernelFn fn : table.run) EXPECT(fn != nullptr);
  const float x[4] = {3, 4, 0, 0};  // mean square 6.25, root 2.5
  const float w[4] = {1, 2, 1, 1};
  float y[4];
  const RmsNormArgs norm{1, x, w, y, 4, 0.0f};
  table.run[static_cast<int>(Op::kRmsNorm)](&norm, {});
  EXPECT_NEAR(y[0], 1.2, 1e-6);
  EXPECT_NEAR(y[1], 3.2, 1e-6);

  // y = x W^T + bias + residual with W = [[1, 2], [3, 4], [5, 6]].
  const float weights[6] = {1, 2, 3, 4, 5, 6}, input[2] = {10, 1}, bias[3] = {0.5f, 0, 0},
              residual[3] = {0, 0, 100};
  const TensorView piece{DType::kF32, Shape{3, 2}, reinterpret_cast<const std::byte*>(weights)};
  const PackRequest request{std::span(&piece, 1), DType::kF32, false};
  Result<PackedMatrix> matrix = table.plan_pack(request);
  ASSERT_OK(matrix);
  std::vector<float> storage(static_cast<size_t>(matrix->bytes) / 4);
  table.pack(request, *matrix, reinterpret_cast<std::byte*>(storage.data()), {});
  matrix->data = reinterpret_cast<const std::byte*>(storage.data());
  float out[3];
  std::byte in[8];
  std::memcpy(in, input, sizeof in);
  const LinearArgs linear{1, {in, 0}, &*matrix, bias, residual, out};
  table.run[static_cast<int>(Op::kLinear)](&linear, {});
  EXPECT_EQ(out[0], 12.5f);
  EXPECT_EQ(out[1], 34.0f);
  EXPECT_EQ(out[2], 156.0f);

  // Two tokens, one head of 8: scores 0 and ln 3, so weights 1/4 and 3/4 of the values 1 and 5.
  std::vector<float> k(8 * 16), v(16 * 8);
  k[1] = std::log(3.0f);  // dimension 0 of token 1
  for (int d = 0; d < 8; ++d) {
    v[static_cast<size_t>(d)] = 1;
    v[static_cast<size_t>(8 + d)] = 5;
  }
  const KvLayer kv{reinterpret_cast<std::byte*>(k.data()),
                   reinterpret_cast<std::byte*>(v.data()),
                   DType::kF32,
                   16,
                   1,
                   8};
  const float q[8] = {1};
  const int32_t position = 1, zero = 0;
  float attended[8];
  const AttentionArgs attention{1, q, 8, &kv, &position, &zero, &zero, 1, attended, 1, 1.0f};
  table.run[static_cast<int>(Op::kPagedAttention)](&attention, {});
  EXPECT_NEAR(attended[0], 4.0, 1e-6);
  EXPECT_NEAR(attended[7], 4.0, 1e-6);
}

}  // namespace
