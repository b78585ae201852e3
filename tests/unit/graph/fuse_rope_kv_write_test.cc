// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

Graph merged(AttentionBlock& block) {
  auto result = merge_linears(finish(block.b), options());
  ASSERT_OK(result);
  return std::move(result).value();
}

}  // namespace

TEST(rope_and_kv_write_on_one_matrix_become_one) {
  AttentionBlock block;
  block.attend();
  EXPECT_EQ(after(fuse_rope_kv_write, merged(block)),
            std::string(
                "%7 : f32[tokens, 128] = linear(x, {q,k,v}.weight) {precise=1}  # q+k+v\n"
                "%8 : f32[tokens, 64] = columns(%7) {begin=0, count=64}  # q\n"
                "%9 : f32[tokens, 32] = columns(%7) {begin=64, count=32}  # k\n"
                "%10 : f32[tokens, 32] = columns(%7) {begin=96, count=32}  # v\n"
                "%12 : f32[tokens, 16] = rope_table(positions, inv_freq) {magnitude=1}  # table\n"
                "%13 : f32[tokens, 128], %14 : kv[2, 16] = rope_kv_write(%7, %12, kv_slots, kv.0) "
                "{heads=4, style=halves}  # write\n"
                "%15 : f32[tokens, 64] = columns(%13) {begin=0, count=64}  # rope_q\n"
                "%16 : f32[tokens, 64] = paged_attention(%15, %14, positions, sequence_index, "
                "block_tables) "
                "{heads=4, scale=0.25}  # attention\n"
                "output y = %16\n"));
}

TEST(rope_on_separate_matrices_stays) {
  AttentionBlock block;
  block.attend();
  expect_unchanged(fuse_rope_kv_write, finish(block.b));
}

TEST(rope_with_other_tables_for_q_and_k_stays) {
  AttentionBlock block;
  const ValueId other = block.b.rope_table(
      block.positions, block.b.constant(owned_constant("f", std::vector<float>(8, 2.0f))), 1,
      "other");
  const ValueId q = block.b.rope(block.q, block.cos_sin, 4, "halves", "rope_q");
  const ValueId k = block.b.rope(block.k, other, 2, "halves", "rope_k");
  const ValueId cache = block.b.kv_write(k, block.v, block.slots, block.kv, "write");
  block.b.output(
      block.b.attention(q, cache, block.positions, block.sequences, block.tables, 4, 0.25f, "a"),
      "y");
  expect_unchanged(fuse_rope_kv_write, merged(block));
}

TEST(rope_whose_heads_are_not_those_of_the_cache_stays) {
  AttentionBlock block;
  block.attend(/*k_heads=*/1);  // heads of 32 to turn, heads of 16 to store
  expect_unchanged(fuse_rope_kv_write, merged(block));
}

TEST(rope_on_q_that_is_read_before_the_write_stays) {
  AttentionBlock block;
  const ValueId q = block.b.rope(block.q, block.cos_sin, 4, "halves", "rope_q");
  // Attends to the cache of the step before, then writes.
  block.b.output(
      block.b.attention(q, block.kv, block.positions, block.sequences, block.tables, 4, 0.25f, "a"),
      "y");
  const ValueId k = block.b.rope(block.k, block.cos_sin, 2, "halves", "rope_k");
  block.b.kv_write(k, block.v, block.slots, block.kv, "write");
  expect_unchanged(fuse_rope_kv_write, merged(block));
}

TEST(rope_on_q_after_the_write_is_fused_there) {
  AttentionBlock block;
  const ValueId k = block.b.rope(block.k, block.cos_sin, 2, "halves", "rope_k");
  const ValueId cache = block.b.kv_write(k, block.v, block.slots, block.kv, "write");
  const ValueId q = block.b.rope(block.q, block.cos_sin, 4, "halves", "rope_q");
  block.b.output(
      block.b.attention(q, cache, block.positions, block.sequences, block.tables, 4, 0.25f, "a"),
      "y");
  const std::string text = after(fuse_rope_kv_write, merged(block));
  EXPECT(text.find("= rope_kv_write(%7, %12, kv_slots, kv.0)") != std::string::npos);
  EXPECT(text.find("= rope(") == std::string::npos);
}
