// SPDX-License-Identifier: Apache-2.0
//
// Operators of values.def, beyond what ONNX's own tests cover: types, sequences of sequences of
// operators, refused attributes and data. Expected values are worked out by hand, or numpy's.
#include <cmath>
#include <limits>

#include "tensor_case.h"

namespace lmn::cpu {
namespace {

using ops::RuntimeValue;
using ops::ValueKind;
using Texts = std::vector<std::string>;
using Ints64 = std::vector<int64_t>;

template <typename T>
RuntimeValue value_of(DType dtype, const Shape& shape, const std::vector<T>& elements) {
  auto owned = std::make_shared<std::vector<T>>(elements);
  RuntimeValue value;
  value.tensor = {dtype, shape, reinterpret_cast<std::byte*>(owned->data()), owned};
  return value;
}
RuntimeValue floats(const Shape& shape, const std::vector<float>& elements) {
  return value_of(DType::kF32, shape, elements);
}
RuntimeValue integer(int64_t i) { return value_of<int64_t>(DType::kI64, {}, {i}); }

template <typename T>
std::vector<T> elements(const RuntimeValue& value) {
  return {value.tensor.as<T>(), value.tensor.as<T>() + value.tensor.shape.elements()};
}

// One value operator on values of any kind.
Result<RuntimeValue> evaluate(std::string_view name, const ops::Attributes& attributes,
                              const std::vector<const RuntimeValue*>& inputs) {
  const ops::TensorOp op = *ops::find_tensor_op(name);
  std::vector<ops::Operand> operands(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    operands[i].present = true;
    operands[i].type.dtype = inputs[i]->tensor.dtype;
    operands[i].type.kind = inputs[i]->kind;
    if (!inputs[i]->items.empty()) operands[i].type.item = inputs[i]->items[0].kind;
    if (inputs[i]->kind != ValueKind::kTensor) continue;
    operands[i].type.shape = inputs[i]->tensor.shape;
    operands[i].data = inputs[i]->tensor.data;
  }
  LMN_RETURN_IF_ERROR(ops::check_attributes(op, attributes, "t"));
  const ops::TensorNode node(op, attributes, "t", operands, 1);
  ops::TensorType type;
  LMN_RETURN_IF_ERROR(ops::infer(node, {&type, 1}));
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, create_cpu_device(""));
  const ops::AllocateTensor allocate = [](DType dtype, const Shape& shape) -> Result<Tensor> {
    const auto count = static_cast<size_t>(shape.elements());
    if (dtype == DType::kString) return value_of(dtype, shape, Texts(count)).tensor;
    return value_of(dtype, shape, std::vector<uint8_t>(count * info(dtype).block_bytes)).tensor;
  };
  std::vector<RuntimeValue> outputs(1);
  LMN_RETURN_IF_ERROR(device->kernels().tensor.evaluate(node, {inputs, outputs, allocate}));
  EXPECT(outputs[0].kind == type.kind);
  EXPECT(outputs[0].tensor.dtype == type.dtype);
  return outputs[0];
}

}  // namespace

TEST(NonZeroCountsCoordinatesAndNotScalars) {
  TensorCase two("NonZero");
  two.in<float>({2, 2}, {0, 1, kNaN, 0});
  ASSERT_OK(two.run());
  EXPECT(two.values<int64_t>() == (Ints64{0, 1, 1, 0}));
  TensorCase scalar("NonZero");
  scalar.in<float>({}, {3});
  ASSERT_OK(scalar.run());
  EXPECT(scalar.shape() == (Shape{0, 1}));
  TensorCase texts("NonZero");
  texts.in<std::string>({3}, {"", "a", ""});
  ASSERT_OK(texts.run());
  EXPECT(texts.values<int64_t>() == Ints64{1});
}

TEST(UniqueOrdersNumbersNanAndText) {
  TensorCase numbers("Unique", {}, 4);
  numbers.in<float>({6}, {kNaN, -1, 0.0f, -0.0f, kNaN, -2});
  ASSERT_OK(numbers.run());
  const std::vector<float> y = numbers.values<float>();
  ASSERT(y.size() == 4);
  EXPECT(y[0] == -2 && y[1] == -1 && y[2] == 0 && std::isnan(y[3]));
  EXPECT(numbers.values<int64_t>(1) == (Ints64{5, 1, 2, 0}));
  EXPECT(numbers.values<int64_t>(2) == (Ints64{3, 1, 2, 2, 3, 0}));
  EXPECT(numbers.values<int64_t>(3) == (Ints64{1, 1, 2, 2}));
  TensorCase texts("Unique", {{"sorted", int64_t{0}}}, 2);
  texts.in<std::string>({4}, {"b", "a", "b", "c"});
  ASSERT_OK(texts.run());
  EXPECT(texts.values<std::string>() == (Texts{"b", "a", "c"}));
  TensorCase rows("Unique", {{"axis", int64_t{0}}});
  rows.in<int8_t>({3, 2}, {1, -1, -1, 5, 1, -1});
  ASSERT_OK(rows.run());
  EXPECT(rows.values<int8_t>() == (std::vector<int8_t>{-1, 5, 1, -1}));
  TensorCase bad("Unique", {{"axis", std::numeric_limits<int64_t>::min()}});
  bad.in<float>({2}, {1, 2});
  EXPECT(says(bad.refusal(), "axis"));
}

