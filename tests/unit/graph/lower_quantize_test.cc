// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_fixture.h"

using namespace graph_test;

namespace {

Graph three_linears(DType type) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 64}));
  b.output(b.linear(x, b.constant(piece("floats", DType::kF16, {8, 64})), kNone, false, "floats"),
           "a");
  b.output(b.linear(x, b.constant(piece("coarse", type, {8, 64})),
                    b.constant(piece("bias", DType::kF32, {8})), false, "coarse"),
           "b");
  b.output(b.linear(x, b.constant(piece("fine", type, {8, 64})), kNone, true, "fine"), "c");
  return finish(b);
}

}  // namespace

TEST(quantised_weights_get_quantised_inputs) {
  const Graph before = three_linears(DType::kQ4_1);
  const std::string want =
      "%2 : f32[tokens, 8] = linear(x, floats)  # floats\n"
      "%3 : qa8[tokens, 64] = quantize(x) {type=qa8}  # coarse\n"
      "%6 : f32[tokens, 8] = linear(%3, coarse, bias)  # coarse\n"
      "%7 : qa16[tokens, 64] = quantize(x) {type=qa16}  # fine\n"
      "%9 : f32[tokens, 8] = linear(%7, fine) {precise=1}  # fine\n"
      "output a = %2\n"
      "output b = %6\n"
      "output c = %9\n";
  EXPECT_EQ(after(lower_quantize, before), want);
  auto once = lower_quantize(before, options());
  ASSERT_OK(once);
  EXPECT_EQ(after(lower_quantize, *once), want);  // what is lowered stays
}

TEST(lowering_names_the_weight_that_a_device_refuses) {
  auto result = lower_quantize(three_linears(DType::kBool), options());
  ASSERT(!result.ok());
  EXPECT(result.status().code() == Code::kUnsupported);
  EXPECT_EQ(std::string(result.status().message()), std::string("coarse: no weights of bool"));
}

TEST(residuals_stay_with_the_lowered_linear) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 64}));
  const ValueId w = b.constant(piece("w", DType::kQ8_0, {64, 64}));
  b.output(b.node(Op::kLinear, {x, w, kNone, x}, {}, "out"), "y");
  EXPECT_EQ(after(lower_quantize, finish(b)),
            std::string("%1 : qa8[tokens, 64] = quantize(x) {type=qa8}  # out\n"
                        "%3 : f32[tokens, 64] = linear(%1, w, -, x)  # out\n"
                        "output y = %3\n"));
}
