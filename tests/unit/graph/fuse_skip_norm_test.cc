// SPDX-License-Identifier: Apache-2.0
//
// fuse_skip_norm: sums that are not taken along. What is taken: tests/unit/plan/each_pass_test.cc.
#include "graph/passes/passes.h"
#include "tensor_graph.h"
#include "testing.h"

namespace {

using namespace lmn;
using namespace lmn::graph;
using namespace graph_test;

TEST(sums_that_are_no_skip_stay) {
  Graph g;
  const ValueId x = input(&g, {"n", 4}), gamma = floats(&g, "gamma", {4}, {1, 2, 3, 4});
  const auto named = [&](const char* name, Dims dims) {
    return g.add_input(name, tensor(DType::kF32, std::move(dims)));
  };
  const auto norm = [&](ValueId a, ValueId b, ValueId scale, Attributes attributes = {}) {
    const ValueId sum = node(&g, "Add", {a, b});
    g.add_output(node(&g, "LayerNormalization", {sum, scale}, std::move(attributes)), "y");
    return sum;
  };
  norm(x, gamma, gamma);                 // of one row
  norm(x, named("z", {"k", 4}), gamma);  // of another size, as far as anybody knows
  const ValueId any = named("any", {"?", 4});
  norm(any, any, gamma);
  const ValueId deep = named("deep", {2, 2, "n", 4});
  norm(deep, deep, gamma);
  norm(x, x, gamma, {{"axis", int64_t{0}}});
  norm(x, x, floats(&g, "one", {1}, {2}));
  g.add_output(norm(x, x, gamma), "sum");
  Result<Graph> result = fuse_skip_norm(g, {}), plain = eliminate_dead_code(g, {});
  ASSERT_OK(result);
  result = eliminate_dead_code(*result, {});
  ASSERT_OK(result);
  EXPECT_EQ(to_text(*result), to_text(*plain));
}

}  // namespace