TEST(NonMaxSuppressionRefusesWrongThresholdsAndSkipsNan) {
  TensorCase boxes("NonMaxSuppression");
  boxes.in<float>({1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 1, 5, 5, 6, 6})
      .in<float>({1, 1, 3}, {kNaN, 1, 2});
  boxes.in<int64_t>({1}, {3}).in<float>({1}, {0.5f});
  ASSERT_OK(boxes.run());
  EXPECT(boxes.values<int64_t>() == (Ints64{0, 0, 2, 0, 0, 1}));
  TensorCase high("NonMaxSuppression");
  high.in<float>({1, 1, 4}, {0, 0, 1, 1}).in<float>({1, 1, 1}, {1});
  high.in<int64_t>({1}, {std::numeric_limits<int64_t>::max()}).in<float>({1}, {1.5f});
  EXPECT(says(std::string(high.run().message()), "iou_threshold is 1.5"));
  TensorCase shapes("NonMaxSuppression");
  shapes.in<float>({1, 2, 4}, std::vector<float>(8)).in<float>({1, 1, 3}, {0, 0, 0});
  EXPECT(says(shapes.refusal(), "[1, 2, 4]"));
}

TEST(SequencesKeepWhatWentIn) {
  const RuntimeValue a = floats({2}, {1, 2}), b = floats({1}, {3}), back = integer(-1),
                     outside = integer(2);
  Result<RuntimeValue> list = evaluate("SequenceConstruct", {}, {&a});
  ASSERT_OK(list);
  list = evaluate("SequenceInsert", {}, {&*list, &b, &back});  // before the last
  ASSERT_OK(list);
  ASSERT(list->items.size() == 2);
  EXPECT(elements<float>(list->items[0]) == std::vector<float>{3});
  Result<RuntimeValue> at = evaluate("SequenceAt", {}, {&*list, &back});
  ASSERT_OK(at);
  EXPECT(elements<float>(*at) == (std::vector<float>{1, 2}));
  EXPECT(says(std::string(evaluate("SequenceAt", {}, {&*list, &outside}).status().message()),
              "position 2 in a sequence of 2"));
  ASSERT_OK(evaluate("SequenceErase", {}, {&*list}));
  const RuntimeValue text = value_of<std::string>(DType::kString, {1}, {"x"});
  EXPECT(says(std::string(evaluate("SequenceInsert", {}, {&*list, &text}).status().message()),
              "cast it"));
  Result<RuntimeValue> empty = evaluate("SequenceEmpty", {{"dtype", int64_t{1}}}, {});
  ASSERT_OK(empty);
  EXPECT(!evaluate("SequenceErase", {}, {&*empty}).ok());
  EXPECT(!evaluate("ConcatFromSequence", {{"axis", int64_t{0}}}, {&*empty}).ok());
  EXPECT(!evaluate("SequenceEmpty", {{"dtype", int64_t{99}}}, {}).ok());
}

TEST(SplitAndConcatAreInverse) {
  const RuntimeValue x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const RuntimeValue sizes = value_of<int32_t>(DType::kI32, {2}, {1, 2});
  const ops::Attributes axis{{"axis", int64_t{-1}}};
  Result<RuntimeValue> parts = evaluate("SplitToSequence", axis, {&x, &sizes});
  ASSERT_OK(parts);
  ASSERT(parts->items.size() == 2);
  EXPECT(elements<float>(parts->items[1]) == (std::vector<float>{2, 3, 5, 6}));
  Result<RuntimeValue> whole = evaluate("ConcatFromSequence", axis, {&*parts});
  ASSERT_OK(whole);
  EXPECT(elements<float>(*whole) == elements<float>(x));
  Result<RuntimeValue> columns =
      evaluate("SplitToSequence", {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}, {&x});
  ASSERT_OK(columns);
  ASSERT(columns->items.size() == 3);
  EXPECT(columns->items[0].tensor.shape == Shape{2});
  Result<RuntimeValue> stacked =
      evaluate("ConcatFromSequence", {{"axis", int64_t{1}}, {"new_axis", int64_t{1}}}, {&*columns});
  ASSERT_OK(stacked);
  EXPECT(elements<float>(*stacked) == elements<float>(x));
  const RuntimeValue zero = integer(0), wrong = value_of<int32_t>(DType::kI32, {2}, {3, -1});
  EXPECT(!evaluate("SplitToSequence", axis, {&x, &zero}).ok());
  EXPECT(!evaluate("SplitToSequence", axis, {&x, &wrong}).ok());
  EXPECT(!evaluate("ConcatFromSequence", {{"axis", int64_t{1}}}, {&*columns}).ok());
}

