// SPDX-License-Identifier: Apache-2.0
//
// Operators of shapes.def, where ONNX's own node tests do not look: element types, edges of lists
// and sizes, hostile attributes, data that are wrong. Expected values were worked out by hand or by
// a plain loop over indices here.
#include <numeric>

#include "tensor_case.h"

namespace lmn::cpu {
namespace {

using I64 = std::vector<int64_t>;
using F32 = std::vector<float>;
using Strings = std::vector<std::string>;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

template <typename T>
std::vector<T> counted(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i);
  return values;
}

// Transposes by the definition: y[i…] = x[index of the axes that perm names].
template <typename T>
void expect_transposed(const Shape& x, const ops::Ints& perm, DType dtype) {
  const std::vector<T> from = counted<T>(x.elements());
  TensorCase transpose("Transpose", {{"perm", perm}});
  ASSERT_OK(transpose.in(x, from, dtype).run());
  const Shape& y = transpose.shape();
  std::vector<T> want(from.size());
  for (int64_t at = 0; at < y.elements(); ++at) {
    int64_t left = at, index = 0;
    for (int i = y.rank - 1; i >= 0; --i) {
      int64_t stride = 1;
      const int axis = static_cast<int>(perm[static_cast<size_t>(i)]);
      for (int d = axis + 1; d < x.rank; ++d) stride *= x[d];
      index += left % y[i] * stride;
      left /= y[i];
    }
    want[static_cast<size_t>(at)] = from[static_cast<size_t>(index)];
  }
  EXPECT(transpose.values<T>() == want);
}

}  // namespace

