// SPDX-License-Identifier: Apache-2.0
//
// Every operator's cost, against sums done by hand.
#include "ops/cost.h"

#include "ops/packed_matrix.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::ops;

void expect_cost(const Cost& cost, int64_t bytes, int64_t operations) {
  EXPECT_EQ(cost.bytes, bytes);
  EXPECT_EQ(cost.operations, operations);
}

PackedMatrix matrix(int64_t rows, int64_t columns, DType input, int64_t bytes) {
  PackedMatrix out;
  out.rows = rows;
  out.columns = columns;
  out.input_type = input;
  out.bytes = bytes;
  return out;
}

TEST(linear_reads_its_weights_once) {
  // 96 outputs of 64 inputs, 4-bit weights of 20 bytes a block of 32.
  PackedMatrix w = matrix(96, 64, DType::kQA8, 96 * 2 * 20);
  float bias = 0, residual = 0;
  LinearArgs a{};
  a.weight = &w;
  a.rows = 1;
  // x: 64 int8, two scales and two sums. y: 96 floats.
  expect_cost(cost(a), 3840 + 80 + 384, 2 * 96 * 64);
  a.rows = 5;
  expect_cost(cost(a), 3840 + 5 * (80 + 384), 5 * 2 * 96 * 64);
  a.bias = &bias;
  a.residual = &residual;
  expect_cost(cost(a), 3840 + 384 + 5 * (80 + 2 * 384), 5 * 2 * 96 * 64);
  a.rows = 0;
  expect_cost(cost(a), 0, 0);
  // gate and up: both are multiplied, one is written. Floats in.
  w = matrix(96, 64, DType::kF32, 96 * 64 * 2);
  w.interleaved = true;
  LinearArgs pair{};
  pair.weight = &w;
  pair.rows = 3;
  expect_cost(cost(pair), 12288 + 3 * (64 * 4 + 48 * 4), 3 * 2 * 96 * 64);
}

TEST(attention_counts_from_the_positions_of_the_run) {
  KvLayer kv;
  kv.dtype = DType::kF16;
  kv.page_tokens = 16;
  kv.kv_heads = 3;
  kv.head_dim = 64;
  // Two sequences: three rows at positions 14, 15 and 16, and one at position 99.
  const int32_t positions[] = {14, 15, 16, 99};
  const int32_t sequences[] = {0, 0, 0, 1};
  AttentionArgs a{};
  a.rows = 4;
  a.kv = &kv;
  a.positions = positions;
  a.sequence_index = sequences;
  a.heads = 9;
  // Keys and values of 17 + 100 positions, 384 bytes each; 2 + 7 pages; q and y of 576 floats, a
  // position and a sequence for each row.
  expect_cost(cost(a), 117 * 2 * 384 + 9 * 4 + 4 * (2 * 2304 + 8),
              int64_t{4} * 64 * 9 * (15 + 16 + 17 + 100));
  kv.dtype = DType::kF32;
  a.rows = 1;
  expect_cost(cost(a), 15 * 2 * 768 + 4 + 4616, 4 * 64 * 9 * 15);
  kv.dtype = DType::kQ8_0;  // 64 bytes and two scales a head
  expect_cost(cost(a), 15 * 2 * 3 * 68 + 4 + 4616, 4 * 64 * 9 * 15);
  a.rows = 0;
  expect_cost(cost(a), 0, 0);
}

TEST(what_is_looked_up_and_moved) {
  const PackedMatrix table = matrix(1000, 64, DType::kQA8, 1000 * 40);
  EmbeddingArgs embedding{};
  embedding.rows = 3;
  embedding.table = &table;
  embedding.columns = 64;
  expect_cost(cost(embedding), 3 * (4 + 40 + 256), 0);

  GatherRowsArgs gather{};
  gather.rows = 2;
  gather.columns = 10;
  expect_cost(cost(gather), 2 * (4 + 80), 0);

  KvLayer kv;
  kv.kv_heads = 2;
  kv.head_dim = 32;
  KvWriteArgs write{};
  write.rows = 5;
  write.kv = &kv;
  // A slot; k and v of 64 floats in, of 64 halves out.
  expect_cost(cost(write), 5 * (4 + 2 * 64 * (4 + 2)), 0);
  kv.dtype = DType::kQ8_0;
  expect_cost(cost(write), 5 * (4 + 2 * 64 * 4 + 2 * 2 * 34), 0);
  kv.dtype = DType::kF16;

  RopeKvWriteArgs both{};
  both.rows = 5;
  both.kv = &kv;
  both.heads = 4;
  both.rot_dim = 16;
  // cos and sin; the first 16 of 32 elements of four heads in and out; as above. Four heads of q
  // and two of k are rotated: 8 pairs of six operations each.
  expect_cost(cost(both), 5 * (4 + 64 + 2 * 4 * 64 + 2 * 64 * 6), 5 * (4 + 2) * 8 * 6);
}

TEST(element_by_element) {
  RmsNormArgs norm{};
  norm.rows = 3;
  norm.columns = 64;
  expect_cost(cost(norm), 3 * 2 * 256 + 256, 3 * 64 * 4);
  norm.rows = 0;
  expect_cost(cost(norm), 0, 0);

  QuantizeArgs quantize{};
  quantize.rows = 3;
  quantize.columns = 64;
  quantize.y_type = DType::kQA16;
  expect_cost(cost(quantize), 3 * (256 + 128 + 16), 3 * 64 * 3);

  RmsNormQuantizeArgs fused{};
  fused.rows = 3;
  fused.columns = 64;
  fused.y_type = DType::kQA8;
  expect_cost(cost(fused), 3 * (256 + 64 + 16) + 256, 3 * 64 * 7);
  fused.rows = 0;
  expect_cost(cost(fused), 0, 0);

  RopeTableArgs angles{};
  angles.rows = 2;
  angles.rot_dim = 8;
  expect_cost(cost(angles), 2 * (4 + 32) + 16, 2 * 4 * 5);
  angles.rows = 0;
  expect_cost(cost(angles), 0, 0);

  RopeArgs rope{};
  rope.rows = 2;
  rope.heads = 3;
  rope.head_dim = 16;
  rope.rot_dim = 8;
  expect_cost(cost(rope), 2 * (2 * 3 * 32 + 32), 2 * 3 * 4 * 6);

  SiluMulArgs silu{};
  silu.rows = 2;
  silu.columns = 10;
  expect_cost(cost(silu), 240, 80);

  AddArgs add{};
  add.rows = 2;
  add.columns = 10;
  expect_cost(cost(add), 240, 20);
  expect_cost(cost(Op::kResidualAdd, &add), 240, 20);
}

}  // namespace