TEST(OptionalsHoldTensorsAndSequences) {
  const RuntimeValue x = floats({}, {7});
  Result<RuntimeValue> list = evaluate("SequenceConstruct", {}, {&x});
  ASSERT_OK(list);
  Result<RuntimeValue> full = evaluate("Optional", {}, {&*list});
  ASSERT_OK(full);
  Result<RuntimeValue> out = evaluate("OptionalGetElement", {}, {&*full});
  ASSERT_OK(out);
  EXPECT(out->kind == ValueKind::kSequence);
  EXPECT_EQ(out->items.size(), size_t{1});
  Result<RuntimeValue> none = evaluate("Optional", {{"type", int64_t{7}}}, {});
  ASSERT_OK(none);
  EXPECT(!evaluate("OptionalGetElement", {}, {&*none}).ok());
  EXPECT(!evaluate("Optional", {}, {}).ok());
  Result<RuntimeValue> has = evaluate("OptionalHasElement", {}, {&*none});
  ASSERT_OK(has);
  EXPECT_EQ(int{*has->tensor.as<uint8_t>()}, 0);
}

TEST(StringsAreSplitAndMappedByCodePoint) {
  TensorCase blanks("StringSplit", {{"maxsplit", int64_t{1}}}, 2);
  blanks.in<std::string>({2}, {"  a  b c  ", ""});
  ASSERT_OK(blanks.run());
  EXPECT_EQ(blanks.values<std::string>().size(), size_t{4});
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(blanks.values<std::string>()[i], (Texts{"a", "b c", "", ""})[i]);
  EXPECT(blanks.values<int64_t>(1) == (Ints64{2, 0}));
  TensorCase upper("StringNormalizer",
                   {{"case_change_action", std::string("UPPER")}, {"stopwords", Texts{"ÉCOLE"}}});
  upper.in<std::string>({4}, {"école", "straße", "λόγος", "\xff z"});
  ASSERT_OK(upper.run());
  EXPECT(upper.values<std::string>() == (Texts{"STRAßE", "ΛΌΓΟΣ", "\xff Z"}));
  TensorCase wrong("StringNormalizer", {{"case_change_action", std::string("TITLE")}});
  wrong.in<std::string>({1}, {"a"});
  EXPECT(says(wrong.refusal(), "'TITLE'"));
}

TEST(TfIdfWeighsNgrams) {
  const ops::Attributes pool{{"mode", std::string("TFIDF")},
                             {"min_gram_length", int64_t{1}},
                             {"max_gram_length", int64_t{2}},
                             {"max_skip_count", int64_t{1}},
                             {"ngram_counts", ops::Ints{0, 2}},
                             {"ngram_indexes", ops::Ints{2, 0, 1}},
                             {"pool_strings", Texts{"a", "b", "a", "b"}},
                             {"weights", ops::Floats{10, 100, 1000}}};
  TensorCase rows("TfIdfVectorizer", pool);
  rows.in<std::string>({2, 3}, {"a", "b", "b", "c", "a", "a"});
  ASSERT_OK(rows.run());
  // "a b" next to each other, and with one between.
  EXPECT(rows.values<float>() == (std::vector<float>{200, 2000, 10, 0, 0, 20}));
  ops::Attributes broken = pool;
  broken.set("ngram_counts", ops::Ints{0, 3});
  TensorCase bad("TfIdfVectorizer", broken);
  bad.in<std::string>({1}, {"a"});
  EXPECT(says(bad.refusal(), "2-grams"));
  broken.set("ngram_counts", ops::Ints{-1, std::numeric_limits<int64_t>::max()});
  TensorCase hostile("TfIdfVectorizer", broken);
  hostile.in<std::string>({1}, {"a"});
  EXPECT(!hostile.refusal().empty());
}

}  // namespace lmn::cpu
