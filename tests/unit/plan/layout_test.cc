// SPDX-License-Identifier: Apache-2.0
//
// Where values are placed, what is changed in place, and where a team has to wait.
#include "plan/layout.h"

#include "graph/graph_fixture.h"
#include "plan/barriers.h"
#include "plan/binder.h"
#include "plan/plan.h"

using namespace graph_test;
using lmn::plan::Layout;

namespace {

constexpr lmn::plan::Bounds kBounds{16, 8, 2, 4};

Layout layout_of(const Graph& graph, int workers = 2) {
  auto layout = lmn::plan::make_layout(graph, kBounds, workers);
  ASSERT_OK(layout);
  return std::move(layout).value();
}

// "2 5": the stages before which a team waits.
std::string waits(const Graph& graph, bool few_rows) {
  const Layout layout = layout_of(graph);
  std::vector<bool> own_copy;
  for (const lmn::plan::Buffer& buffer : layout.buffers)
    own_copy.push_back(few_rows && buffer.copy_bytes > 0);
  const auto accesses = lmn::plan::find_accesses(graph, layout, lmn::plan::kv_layers_of(graph));
  const std::vector<bool> before = lmn::plan::place_barriers(layout, accesses, own_copy);
  std::string out;
  for (size_t s = 0; s < before.size(); ++s) {
    if (before[s]) out += (out.empty() ? "" : " ") + std::to_string(s);
  }
  return out;
}

struct Rows {
  Builder b;
  ValueId x, norm_weight;

  explicit Rows(int64_t columns = 64) {
    x = b.input("x", tensor(DType::kF32, {"tokens", columns}));
    norm_weight = b.constant(piece("norm", DType::kF32, {columns}));
  }
  ValueId norm(ValueId of) { return b.rms_norm(of, norm_weight, 1e-5f, "norm"); }
  ValueId linear(ValueId of, int64_t rows, DType type = DType::kF32) {
    return b.linear(of, b.constant(piece("w" + std::to_string(rows), type, {rows, 64})), kNone,
                    false, "linear");
  }
};

void expect_unsupported(const Graph& graph, const std::string& want) {
  auto layout = lmn::plan::make_layout(graph, kBounds, 2);
  ASSERT(!layout.ok());
  EXPECT(layout.status().code() == Code::kUnsupported);
  EXPECT_EQ(std::string(layout.status().message()), want);
}

}  // namespace

TEST(inputs_are_alive_throughout_and_never_changed) {
  Rows r;
  const ValueId y = r.norm(r.x);  // may be x, but x is the caller's
  r.b.output(y, "y");
  const Graph graph = finish(r.b);
  const Layout layout = layout_of(graph);
  EXPECT(layout.place(r.x).buffer != layout.place(y).buffer);
  EXPECT_EQ(layout.buffer_of(r.x).interval.first, 0);
  EXPECT_EQ(layout.buffer_of(r.x).interval.last, 1);
  EXPECT_EQ(layout.buffer_of(r.x).interval.bytes, 16 * 64 * 4);
}

TEST(norms_adds_and_residuals_work_in_place_on_what_is_not_read_again) {
  Rows r;
  const ValueId a = r.norm(r.x);
  const ValueId b = r.norm(a);
  const ValueId c = r.b.add(b, r.x, "add");
  const ValueId h = r.linear(c, 64);
  const ValueId d = r.b.node(
      Op::kLinear, {h, r.b.constant(piece("w", DType::kF32, {64, 64})), kNone, c}, {}, "residual");
  r.b.output(d, "y");
  const Layout layout = layout_of(finish(r.b));
  const int buffer = layout.place(a).buffer;
  for (ValueId id : {b, c, d}) EXPECT_EQ(layout.place(id).buffer, buffer);
  EXPECT(layout.place(h).buffer != buffer);
}

TEST(what_is_read_again_or_is_an_output_keeps_its_place) {
  Rows r;
  const ValueId a = r.norm(r.x);
  const ValueId b = r.norm(a);
  r.b.output(r.b.add(b, a, "reads a again"), "y");
  const Layout layout = layout_of(finish(r.b));
  EXPECT(layout.place(a).buffer != layout.place(b).buffer);

  Rows output;
  const ValueId c = output.norm(output.x);
  output.b.output(c, "c");
  const ValueId d = output.norm(c);
  output.b.output(d, "d");
  const Layout second = layout_of(finish(output.b));
  EXPECT(second.place(c).buffer != second.place(d).buffer);
  EXPECT_EQ(second.buffer_of(c).interval.last, 2);  // to the end
}