TEST(tensor_transpose_all_permutations_and_sizes_of_elements) {
  for (const Shape& x : {Shape{2, 3, 5, 4}, Shape{1, 18, 1, 37}, Shape{3, 16, 33, 1}}) {
    ops::Ints perm{0, 1, 2, 3};
    do {
      expect_transposed<float>(x, perm, DType::kF32);
      expect_transposed<int64_t>(x, perm, DType::kI64);
      expect_transposed<uint8_t>(x, perm, DType::kU8);
      expect_transposed<uint16_t>(x, perm, DType::kU16);
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
  TensorCase strings("Transpose");
  ASSERT_OK(strings.in({2, 2}, Strings{"a", "b", "a string that is on the heap", "d"}).run());
  EXPECT(strings.values<std::string>() == (Strings{"a", "a string that is on the heap", "b", "d"}));
  TensorCase scalar("Transpose");
  ASSERT_OK(scalar.in({}, F32{3}).run());
  EXPECT(scalar.values<float>() == F32{3});
  TensorCase empty("Transpose");
  ASSERT_OK(empty.in({2, 0, 3}, F32{}).run());
  EXPECT(empty.shape() == (Shape{3, 0, 2}));
  EXPECT(says(TensorCase("Transpose", {{"perm", ops::Ints{0, 0}}}).in({2, 2}, F32(4)).refusal(),
              "axis 0 occurs twice"));
  EXPECT(
      says(TensorCase("Transpose", {{"perm", ops::Ints{0, kLeast}}}).in({2, 2}, F32(4)).refusal(),
           "below 0"));
}

TEST(tensor_slice_edges) {
  struct {
    int64_t start, end, step;
    I64 want;
  } cases[] = {{0, kMost, 1, {0, 1, 2, 3, 4}},
               {-1, kLeast, -1, {4, 3, 2, 1, 0}},
               {kMost, kLeast, -2, {4, 2, 0}},
               {kLeast, kMost, kMost, {0}},
               {kMost, kLeast, kLeast, {4}},
               {3, 1, 1, {}},
               {1, 3, -1, {}},
               {-3, -1, 1, {2, 3}},
               {kLeast, kLeast, -1, {0}},
               {4, 0, -3, {4, 1}},
               {5, 5, 1, {}},
               {1, 100, 3, {1, 4}}};
  for (const auto& c : cases) {
    TensorCase slice("Slice");
    slice.in({5}, counted<int64_t>(5)).in({1}, I64{c.start}).in({1}, I64{c.end});
    ASSERT_OK(slice.in({1}, I64{0}).in({1}, I64{c.step}).run());
    EXPECT(slice.values<int64_t>() == c.want);
  }
  TensorCase axes("Slice");  // the second axis backwards, of strings
  axes.in({2, 2}, Strings{"a", "b", "c", "d"}).in({1}, I64{-1}).in({1}, I64{kLeast});
  ASSERT_OK(axes.in({1}, I64{-1}).in({1}, I64{-1}).run());
  EXPECT(axes.values<std::string>() == (Strings{"b", "a", "d", "c"}));
  TensorCase zero("Slice");
  zero.in({5}, F32(5)).in({1}, I64{0}).in({1}, I64{5}).absent().in({1}, I64{0});
  EXPECT(says(zero.refusal(), "steps[0] is 0"));
  TensorCase twice("Slice");
  twice.in({5, 5}, F32(25)).in({2}, I64{0, 0}).in({2}, I64{5, 5}).in({2}, I64{1, -1});
  EXPECT(says(twice.refusal(), "axis 1 occurs twice"));
  TensorCase lengths("Slice");
  lengths.in({5}, F32(5)).in({2}, I64{0, 0}).in({1}, I64{5});
  EXPECT(says(lengths.refusal(), "2 starts and 1 ends"));
}

TEST(tensor_concat_and_split) {
  TensorCase concat("Concat", {{"axis", int64_t{1}}});
  concat.in({2, 1}, Strings{"a", "d"})
      .in({2, 0}, Strings{})
      .in({2, 2}, Strings{"b", "c", "e", "f"});
  ASSERT_OK(concat.run());
  EXPECT(concat.values<std::string>() == (Strings{"a", "b", "c", "d", "e", "f"}));
  EXPECT(says(
      TensorCase("Concat", {{"axis", int64_t{0}}}).in({2, 1}, F32(2)).in({2, 2}, F32(4)).refusal(),
      "does not join"));
  TensorCase split("Split", {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}}, 3);
  ASSERT_OK(split.in({2, 7}, counted<float>(14)).run());
  EXPECT(split.values<float>(0) == (F32{0, 1, 2, 7, 8, 9}));
  EXPECT(split.values<float>(2) == (F32{6, 13}));
  TensorCase uneven("Split", {{"num_outputs", int64_t{4}}}, 4);
  EXPECT(says(uneven.in({5}, F32(5)).refusal(), "do not split"));
  TensorCase sizes("Split", {}, 2);
  EXPECT(says(sizes.in({5}, F32(5)).in({2}, I64{kMost, 1}).refusal(), "split"));
  TensorCase sum("Split", {}, 2);
  EXPECT(says(sum.in({5}, F32(5)).in({2}, I64{3, 1}).refusal(), "4 elements together"));
}

TEST(tensor_shapes_refuse_what_is_too_large_or_negative) {
  EXPECT(
      says(TensorCase("Expand").in({1}, F32(1)).in({2}, I64{1 << 30, 1 << 30}).refusal(), "2^40"));
  EXPECT(says(TensorCase("Expand").in({1}, F32(1)).in({2}, I64{kMost, kMost}).refusal(), "2^40"));
  EXPECT(says(TensorCase("Expand").in({1}, F32(1)).in({1}, I64{-2}).refusal(), "a size of -2"));
  EXPECT(says(TensorCase("Tile").in({4}, F32(4)).in({1}, I64{kMost}).refusal(), "repeats[0]"));
  EXPECT(says(TensorCase("ConstantOfShape").in({1}, I64{kMost}).refusal(), "2^40"));
  EXPECT(says(TensorCase("ConstantOfShape").in({9}, I64(9, 1)).refusal(), "rank 9"));
  EXPECT(says(TensorCase("Pad").in({2}, F32(2)).in({2}, I64{kMost, 1}).refusal(), "2^40"));
  EXPECT(says(TensorCase("Pad").in({2}, F32(2)).in({2}, I64{-2, -1}).refusal(), "cut more off"));
  EXPECT(says(TensorCase("Reshape").in({4}, F32(4)).in({2}, I64{kMost, kMost}).refusal(), "2^40"));
  EXPECT(says(TensorCase("Range").in({}, I64{kLeast}).in({}, I64{kMost}).in({}, I64{1}).refusal(),
              "2^40"));
  EXPECT(says(TensorCase("Range").in({}, I64{0}).in({}, I64{1}).in({}, I64{0}).refusal(),
              "delta is 0"));
  EXPECT(
      says(TensorCase("Range").in({}, F32{0}).in({}, F32{1}).in({}, F32{0}).refusal(), "no end"));
  EXPECT(says(TensorCase("OneHot").in({1}, I64{0}).in({}, I64{-3}).in({2}, F32(2)).refusal(),
              "depth is -3"));
  EXPECT(says(TensorCase("TopK", {}, 2).in({3}, F32(3)).in({1}, I64{4}).refusal(), "k is 4"));
  EXPECT(says(TensorCase("Squeeze").in({3}, F32(3)).in({1}, I64{0}).refusal(), "is not 1"));
  EXPECT(says(TensorCase("Unsqueeze").in({3}, F32(3)).in({1}, I64{kLeast}).refusal(), "axis"));
  EXPECT(says(TensorCase("Unsqueeze").in({3}, F32(3)).in({9}, I64(9)).refusal(), "rank"));
  EXPECT(says(TensorCase("Flatten", {{"axis", kMost}}).in({3}, F32(3)).refusal(), "axis"));
  EXPECT(says(TensorCase("Gather", {{"axis", int64_t{1}}}).in({3}, F32(3)).in({}, I64{0}).refusal(),
              "axis 1"));
  EXPECT(says(TensorCase("EyeLike", {{"dtype", int64_t{14}}}).in({1, 1}, F32(1)).refusal(),
              "element type 14"));
}

TEST(tensor_shapes_keep_symbols) {
  // Two unknown sizes with names: -5 and -6.
  const auto infer = [](std::string_view op, ops::Attributes attributes,
                        const std::vector<ops::Operand>& operands, int outputs = 1) {
    std::vector<ops::TensorType> types(static_cast<size_t>(outputs));
    ASSERT_OK(ops::infer({*ops::find_tensor_op(op), attributes, "t", operands, outputs}, types));
    return types;
  };
  const ops::Operand x{{DType::kF32, {-5, 4, -6}}, true, nullptr};
  EXPECT(infer("Transpose", {{"perm", ops::Ints{2, 0, 1}}}, {x})[0].shape == (Shape{-6, -5, 4}));
  EXPECT(infer("Flatten", {}, {x})[0].shape == (Shape{-5, -1}));
  EXPECT(infer("Concat", {{"axis", int64_t{1}}}, {x, x})[0].shape == (Shape{-5, 8, -6}));
  EXPECT(infer("Split", {{"axis", int64_t{1}}}, {x}, 2)[1].shape == (Shape{-5, 2, -6}));
  const int64_t zero = 0, one = 1, end = kMost;
  const auto list = [](const int64_t* value) {
    return ops::Operand{{DType::kI64, {1}}, true, reinterpret_cast<const std::byte*>(value)};
  };
  EXPECT(infer("Slice", {}, {x, list(&zero), list(&end), list(&zero)})[0].shape ==
         (Shape{-5, 4, -6}));
  EXPECT(infer("Slice", {}, {x, list(&one), list(&end), list(&zero)})[0].shape ==
         (Shape{-1, 4, -6}));
  EXPECT(infer("Unsqueeze", {}, {x, list(&one)})[0].shape == (Shape{-5, 1, 4, -6}));
  EXPECT(infer("Gather", {{"axis", int64_t{2}}}, {x, list(&one)})[0].shape == (Shape{-5, 4, 1}));
  EXPECT(infer("Softmax", {}, {x})[0].shape == (Shape{-5, 4, -6}));
  EXPECT(infer("ReduceMean", {}, {x, list(&one)})[0].shape == (Shape{-5, 1, -6}));
}

TEST(tensor_pad_modes) {
  const auto pad = [](const char* mode, const Shape& shape, I64 pads) {
    TensorCase test("Pad", {{"mode", std::string(mode)}});
    const auto count = static_cast<int64_t>(pads.size());
    ASSERT_OK(test.in(shape, counted<int64_t>(shape.elements())).in({count}, pads).run());
    return test.values<int64_t>();
  };
  // Pads longer than the axis reflect and wrap again and again.
  EXPECT(pad("reflect", {3}, {5, 4}) == (I64{1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2}));
  EXPECT(pad("reflect", {1}, {2, 1}) == (I64{0, 0, 0, 0}));
  EXPECT(pad("wrap", {3}, {4, 4}) == (I64{2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0}));
  EXPECT(pad("edge", {2, 2}, {1, -1, 0, 1}) == (I64{1, 1, 1, 1, 3, 3}));
  EXPECT(pad("constant", {2, 3}, {1, -1, -1, 0}) == (I64{0, 0, 1, 2}));
  EXPECT(pad("constant", {2, 1, 2}, {1, 0, 0, 0, 0, 0}) == (I64{0, 0, 0, 1, 2, 3}));
  EXPECT(pad("constant", {0}, {2, 1}) == (I64{0, 0, 0}));
  EXPECT(pad("reflect", {2, 2}, {0, 0, 0, 0}) == (I64{0, 1, 2, 3}));
  TensorCase strings("Pad");
  ASSERT_OK(strings.in({1}, Strings{"a"}).in({2}, I64{1, 0}).in({}, Strings{"-"}).run());
  EXPECT(strings.values<std::string>() == (Strings{"-", "a"}));
  EXPECT(says(TensorCase("Pad", {{"mode", std::string("edge")}})
                  .in({0}, F32{})
                  .in({2}, I64{1, 0})
                  .refusal(),
              "no element"));
}

TEST(tensor_indices_out_of_range_are_errors_of_the_run) {
  const auto message = [](TensorCase& test) { return std::string(test.run().message()); };
  for (const int64_t index : {int64_t{3}, int64_t{-4}, kMost, kLeast}) {
    TensorCase gather("Gather");
    EXPECT(says(message(gather.in({3}, F32(3)).in({1}, I64{index})), "out of range"));
    TensorCase elements("GatherElements");
    EXPECT(says(message(elements.in({3}, F32(3)).in({1}, I64{index})), "out of range"));
    TensorCase nd("GatherND");
    EXPECT(says(message(nd.in({3}, F32(3)).in({1}, I64{index})), "out of range"));
    TensorCase scatter("ScatterElements");
    scatter.in({3}, F32(3)).in({1}, I64{index}).in({1}, F32(1));
    EXPECT(says(message(scatter), "out of range"));
    TensorCase scatter_nd("ScatterND");
    scatter_nd.in({3}, F32(3)).in({1, 1}, I64{index}).in({1}, F32(1));
    EXPECT(says(message(scatter_nd), "out of range"));
    TensorCase cache("TensorScatter", {{"axis", int64_t{1}}});
    cache.in({1, 3}, F32(3)).in({1, 1}, F32(1)).in({1}, I64{index});
    EXPECT(says(message(cache), "out of range"));
    TensorCase hot("OneHot");  // nothing is hot
    ASSERT_OK(hot.in({1}, I64{index}).in({}, I64{3}).in({2}, F32{0, 1}).run());
    EXPECT(hot.values<float>() == (F32{0, 0, 0}));
    TensorCase reverse("ReverseSequence", {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}});
    const int64_t length = index == 3 ? 4 : index;
    EXPECT(says(message(reverse.in({1, 3}, F32(3)).in({1}, I64{length})), "out of range"));
  }
  TensorCase none("Gather");  // no index of an axis without elements
  ASSERT_OK(none.in({0, 2}, F32{}).in({0}, I64{}).run());
  EXPECT(none.shape() == (Shape{0, 2}));
}

