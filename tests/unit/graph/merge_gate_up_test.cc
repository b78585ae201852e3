// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

struct FeedForward {
  Builder b;
  ValueId x;

  FeedForward() { x = b.input("x", tensor(DType::kF32, {"tokens", 64})); }
  ValueId linear(const std::string& name, DType type, int64_t rows = 96, bool bias = false,
                 bool precise = false) {
    const ValueId vector = bias ? b.constant(piece(name + ".bias", DType::kF32, {rows})) : kNone;
    return b.linear(x, b.constant(piece("ffn_" + name, type, {rows, 64})), vector, precise, name);
  }
  Graph gated(ValueId gate, ValueId up) {
    b.output(b.silu_mul(gate, up, "gated"), "y");
    return finish(b);
  }
};

}  // namespace

TEST(gate_and_up_become_one_interleaved_linear) {
  FeedForward f;
  const ValueId up =
      f.linear("up", DType::kQ4_0, 96, false, true);  // the order of the file does not matter
  const Graph before = f.gated(f.linear("gate", DType::kQ4_0, 96, false, true), up);
  EXPECT_EQ(nodes_of(before),
            std::string("%2 : f32[tokens, 96] = linear(x, ffn_up) {precise=1}  # up\n"
                        "%4 : f32[tokens, 96] = linear(x, ffn_gate) {precise=1}  # gate\n"
                        "%5 : f32[tokens, 96] = silu_mul(%4, %2)  # gated\n"
                        "output y = %5\n"));
  EXPECT_EQ(
      after(merge_gate_up, before),
      std::string(
          "%2 : f32[tokens, 96] = linear(x, ffn_{gate,up}) {interleaved=1, precise=1}  # gated\n"
          "output y = %2\n"));
}

TEST(gate_and_up_that_differ_stay_apart) {
  {
    FeedForward f;
    const ValueId gate = f.linear("gate", DType::kQ4_0), up = f.linear("up", DType::kQ8_0);
    expect_unchanged(merge_gate_up, f.gated(gate, up));
  }
  {
    FeedForward f;  // one biased
    const ValueId gate = f.linear("gate", DType::kQ4_0),
                  up = f.linear("up", DType::kQ4_0, 96, true);
    expect_unchanged(merge_gate_up, f.gated(gate, up));
  }
  {
    FeedForward f;  // one precise
    const ValueId gate = f.linear("gate", DType::kQ4_0),
                  up = f.linear("up", DType::kQ4_0, 96, false, true);
    expect_unchanged(merge_gate_up, f.gated(gate, up));
  }
  {
    FeedForward f;  // the same product twice
    const ValueId gate = f.linear("gate", DType::kQ4_0);
    expect_unchanged(merge_gate_up, f.gated(gate, gate));
  }
  {
    FeedForward f;  // one that somebody else reads
    const ValueId gate = f.linear("gate", DType::kQ4_0), up = f.linear("up", DType::kQ4_0);
    f.b.output(up, "up");
    expect_unchanged(merge_gate_up, f.gated(gate, up));
  }
  {
    FeedForward f;  // of another x
    const ValueId z = f.b.input("z", tensor(DType::kF32, {"tokens", 64}));
    const ValueId up =
        f.b.linear(z, f.b.constant(piece("u", DType::kQ4_0, {96, 64})), kNone, false, "up");
    const ValueId gate = f.linear("gate", DType::kQ4_0);
    expect_unchanged(merge_gate_up, f.gated(gate, up));
  }
}