TEST(a_linear_does_not_write_onto_its_own_input) {
  Rows r;
  const ValueId a = r.norm(r.x);
  const ValueId y = r.b.node(
      Op::kLinear, {a, r.b.constant(piece("w", DType::kF32, {64, 64})), kNone, a}, {}, "square");
  r.b.output(y, "y");
  const Layout layout = layout_of(finish(r.b));
  EXPECT(layout.place(a).buffer != layout.place(y).buffer);
}

TEST(views_share_the_buffer_of_what_they_look_at) {
  AttentionBlock block;
  block.attend();
  auto merged = merge_linears(finish(block.b), options());
  ASSERT_OK(merged);
  const Layout layout = layout_of(*merged);
  int q = -1, rope_k = -1;
  for (const Node& node : merged->nodes) {
    const lmn::plan::Place& place = layout.place(node.outputs[0]);
    if (node.name == "q") {
      q = place.buffer;
      EXPECT_EQ(place.column, 0);
      EXPECT_EQ(place.columns, 64);
    }
    if (node.name == "rope_k") {
      rope_k = place.buffer;
      EXPECT_EQ(place.column, 64);
      EXPECT_EQ(place.columns, 32);
    }
  }
  EXPECT(q >= 0);
  EXPECT_EQ(q, rope_k);
  EXPECT_EQ(layout.stages.size(), size_t{6});  // views are no stages
}

TEST(changing_a_value_that_is_read_again_is_refused) {
  AttentionBlock block;
  block.attend();
  block.b.output(block.b.add(block.q, block.q, "q before rope"), "z");
  expect_unsupported(
      finish(block.b),
      "rope 'rope_q' works in place on a value that is read again, or is an input of the graph");

  // The same through a view that is written down later than the rope.
  AttentionBlock late;
  const ValueId both = late.b.linear(late.x, late.b.constant(piece("w", DType::kQ4_0, {96, 64})),
                                     kNone, false, "both");
  const auto view = [&](int64_t begin, int64_t count) {
    return late.b.node(Op::kColumns, {both}, {{"begin", begin}, {"count", count}}, "view");
  };
  const ValueId q = late.b.rope(view(0, 64), late.cos_sin, 4, "halves", "rope");
  const ValueId other = view(32, 64);
  late.b.output(late.b.silu_mul(q, other, "mix"), "y");
  expect_unsupported(
      finish(late.b),
      "rope 'rope' works in place on a value that is read again, or is an input of the graph");

  Builder input;
  const ValueId x = input.input("x", tensor(DType::kF32, {"tokens", 64}));
  const ValueId table = input.input("table", tensor(DType::kF32, {"tokens", 16}));
  input.output(input.rope(x, table, 4, "halves", "rope"), "y");
  expect_unsupported(
      finish(input),
      "rope 'rope' works in place on a value that is read again, or is an input of the graph");
}

TEST(columns_beside_those_that_change_may_be_read_later) {
  AttentionBlock block;
  const ValueId both = block.b.linear(
      block.x, block.b.constant(piece("w", DType::kQ4_0, {128, 64})), kNone, false, "both");
  const auto view = [&](int64_t begin) {
    return block.b.node(Op::kColumns, {both}, {{"begin", begin}, {"count", int64_t{64}}}, "view");
  };
  const ValueId left = block.b.rope(view(0), block.cos_sin, 4, "halves", "rope");
  block.b.output(block.b.silu_mul(left, view(64), "mix"), "y");
  (void)layout_of(finish(block.b));
}

TEST(unknown_symbols_are_named) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"patches", 64}));
  b.output(b.add(x, x, "add"), "y");
  expect_unsupported(
      finish(b),
      "'x' has the dimension 'patches'; plans know tokens, outputs, sequences and pages");
}

TEST(own_copies_have_room_for_every_worker) {
  Rows r;
  const ValueId x = r.norm(r.x);
  const ValueId q = r.b.node(Op::kQuantize, {x}, {{"type", std::string("qa8")}}, "quantize");
  r.b.output(r.linear(q, 8, DType::kQ8_0), "y");
  const Graph graph = finish(r.b);
  const int64_t row = 64 / 32 * 40, copy = 320;  // 4 rows of 80 bytes, and 320 is a multiple of 64
  EXPECT_EQ(layout_of(graph, 2).buffer_of(q).copy_bytes, copy);
  EXPECT_EQ(layout_of(graph, 2).buffer_of(q).interval.bytes, 16 * row);
  EXPECT_EQ(layout_of(graph, 7).buffer_of(q).interval.bytes, 7 * copy);
}