TEST(tensor_scatter_reductions_take_updates_in_order) {
  const auto scatter = [](const char* reduction) {
    TensorCase test("ScatterElements",
                    {{"axis", int64_t{0}}, {"reduction", std::string(reduction)}});
    test.in({3, 2}, std::vector<int32_t>{1, 2, 3, 4, 5, 6}).in({2, 2}, I64{0, 2, 0, -1});
    ASSERT_OK(test.in({2, 2}, std::vector<int32_t>{10, 20, -30, 40}).run());
    return test.values<int32_t>();
  };
  using I32 = std::vector<int32_t>;
  EXPECT(scatter("none") == (I32{-30, 2, 3, 4, 5, 40}));
  EXPECT(scatter("add") == (I32{-19, 2, 3, 4, 5, 66}));
  EXPECT(scatter("mul") == (I32{-300, 2, 3, 4, 5, 4800}));
  EXPECT(scatter("max") == (I32{10, 2, 3, 4, 5, 40}));
  EXPECT(scatter("min") == (I32{-30, 2, 3, 4, 5, 6}));
  TensorCase part("ScatterElements", {{"axis", int64_t{1}}});  // indices of the first row only
  part.in({2, 3}, F32{1, 2, 3, 4, 5, 6}).in({1, 2}, I64{2, 0}).in({1, 2}, F32{7, 8});
  ASSERT_OK(part.run());
  EXPECT(part.values<float>() == (F32{8, 2, 7, 4, 5, 6}));
  // Sums of floats depend on their order, which no split changes: check_same() of run().
  TensorCase sums("ScatterND", {{"reduction", std::string("add")}});
  F32 updates(96);
  for (size_t i = 0; i < updates.size(); ++i) updates[i] = 1.0f / static_cast<float>(3 * i + 1);
  I64 rows(32);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i * i % 5);
  ASSERT_OK(sums.in({5, 3}, F32(15)).in({32, 1}, rows).in({32, 3}, updates).run());
  F32 want(15);
  for (size_t i = 0; i < 96; ++i) want[static_cast<size_t>(rows[i / 3]) * 3 + i % 3] += updates[i];
  EXPECT(sums.values<float>() == want);
}

