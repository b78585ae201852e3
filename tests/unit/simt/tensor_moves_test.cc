// SPDX-License-Identifier: Apache-2.0
//
// Copies, gathers, reductions, softmaxes and norms of the CUDA device against the CPU's.
#include "tensor_case.h"

namespace {

using namespace simt_tests;
using ops::Ints;

TEST(transposes_of_every_size_of_element) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kI64, DType::kBool}) {
    const auto of = [&](const Shape& shape, const Ints& perm) {
      DeviceCase("Transpose", {{"perm", perm}})
          .in<float>(shape, some_numbers(shape.elements(), 1, 100), type)
          .check();
    };
    of({37, 70}, {1, 0});
    of({3, 33, 5}, {2, 1, 0});
    of({2, 6, 3, 8}, {0, 2, 1, 3});  // heads
    of({2, 6, 3, 8}, {0, 2, 3, 1});
    of({2, 40, 33}, {0, 2, 1});
    of({1, 4, 1}, {1, 2, 0});
  }
  DeviceCase("Transpose").in<float>({0, 4}, {}).check();
}

TEST(slices_tiles_and_joins) {
  const std::vector<float> x = some_numbers(5 * 8 * 16, 1);
  const auto slice = [&](const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
                         const std::vector<int64_t>& axes, const std::vector<int64_t>& steps) {
    DeviceCase("Slice")
        .in<float>({5, 8, 16}, x)
        .list(starts)
        .list(ends)
        .list(axes)
        .list(steps)
        .check();
  };
  slice({1}, {4}, {0}, {1});
  slice({4}, {12}, {2}, {1});
  slice({3}, {12}, {2}, {2});
  slice({-1}, {-100}, {1}, {-1});
  slice({1, -2}, {5, 0}, {0, 2}, {2, -3});
  slice({4}, {4}, {2}, {1});
  DeviceCase("Expand").in<float>({5, 1, 16}, some_numbers(80, 1)).list({2, 1, 3, 16}).check();
  DeviceCase("Expand").in<float>({}, {3}).list({2, 3}).check();
  DeviceCase("Tile").in<float>({2, 3}, {1, 2, 3, 4, 5, 6}).list({2, 3}).check();
  for (const int64_t axis : {0, 1, 2}) {
    DeviceCase("Concat", {{"axis", axis}})
        .in<float>({4, 6, 8}, some_numbers(192, 1))
        .in<float>({4, 6, 8}, some_numbers(192, 2))
        .check();
  }
  DeviceCase("Concat", {{"axis", int64_t{1}}})
      .in<float>({3, 1}, {1, 2, 3}, DType::kF16)
      .in<float>({3, 2}, {1, 2, 3, 4, 5, 6}, DType::kF16)
      .check();
  DeviceCase("Split", {{"axis", int64_t{-1}}}, 3)
      .in<float>({4, 12}, some_numbers(48, 1))
      .list({4, 1, 7})
      .check();
  DeviceCase("com.microsoft.ExpandDims")
      .in<float>({3}, {1, 2, 3})
      .in<int>({}, {0}, DType::kI32, true)
      .check();
}

TEST(gathers_report_indices_that_name_nothing) {
  const std::vector<float> x = some_numbers(6 * 10, 1);
  for (const DType index : {DType::kI32, DType::kI64}) {
    DeviceCase("Gather").in<float>({6, 10}, x).in<int>({2, 2}, {0, 5, -1, 3}, index).check();
    DeviceCase("Gather", {{"axis", int64_t{1}}})
        .in<float>({6, 10}, x)
        .in<int>({3}, {9, -10, 4}, index)
        .check();
  }
  DeviceCase("Gather").in<float>({12, 5}, x, DType::kF16).in<int>({}, {7}, DType::kI64).check();
  DeviceCase wrong("Gather");
  wrong.in<float>({6, 10}, x).in<int>({1}, {6}, DType::kI64);
  // What is not written differs.
  wrong.within(1e30, 1e38).check();
  EXPECT_EQ(wrong.failure(), "Gather: an index is out of range");
}

TEST(reductions_of_any_axes) {
  const std::vector<float> x = some_numbers(6 * 7 * 40, 1);
  const std::vector<std::vector<int64_t>> all_axes = {{2},    {0},    {1},      {0, 2},
                                                      {1, 2}, {0, 1}, {0, 1, 2}};
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1",
                         "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}) {
    for (const std::vector<int64_t>& axes : all_axes)
      DeviceCase(op).in<float>({6, 7, 40}, x).list(axes).within(1e-5, 1e-5).check();
  }
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    for (const DType type : {DType::kI32, DType::kI64})
      DeviceCase(op).in<float>({6, 7, 4}, some_numbers(168, 2, 9), type).list({1}).check();
  }
  DeviceCase("ReduceProd").in<float>({3, 5}, some_numbers(15, 3)).list({1}).check();
  DeviceCase("ReduceSum")
      .in<float>({3, 3000}, some_numbers(9000, 3))
      .list({1})
      .within(1e-4, 1e-4)
      .check();
  DeviceCase("ReduceMax").in<float>({2, 3}, {1, NAN, 3, 4, 5, 6}).list({1}).check();
  DeviceCase("ReduceMean").in<float>({6, 40}, some_numbers(240, 1), DType::kF16).list({1}).check();
}

TEST(softmaxes_along_any_axis) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (const int64_t axis : {0, 1, 2}) {
      DeviceCase(op, {{"axis", axis}}).in<float>({5, 9, 40}, some_numbers(1800, 1, 9)).check();
    }
    DeviceCase(op).in<float>({2, 2000}, some_numbers(4000, 1, 9)).within(1e-4, 1e-6).check();
    DeviceCase(op).in<float>({4, 40}, some_numbers(160, 1, 9), DType::kF16).check();
  }
}

TEST(norms_of_rows_and_of_sums) {
  for (const int64_t columns : {48, 1500}) {
    const std::vector<float> x = some_numbers(5 * columns, 1), scale = some_numbers(columns, 2),
                             bias = some_numbers(columns, 3), skip = some_numbers(5 * columns, 4);
    const auto with = [&](const char* op, int outputs) {
      DeviceCase c(op, {}, outputs);
      c.in<float>({5, columns}, x).within(1e-5, 1e-5);
      return c;
    };
    with("LayerNormalization", 1).in<float>({columns}, scale).in<float>({columns}, bias).check();
    with("LayerNormalization", 3).in<float>({columns}, scale).check();
    with("RMSNormalization", 1).in<float>({columns}, scale).check();
    with("SimplifiedLayerNormalization", 1).in<float>({columns}, scale).check();
    const auto skipped = [&](const char* op, int outputs) {
      DeviceCase c(op, {}, outputs);
      c.in<float>({1, 5, columns}, x).in<float>({1, 5, columns}, skip).in<float>({columns}, scale);
      return c;
    };
    skipped("com.microsoft.SkipLayerNormalization", 1)
        .in<float>({columns}, bias)
        .within(1e-5, 1e-5)
        .check();
    skipped("com.microsoft.SkipLayerNormalization", 4)
        .in<float>({columns}, bias)
        .in<float>({columns}, scale)
        .within(1e-5, 1e-5)
        .check();
    skipped("com.microsoft.SkipSimplifiedLayerNormalization", 1).within(1e-5, 1e-5).check();
  }
  DeviceCase columns_of_scale("RMSNormalization");
  columns_of_scale.in<float>({4, 4}, some_numbers(16, 1)).in<float>({4, 1}, {1, 2, 3, 4});
  EXPECT(columns_of_scale.refusal().find("operand 1 is no row") != std::string::npos);
}

}  // namespace
