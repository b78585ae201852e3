// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

struct Norm {
  Builder b;
  ValueId norm, quantized;

  Norm() {
    const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 64}));
    norm = b.rms_norm(x, b.constant(piece("w", DType::kF32, {64})), 1e-5f, "norm");
    quantized = b.node(Op::kQuantize, {norm}, {{"type", std::string("qa16")}}, "quantize");
    b.output(b.linear(quantized, b.constant(piece("m", DType::kQ4_0, {8, 64})), kNone, true, "out"),
             "y");
  }
};

}  // namespace

TEST(a_norm_that_is_only_quantised_is_fused) {
  Norm n;
  EXPECT_EQ(
      after(fuse_norm_quantize, finish(n.b)),
      std::string("%2 : qa16[tokens, 64] = rms_norm_quantize(x, w) {eps=1e-05, type=qa16}  # norm\n"
                  "%4 : f32[tokens, 8] = linear(%2, m) {precise=1}  # out\n"
                  "output y = %4\n"));
}

TEST(a_norm_that_is_read_by_others_stays) {
  Norm n;
  n.b.output(n.norm, "norm");
  expect_unchanged(fuse_norm_quantize, finish(n.b));
}