TEST(tensor_order_of_equal_elements_and_nans) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TensorCase top("TopK", {}, 2);
  ASSERT_OK(top.in({6}, F32{1, 3, nan, 3, -2, 1}).in({1}, I64{4}).run());
  EXPECT(top.values<int64_t>(1) == (I64{2, 1, 3, 0}));
  TensorCase least("TopK", {{"largest", int64_t{0}}}, 2);
  ASSERT_OK(least.in({6}, F32{1, 3, nan, 3, -2, 1}).in({1}, I64{6}).run());
  EXPECT(least.values<int64_t>(1) == (I64{4, 0, 5, 1, 3, 2}));
  TensorCase none("TopK", {{"axis", int64_t{0}}}, 2);
  ASSERT_OK(none.in({2, 2}, F32(4)).in({1}, I64{0}).run());
  EXPECT(none.shape() == (Shape{0, 2}));
  const auto arg = [&](const char* op, int64_t last, const F32& values) {
    TensorCase test(op, {{"axis", int64_t{0}}, {"select_last_index", last}});
    ASSERT_OK(test.in({static_cast<int64_t>(values.size())}, values).run());
    return test.values<int64_t>()[0];
  };
  EXPECT_EQ(arg("ArgMax", 0, {1, 5, 5, 2}), 1);
  EXPECT_EQ(arg("ArgMax", 1, {1, 5, 5, 2}), 2);
  EXPECT_EQ(arg("ArgMin", 0, {7, 5, 5, 6}), 1);
  EXPECT_EQ(arg("ArgMax", 0, {1, nan, 5, nan}), 1);
  EXPECT_EQ(arg("ArgMax", 1, {1, nan, 5, nan}), 3);
  EXPECT_EQ(arg("ArgMin", 0, {1, nan, -5, nan}), 1);
  EXPECT(says(TensorCase("ArgMax").in({0}, F32{}).refusal(), "axis 0 is empty"));
  // Columns beside one another, more of them than a block has.
  TensorCase columns("ArgMax", {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}});
  F32 values(3 * 200);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 101);
  ASSERT_OK(columns.in({3, 200}, values).run());
  for (size_t c = 0; c < 200; ++c) {
    size_t best = 0;
    for (size_t r = 1; r < 3; ++r) best = values[r * 200 + c] > values[best * 200 + c] ? r : best;
    EXPECT_EQ(columns.values<int64_t>()[c], static_cast<int64_t>(best));
  }
}