TEST(a_team_waits_once_between_dependent_stages) {
  Rows r;
  ValueId x = r.norm(r.x);
  x = r.linear(x, 64);
  const ValueId a = r.linear(x, 64), b = r.linear(x, 32);  // independent of each other
  r.b.output(a, "a");
  r.b.output(b, "b");
  EXPECT_EQ(waits(finish(r.b), true), std::string("1 2"));
}

TEST(a_team_does_not_wait_behind_own_copies) {
  Rows r;
  const ValueId x = r.norm(r.x);
  const ValueId q = r.b.node(Op::kQuantize, {x}, {{"type", std::string("qa8")}}, "quantize");
  r.b.output(r.linear(q, 64, DType::kQ8_0), "y");
  const Graph graph = finish(r.b);
  EXPECT_EQ(waits(graph, true), std::string("1"));
  EXPECT_EQ(waits(graph, false), std::string("1 2"));
}

TEST(a_team_does_not_wait_between_changes_of_different_columns) {
  AttentionBlock block;
  block.attend();
  auto merged = merge_linears(finish(block.b), options());
  ASSERT_OK(merged);
  // linear, rope_table | rope q, rope k | kv_write | attention: kv_write reads k, attention reads
  // the cache.
  EXPECT_EQ(waits(*merged, false), std::string("2 4 5"));
}

// Their workers combine partial sums in the same memory, though no value connects the two.
TEST(a_team_waits_between_independent_attentions) {
  Builder b;
  const ValueId q = b.input("q", tensor(DType::kF32, {"tokens", 64}));
  const ValueId positions = b.input("positions", tensor(DType::kI32, {"tokens"}));
  const ValueId sequences = b.input("sequence_index", tensor(DType::kI32, {"tokens"}));
  const ValueId tables = b.input("block_tables", tensor(DType::kI32, {"sequences", "pages"}));
  for (const std::string layer : {"0", "1", "2"}) {
    const ValueId kv = b.input("kv." + layer, kv_cache(2, 16));
    b.output(b.attention(q, kv, positions, sequences, tables, 4, 0.25f, "attention"), layer);
  }
  const Graph graph = finish(b);
  for (const bool few_rows : {false, true}) EXPECT_EQ(waits(graph, few_rows), std::string("1 2"));
}

TEST(a_layer_of_llama_takes_six_barriers) {
  AttentionBlock block;
  Builder& b = block.b;
  const auto weight = [&](const std::string& name, int64_t rows, int64_t columns) {
    return b.constant(piece(name, DType::kQ4_0, {rows, columns}));
  };
  const ValueId ones = b.constant(piece("norm", DType::kF32, {64}));
  ValueId x = block.x;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string l = std::to_string(layer);
    const ValueId h = b.rms_norm(x, ones, 1e-5f, "attn_norm");
    const ValueId q = b.rope(b.linear(h, weight("q" + l, 64, 64), kNone, true, "q"), block.cos_sin,
                             4, "halves", "rope");
    const ValueId k = b.rope(b.linear(h, weight("k" + l, 32, 64), kNone, true, "k"), block.cos_sin,
                             2, "halves", "rope");
    const ValueId v = b.linear(h, weight("v" + l, 32, 64), kNone, true, "v");
    const ValueId kv = layer == 0 ? block.kv : b.input("kv." + l, kv_cache(2, 16));
    const ValueId cache = b.kv_write(k, v, block.slots, kv, "write");
    const ValueId mixed = b.attention(q, cache, block.positions, block.sequences, block.tables, 4,
                                      0.25f, "attention");
    x = b.add(b.linear(mixed, weight("o" + l, 64, 64), kNone, false, "o"), x, "residual");
    const ValueId f = b.rms_norm(x, ones, 1e-5f, "ffn_norm");
    const ValueId gate = b.linear(f, weight("gate" + l, 96, 64), kNone, false, "gate");
    const ValueId up = b.linear(f, weight("up" + l, 96, 64), kNone, false, "up");
    x = b.add(
        b.linear(b.silu_mul(gate, up, "gated"), weight("down" + l, 64, 96), kNone, false, "down"),
        x, "residual");
  }
  b.output(x, "y");
  auto graph = optimize(finish(b), options());
  ASSERT_OK(graph);
  // The rope table of all layers, then norm, qkv | rope and write | attention | quantize, o | norm,
  // gate and up | quantize, down | and so on.
  EXPECT_EQ(waits(*graph, true), std::string("3 4 5 7 9 11 13 14 15 17 19 21 23 24 25 27 29"));
  // Where rows are shared out, the team also waits between quantising and multiplying.
  EXPECT_EQ(waits(*graph, false),
            std::string(
                "2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30"));
}
