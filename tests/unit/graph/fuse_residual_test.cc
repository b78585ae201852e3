// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

struct Residual {
  Builder b;
  ValueId x;

  Residual() { x = b.input("x", tensor(DType::kF32, {"tokens", 8})); }
  ValueId linear(ValueId of, const std::string& name) {
    return b.linear(of, b.constant(piece("w_" + name, DType::kF32, {8, 8})), kNone, false, name);
  }
};

}  // namespace

TEST(an_add_behind_a_linear_becomes_its_residual) {
  for (bool linear_first : {true, false}) {
    Residual r;
    const ValueId y = r.linear(r.x, "out");
    r.b.output(linear_first ? r.b.add(y, r.x, "sum") : r.b.add(r.x, y, "sum"), "y");
    EXPECT_EQ(after(fuse_residual, finish(r.b)),
              std::string("%2 : f32[tokens, 8] = linear(x, w_out, -, x)  # out\n"
                          "output y = %2\n"));
  }
}

TEST(of_two_linears_the_later_takes_the_other_as_residual) {
  Residual r;
  const ValueId early = r.linear(r.x, "early");
  const ValueId late = r.linear(r.x, "late");
  r.b.output(r.b.add(late, early, "sum"), "y");
  EXPECT_EQ(after(fuse_residual, finish(r.b)),
            std::string("%2 : f32[tokens, 8] = linear(x, w_early)  # early\n"
                        "%4 : f32[tokens, 8] = linear(x, w_late, -, %2)  # late\n"
                        "output y = %4\n"));
}

TEST(chains_of_residuals_fuse_one_by_one) {
  Residual r;
  ValueId x = r.x;
  for (const char* name : {"a", "b"}) x = r.b.add(r.linear(x, name), x, "sum");
  r.b.output(x, "y");
  EXPECT_EQ(after(fuse_residual, finish(r.b)),
            std::string("%2 : f32[tokens, 8] = linear(x, w_a, -, x)  # a\n"
                        "%4 : f32[tokens, 8] = linear(%2, w_b, -, %2)  # b\n"
                        "output y = %4\n"));
}

TEST(a_linear_that_is_read_twice_keeps_its_add) {
  Residual r;
  const ValueId y = r.linear(r.x, "out");
  r.b.output(r.b.add(y, r.x, "sum"), "y");
  r.b.output(y, "z");
  expect_unchanged(fuse_residual, finish(r.b));

  Residual twice;
  const ValueId z = twice.linear(twice.x, "out");
  twice.b.output(twice.b.add(z, z, "double"), "y");
  expect_unchanged(fuse_residual, finish(twice.b));
}