TEST(tensor_running_sums) {
  TensorCase bytes("CumSum", {{"reverse", int64_t{1}}, {"exclusive", int64_t{1}}});
  ASSERT_OK(bytes.in({2, 2}, std::vector<int32_t>{1, 2, 3, 4}).in({}, I64{0}).run());
  EXPECT(bytes.values<int32_t>() == (std::vector<int32_t>{3, 4, 0, 0}));
  TensorCase wraps("CumProd");  // modulo 2^64, and no signed overflow
  ASSERT_OK(wraps.in({3}, I64{kMost, 2, 3}).in({}, I64{0}).run());
  EXPECT(wraps.values<int64_t>() == (I64{kMost, -2, -6}));
  // Half precision sums in float: 2049 of them are more than adding 1 to 2048 can say.
  TensorCase half("CumSum");
  ASSERT_OK(half.in({4096}, std::vector<Half>(4096, Half(1.0f))).in({}, I64{0}).run());
  EXPECT_EQ(static_cast<float>(half.values<Half>()[4095]), 4096.0f);
}

TEST(tensor_triangles_and_diagonals) {
  for (const int64_t k : {kLeast, int64_t{-1}, int64_t{0}, int64_t{1}, kMost}) {
    for (const int64_t upper : {0, 1}) {
      TensorCase trilu("Trilu", {{"upper", upper}});
      ASSERT_OK(trilu.in({2, 3, 2}, counted<int64_t>(12)).in({}, I64{k}).run());
      const I64 got = trilu.values<int64_t>();
      for (int64_t i = 0; i < 12; ++i) {
        const int64_t row = i / 2 % 3, column = i % 2;
        const int64_t diagonal = column - row;  // small: only k is large
        const bool kept = upper != 0 ? diagonal >= k : diagonal <= k;
        EXPECT_EQ(got[static_cast<size_t>(i)], kept ? i : 0);
      }
    }
  }
  TensorCase eye("EyeLike", {{"k", int64_t{-1}}, {"dtype", int64_t{9}}});
  ASSERT_OK(eye.in({3, 2}, F32(6)).run());
  EXPECT(eye.values<uint8_t>() == (std::vector<uint8_t>{0, 0, 1, 0, 0, 1}));
}

