// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

struct Head {
  Builder b;
  ValueId x, rows, norm_weight, weight;

  Head() {
    x = b.input("x", tensor(DType::kF32, {"tokens", 8}));
    rows = b.input("rows", tensor(DType::kI32, {"outputs"}));
    norm_weight = b.constant(piece("norm", DType::kF32, {8}));
    weight = b.constant(piece("head", DType::kF32, {100, 8}));
  }
};

}  // namespace

TEST(rows_are_chosen_before_the_norm_and_the_head) {
  Head h;
  const ValueId sum = h.b.add(h.x, h.x, "sum");
  const ValueId logits =
      h.b.linear(h.b.rms_norm(sum, h.norm_weight, 1e-5f, "norm"), h.weight, kNone, true, "head");
  h.b.output(h.b.gather_rows(logits, h.rows, "rows"), "logits");
  const Graph before = finish(h.b);
  EXPECT_EQ(nodes_of(before),
            std::string("%4 : f32[tokens, 8] = residual_add(x, x)  # sum\n"
                        "%5 : f32[tokens, 8] = rms_norm(%4, norm) {eps=1e-05}  # norm\n"
                        "%6 : f32[tokens, 100] = linear(%5, head) {precise=1}  # head\n"
                        "%7 : f32[outputs, 100] = gather_rows(%6, rows)  # rows\n"
                        "output logits = %7\n"));
  EXPECT_EQ(after(hoist_gather, before),
            std::string("%2 : f32[outputs, 8] = gather_rows(x, rows)  # rows\n"
                        "%3 : f32[outputs, 8] = residual_add(%2, %2)  # sum\n"
                        "%5 : f32[outputs, 8] = rms_norm(%3, norm) {eps=1e-05}  # norm\n"
                        "%7 : f32[outputs, 100] = linear(%5, head) {precise=1}  # head\n"
                        "output logits = %7\n"));
}

TEST(rows_are_chosen_after_what_others_read_whole) {
  Head h;
  const ValueId norm = h.b.rms_norm(h.x, h.norm_weight, 1e-5f, "norm");
  const ValueId logits = h.b.linear(norm, h.weight, kNone, false, "head");
  h.b.output(h.b.gather_rows(logits, h.rows, "rows"), "logits");
  h.b.output(norm, "hidden");  // wanted for all tokens
  EXPECT_EQ(after(hoist_gather, finish(h.b)),
            std::string("%3 : f32[tokens, 8] = rms_norm(x, norm) {eps=1e-05}  # norm\n"
                        "%4 : f32[outputs, 8] = gather_rows(%3, rows)  # rows\n"
                        "%6 : f32[outputs, 100] = linear(%4, head)  # head\n"
                        "output logits = %6\n"
                        "output hidden = %3\n"));
}

TEST(rows_of_a_residual_are_chosen_as_well) {
  Head h;
  const ValueId wide = h.b.input("wide", tensor(DType::kF32, {"tokens", 100}));
  const ValueId logits = h.b.node(Op::kLinear, {h.x, h.weight, kNone, wide}, {}, "head");
  h.b.output(h.b.gather_rows(logits, h.rows, "rows"), "logits");
  EXPECT_EQ(after(hoist_gather, finish(h.b)),
            std::string("%3 : f32[outputs, 8] = gather_rows(x, rows)  # rows\n"
                        "%5 : f32[outputs, 100] = gather_rows(wide, rows)  # rows\n"
                        "%6 : f32[outputs, 100] = linear(%3, head, -, %5)  # head\n"
                        "output logits = %6\n"));
}

// What follows the attention of a last layer: both operands of its residual are whole, and what
// they lead to is not.
TEST(rows_are_chosen_before_a_whole_feed_forward_layer) {
  Head h;
  const ValueId mixed = h.b.input("mixed", tensor(DType::kF32, {"tokens", 8}));
  const ValueId norm = h.b.rms_norm(h.x, h.norm_weight, 1e-5f, "attn_norm");
  h.b.output(h.b.linear(norm, h.b.constant(piece("v", DType::kF32, {8, 8})), kNone, false, "v"),
             "v");  // of all tokens
  const ValueId sum = h.b.add(mixed, norm, "sum");
  const ValueId gate =
      h.b.linear(sum, h.b.constant(piece("gate", DType::kF32, {8, 8})), kNone, false, "gate");
  const ValueId sums = h.b.add(h.b.silu_mul(gate, sum, "gated"), sum, "sums");
  h.b.output(h.b.gather_rows(sums, h.rows, "rows"), "y");
  EXPECT_EQ(after(hoist_gather, finish(h.b)),
            std::string("%4 : f32[tokens, 8] = rms_norm(x, norm) {eps=1e-05}  # attn_norm\n"
                        "%6 : f32[tokens, 8] = linear(%4, v)  # v\n"
                        "%7 : f32[outputs, 8] = gather_rows(mixed, rows)  # rows\n"
                        "%8 : f32[outputs, 8] = gather_rows(%4, rows)  # rows\n"
                        "%9 : f32[outputs, 8] = residual_add(%7, %8)  # sum\n"
                        "%11 : f32[outputs, 8] = linear(%9, gate)  # gate\n"
                        "%12 : f32[outputs, 8] = silu_mul(%11, %9)  # gated\n"
                        "%13 : f32[outputs, 8] = residual_add(%12, %9)  # sums\n"
                        "output v = %6\n"
                        "output y = %13\n"));
}

TEST(rows_that_two_choose_differently_are_computed_once) {
  Head h;
  const ValueId others = h.b.input("others", tensor(DType::kI32, {"outputs"}));
  const ValueId norm = h.b.rms_norm(h.x, h.norm_weight, 1e-5f, "norm");
  h.b.output(h.b.gather_rows(norm, h.rows, "rows"), "y");
  h.b.output(h.b.gather_rows(norm, others, "other_rows"), "z");
  expect_unchanged(hoist_gather, finish(h.b));
}

TEST(rows_of_the_whole_batch_are_chosen_where_they_are) {
  Head h;
  h.b.output(h.b.gather_rows(h.x, h.rows, "rows"), "y");
  expect_unchanged(hoist_gather, finish(h.b));
}
