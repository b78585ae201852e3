// SPDX-License-Identifier: Apache-2.0
//
// Operators of ml.def. Trees, linear models and support vectors of a few numbers, worked out by
// hand; attributes that contradict each other must be refused before anything walks them.
#include <cmath>
#include <limits>

#include "tensor_case.h"

namespace lmn::cpu {
namespace {

using ops::Floats;
using ops::Ints;
using ops::Strings;

// x[0] <= 1 ? (x[1] > 5 ? leaf 2 : leaf 3) : leaf 4, as node ids.
ops::Attributes tree(const std::string& kind) {
  return {{"nodes_treeids", Ints{0, 0, 0, 0, 0}},
          {"nodes_nodeids", Ints{0, 1, 2, 3, 4}},
          {"nodes_featureids", Ints{0, 1, 0, 0, 0}},
          {"nodes_values", Floats{1, 5, 0, 0, 0}},
          {"nodes_modes", Strings{"BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF"}},
          {"nodes_truenodeids", Ints{1, 2, 0, 0, 0}},
          {"nodes_falsenodeids", Ints{4, 3, 0, 0, 0}},
          {"nodes_missing_value_tracks_true", Ints{0, 1, 0, 0, 0}},
          {kind + "_treeids", Ints{0, 0, 0}},
          {kind + "_nodeids", Ints{2, 3, 4}},
          {kind + "_ids", Ints{0, 0, 0}},
          {kind + "_weights", Floats{0.25f, 0.75f, 0.5f}}};
}
ops::Attributes with(ops::Attributes attributes, const char* key, ops::Attribute value) {
  attributes.set(key, std::move(value));
  return attributes;
}

std::string tree_refusal(const ops::Attributes& attributes) {
  TensorCase bad("ai.onnx.ml.TreeEnsembleRegressor", attributes);
  bad.in<float>({1, 2}, {0, 0});
  return bad.refusal();
}

}  // namespace

TEST(TreesAreWalkedAndSummed) {
  const std::vector<float> x{0, 6, 1, 5, 2, 0, kNaN, 0, 0, kNaN};
  TensorCase regressor("ai.onnx.ml.TreeEnsembleRegressor",
                       with(tree("target"), "base_values", Floats{10}));
  regressor.in<float>({5, 2}, x);
  ASSERT_OK(regressor.run());
  EXPECT(regressor.values<float>() == (std::vector<float>{10.25f, 10.75f, 10.5f, 10.5f, 10.25f}));
  // Votes for the first of two classes alone speak for the second.
  TensorCase classifier("ai.onnx.ml.TreeEnsembleClassifier",
                        with(tree("class"), "classlabels_strings", Strings{"no", "yes"}), 2);
  classifier.in<float>({5, 2}, x);
  ASSERT_OK(classifier.run());
  EXPECT(classifier.values<std::string>() == (Strings{"no", "yes", "no", "no", "no"}));
  EXPECT_EQ(classifier.values<float>(1)[2], 0.25f);
  EXPECT_EQ(classifier.values<float>(1)[3], 0.75f);
  TensorCase integers("ai.onnx.ml.TreeEnsembleRegressor", tree("target"));
  integers.in<int64_t>({2}, {1, 6});
  ASSERT_OK(integers.run());
  EXPECT(integers.values<float>() == std::vector<float>{0.25f});
}

TEST(TreesThatContradictThemselvesAreRefused) {
  const ops::Attributes good = tree("target");
  EXPECT_EQ(tree_refusal(good), "");
  // A way back to the node itself or to the root, children that are not there, lists of other
  // lengths, and numbers out of range.
  EXPECT(says(tree_refusal(with(good, "nodes_truenodeids", Ints{1, 1, 0, 0, 0})), "two nodes"));
  EXPECT(says(tree_refusal(with(good, "nodes_truenodeids", Ints{1, 0, 0, 0, 0})), "reached"));
  EXPECT(says(tree_refusal(with(good, "nodes_truenodeids", Ints{9, 2, 0, 0, 0})), "child 9"));
  EXPECT(says(tree_refusal(with(good, "nodes_values", Floats{1})), "nodes_values has 1"));
  EXPECT(says(tree_refusal(with(good, "nodes_nodeids", Ints{0, 1, 2, 3, 3})), "twice"));
  EXPECT(says(tree_refusal(with(good, "nodes_treeids", Ints{0, 0, 0, 0, 1})), "child 4"));
  EXPECT(says(tree_refusal(with(good, "nodes_featureids", Ints{0, 2, 0, 0, 0})), "look at 3"));
  EXPECT(!tree_refusal(
              with(good, "nodes_featureids", Ints{std::numeric_limits<int64_t>::max(), 0, 0, 0, 0}))
              .empty());
  EXPECT(says(tree_refusal(with(good, "target_ids", Ints{0, 1, 0})), "target is 1 of 1"));
  EXPECT(says(tree_refusal(with(good, "target_nodeids", Ints{2, 3, 7})), "node 7"));
  EXPECT(says(tree_refusal(with(good, "n_targets", int64_t{0})), "0 targets"));
  EXPECT(says(tree_refusal(with(good, "base_values", Floats{1, 2})), "2 base_values"));
  EXPECT(says(tree_refusal(with(good, "aggregate_function", std::string("MEAN"))), "AVERAGE"));
}

TEST(TreesOfTheNewFormHaveSetsAndCycleChecks) {
  const auto tensor = [](DType dtype, auto values) {
    using T = typename decltype(values)::value_type;
    auto owned = std::make_shared<std::vector<T>>(values);
    auto out = std::make_shared<Tensor>();
    *out = {dtype,
            {static_cast<int64_t>(owned->size())},
            reinterpret_cast<std::byte*>(owned->data()),
            owned};
    return std::shared_ptr<const Tensor>(out);
  };
  // x[0] in {1, 3} ? leaf 0 : (x[0] < 2 ? leaf 1 : leaf 0)
  const ops::Attributes good{
      {"tree_roots", Ints{0}},
      {"nodes_featureids", Ints{0, 0}},
      {"nodes_modes", tensor(DType::kU8, std::vector<uint8_t>{6, 1})},
      {"nodes_splits", tensor(DType::kF64, std::vector<double>{0, 2})},
      {"nodes_truenodeids", Ints{0, 1}},
      {"nodes_falsenodeids", Ints{1, 0}},
      {"nodes_trueleafs", Ints{1, 1}},
      {"nodes_falseleafs", Ints{0, 1}},
      {"leaf_targetids", Ints{0, 1}},
      {"leaf_weights", tensor(DType::kF64, std::vector<double>{0.5, 4})},
      {"membership_values",
       tensor(DType::kF64, std::vector<double>{3, 1, std::numeric_limits<double>::quiet_NaN()})},
      {"n_targets", int64_t{2}}};
  TensorCase member("ai.onnx.ml.TreeEnsemble", good);
  member.in<double>({4, 1}, {1, 0, 2, 3});
  ASSERT_OK(member.run());
  EXPECT(member.values<double>() == (std::vector<double>{0.5, 0, 0, 4, 0.5, 0, 0.5, 0}));
  for (const auto& [key, value] :
       {std::pair{"nodes_falseleafs", Ints{0, 0}}, std::pair{"nodes_truenodeids", Ints{0, 2}},
        std::pair{"leaf_targetids", Ints{0, 2}}, std::pair{"tree_roots", Ints{-1}},
        std::pair{"tree_roots", Ints{}}}) {
    TensorCase bad("ai.onnx.ml.TreeEnsemble", with(good, key, value));
    bad.in<double>({1, 1}, {1});
    EXPECT(!bad.refusal().empty());
  }
  ops::Attributes cycle = with(good, "nodes_falseleafs", Ints{0, 0});
  cycle.set("nodes_falsenodeids", Ints{1, 1});
  TensorCase bad("ai.onnx.ml.TreeEnsemble", cycle);
  bad.in<double>({1, 1}, {1});
  EXPECT(says(bad.refusal(), "reached from itself"));
}

TEST(LinearModelsScoreAndDecide) {
  const ops::Attributes model{{"coefficients", Floats{1, 0, 0, 2}},
                              {"intercepts", Floats{0, -1}},
                              {"classlabels_ints", Ints{4, 9}},
                              {"post_transform", std::string("SOFTMAX")}};
  TensorCase two("ai.onnx.ml.LinearClassifier", model, 2);
  two.in<int32_t>({2, 2}, {3, 1, 0, 1});
  ASSERT_OK(two.run());
  EXPECT(two.values<int64_t>() == (std::vector<int64_t>{4, 9}));
  EXPECT_NEAR(two.values<float>(1)[0], 1 / (1 + std::exp(1.0 - 3)), 1e-6);
  TensorCase wrong("ai.onnx.ml.LinearClassifier", with(model, "coefficients", Floats{1, 2, 3}), 2);
  wrong.in<float>({1, 2}, {0, 0});
  EXPECT(says(wrong.refusal(), "3 coefficients for 2 targets"));
  TensorCase wide("ai.onnx.ml.LinearClassifier", model, 2);
  wide.in<float>({1, 3}, {0, 0, 0});
  EXPECT(says(wide.refusal(), "3 features, and the model 2"));
}

TEST(SupportVectorsVoteByPairs) {
  // k(x, v) = x v; the score of the pair is 2 x - 1 · x - 0.5.
  const ops::Attributes model{{"coefficients", Floats{2, -1}},
                              {"support_vectors", Floats{1, 1}},
                              {"vectors_per_class", Ints{1, 1}},
                              {"rho", Floats{-0.5f}},
                              {"classlabels_ints", Ints{7, 8}}};
  TensorCase svm("ai.onnx.ml.SVMClassifier", model, 2);
  svm.in<float>({2, 1}, {1, 0});
  ASSERT_OK(svm.run());
  EXPECT(svm.values<int64_t>() == (std::vector<int64_t>{7, 8}));
  EXPECT(svm.values<float>(1) == (std::vector<float>{-0.5f, 0.5f, 0.5f, -0.5f}));
  for (const auto& [key, value] :
       {std::pair<const char*, ops::Attribute>{"vectors_per_class", Ints{1, -1}},
        {"vectors_per_class", Ints{std::numeric_limits<int64_t>::max(), 1}},
        {"vectors_per_class", Ints{2}},
        {"support_vectors", Floats{1, 1, 1}},
        {"coefficients", Floats{2}},
        {"rho", Floats{}},
        {"prob_a", Floats{1}},
        {"kernel_params", Floats{1}},
        {"kernel_type", std::string("COSINE")}}) {
    TensorCase bad("ai.onnx.ml.SVMClassifier", with(model, key, value), 2);
    bad.in<float>({1, 1}, {1});
    EXPECT(!bad.refusal().empty());
  }
}

TEST(EncodersFindKeysByValue) {
  TensorCase labels("ai.onnx.ml.LabelEncoder", {{"keys_floats", Floats{kNaN, 0, 2, 2}},
                                                {"values_strings", Strings{"nan", "0", "a", "b"}},
                                                {"default_string", std::string("?")}});
  labels.in<float>({4}, {-kNaN, -0.0f, 2, 3});
  ASSERT_OK(labels.run());
  EXPECT(labels.values<std::string>() == (Strings{"nan", "0", "b", "?"}));
  TensorCase uneven("ai.onnx.ml.LabelEncoder",
                    {{"keys_int64s", Ints{1}}, {"values_int64s", Ints{1, 2}}});
  uneven.in<int64_t>({1}, {1});
  EXPECT(says(uneven.refusal(), "1 keys and 2 values"));
  TensorCase category("ai.onnx.ml.CategoryMapper",
                      {{"cats_int64s", Ints{5}}, {"cats_strings", Strings{"five"}}});
  category.in<int64_t>({2}, {5, 6});
  ASSERT_OK(category.run());
  EXPECT(category.values<std::string>() == (Strings{"five", "_Unused"}));
  TensorCase hot("ai.onnx.ml.OneHotEncoder", {{"cats_int64s", Ints{1, 2}}, {"zeros", int64_t{0}}});
  hot.in<double>({1}, {2.9});
  ASSERT_OK(hot.run());
  EXPECT(hot.values<float>() == (std::vector<float>{0, 1}));
  TensorCase unknown("ai.onnx.ml.OneHotEncoder",
                     {{"cats_int64s", Ints{1, 2}}, {"zeros", int64_t{0}}});
  unknown.in<double>({1}, {1e300});
  EXPECT(says(std::string(unknown.run().message()), "none of the categories"));
}

TEST(FeaturesAreScaledAndPicked) {
  TensorCase pick("ai.onnx.ml.ArrayFeatureExtractor");
  pick.in<std::string>({2, 2}, {"a", "b", "c", "d"}).in<int64_t>({1}, {1});
  ASSERT_OK(pick.run());
  EXPECT(pick.values<std::string>() == (Strings{"b", "d"}));
  TensorCase outside("ai.onnx.ml.ArrayFeatureExtractor");
  outside.in<float>({1, 2}, {1, 2}).in<int64_t>({1}, {2});
  EXPECT(says(outside.refusal(), "index 2 of 2"));
  TensorCase scaler("ai.onnx.ml.Scaler", {{"offset", Floats{1, 2}}, {"scale", Floats{10}}});
  scaler.in<int64_t>({2, 2}, {1, 2, 3, 4});
  ASSERT_OK(scaler.run());
  EXPECT(scaler.values<float>() == (std::vector<float>{0, 0, 20, 20}));
  TensorCase imputer("ai.onnx.ml.Imputer",
                     {{"imputed_value_floats", Floats{7, 8}}, {"replaced_value_float", kNaN}});
  imputer.in<float>({2, 2}, {1, kNaN, kNaN, 2});
  ASSERT_OK(imputer.run());
  EXPECT(imputer.values<float>() == (std::vector<float>{1, 8, 7, 2}));
  TensorCase norm("ai.onnx.ml.Normalizer", {{"norm", std::string("L1")}});
  norm.in<float>({2, 2}, {1, -3, 0, 0});
  ASSERT_OK(norm.run());
  EXPECT(norm.values<float>() == (std::vector<float>{0.25f, -0.75f, 0, 0}));
  TensorCase vectorizer("ai.onnx.ml.FeatureVectorizer", {{"inputdimensions", Ints{1, 2}}});
  vectorizer.in<float>({2, 2}, {1, 2, 3, 4}).in<int64_t>({2, 1}, {5, 6});
  ASSERT_OK(vectorizer.run());
  EXPECT(vectorizer.values<float>() == (std::vector<float>{1, 5, 0, 3, 6, 0}));
}

}  // namespace lmn::cpu