TEST(tensor_compress_and_empty_tensors) {
  TensorCase compress("Compress", {{"axis", int64_t{1}}});
  compress.in({2, 3}, Strings{"a", "b", "c", "d", "e", "f"});
  ASSERT_OK(compress.in({2}, std::vector<uint8_t>{0, 1}).run());
  EXPECT(compress.values<std::string>() == (Strings{"b", "e"}));
  EXPECT(says(TensorCase("Compress").in({1}, F32(1)).in({2}, std::vector<uint8_t>{0, 1}).refusal(),
              "condition has 2"));
  TensorCase tile("Tile");
  ASSERT_OK(tile.in({2, 1}, F32{1, 2}).in({2}, I64{2, 3}).run());
  EXPECT(tile.values<float>() == (F32{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  TensorCase nothing("Tile");
  ASSERT_OK(nothing.in({2, 1}, F32{1, 2}).in({2}, I64{0, 3}).run());
  EXPECT(nothing.shape() == (Shape{0, 3}));
  TensorCase expand("Expand");
  ASSERT_OK(expand.in({2, 1}, F32{1, 2}).in({3}, I64{2, 1, 3}).run());
  EXPECT(expand.values<float>() == (F32{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  TensorCase range("Range");  // wraps nowhere, although the limit less the start would
  ASSERT_OK(range.in({}, I64{kMost - 1}).in({}, I64{kLeast}).in({}, I64{kLeast}).run());
  EXPECT(range.values<int64_t>() == (I64{kMost - 1, -2}));
}

}  // namespace lmn::cpu
