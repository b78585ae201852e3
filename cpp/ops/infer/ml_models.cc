// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/ml.def: trees, linear models, support vectors.
#include <algorithm>
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/ml.h"

namespace lmn::ops {
namespace {

constexpr int64_t kMaxClasses = 65536;

// Rows of input 0, whose rank is known, and a model of `features` features.
Status rows_for(const TensorNode& node, int64_t features, int64_t* rows) {
  int64_t given = 0;
  LMN_RETURN_IF_ERROR(rows_of(node, rows, &given));
  if (given < 0 || given == features) return {};
  return node.fail("the input has %" PRId64 " features, and the model %" PRId64, given, features);
}

// Labels and scores of a classifier.
Status infer_classes(const TensorNode& node, TensorTypes outputs, bool are_strings, int64_t rows,
                     int64_t scores) {
  outputs[0].dtype = are_strings ? DType::kString : DType::kI64;
  if (outputs.size() > 1) outputs[1].dtype = DType::kF32;
  if (!node.ranked()) return {};
  outputs[0].shape = Shape{rows};
  if (outputs.size() > 1) outputs[1].shape = Shape{rows, scores};
  return check_elements(node, Shape{rows, scores});
}

Status infer_regression(const TensorNode& node, TensorTypes outputs, int64_t features,
                        int64_t targets) {
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  int64_t rows;
  LMN_RETURN_IF_ERROR(rows_for(node, features, &rows));
  outputs[0].shape = Shape{rows, targets};
  return check_elements(node, outputs[0].shape);
}

// Rows of input 0 that have the features that a tree looks at.
Status tree_rows(const TensorNode& node, const TreeEnsemble& trees, int64_t* rows) {
  *rows = kUnknownSize;
  if (!node.ranked()) return {};
  int64_t given = 0;
  LMN_RETURN_IF_ERROR(rows_of(node, rows, &given));
  if (given < 0 || given >= trees.features) return {};
  return node.fail("the input has %" PRId64 " features, and the trees look at %" PRId64, given,
                   trees.features);
}

}  // namespace

Status read_linear(const TensorNode& node, LinearModel* out) {
  const int64_t coefficients = length_of(node.numbers("coefficients")),
                intercepts = length_of(node.numbers("intercepts"));
  if (node.op() == TensorOp::kLinearRegressor) {
    out->targets = node.integer("targets", 1);
  } else {
    int64_t labels;
    bool are_strings;
    LMN_RETURN_IF_ERROR(
        read_labels(node, "classlabels_ints", "classlabels_strings", &labels, &are_strings));
    // One target decides between two classes.
    out->targets = intercepts == 1 && labels == 2 ? 1 : labels;
  }
  if (out->targets < 1 || out->targets > kMaxElements || coefficients == 0 ||
      coefficients % out->targets != 0) {
    return node.fail("%" PRId64 " coefficients for %" PRId64 " targets", coefficients,
                     out->targets);
  }
  if (intercepts != 0 && intercepts != out->targets) {
    return node.fail("%" PRId64 " intercepts for %" PRId64 " targets", intercepts, out->targets);
  }
  out->features = coefficients / out->targets;
  return {};
}

Status read_svm_kernel(const TensorNode& node, SvmKernel* out) {
  static constexpr std::string_view kNames[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  const std::string_view text = node.text("kernel_type", "LINEAR");
  const auto* kernel = std::find(std::begin(kNames), std::end(kNames), text);
  if (kernel == std::end(kNames)) return node.fail("kernel_type is LINEAR, POLY, RBF or SIGMOID");
  *out = static_cast<SvmKernel>(kernel - std::begin(kNames));
  const int64_t parameters = length_of(node.numbers("kernel_params"));
  if (parameters == 0 || parameters == 3) return {};
  return node.fail("kernel_params has %" PRId64 " entries, not 3", parameters);
}

Status read_svm(const TensorNode& node, SvmModel* out) {
  *out = {};
  const int64_t coefficients = length_of(node.numbers("coefficients")),
                values = length_of(node.numbers("support_vectors")),
                rho = length_of(node.numbers("rho")), prob_a = length_of(node.numbers("prob_a")),
                prob_b = length_of(node.numbers("prob_b"));
  SvmKernel kernel;
  LMN_RETURN_IF_ERROR(read_svm_kernel(node, &kernel));
  if (rho == 0 || coefficients == 0) return node.fail("coefficients and rho are to be given");
  if (node.op() == TensorOp::kSVMRegressor) {
    out->vectors = node.integer("n_supports", 0);
    if (out->vectors < 0) return node.fail("n_supports is %" PRId64, out->vectors);
  } else {
    bool are_strings;
    LMN_RETURN_IF_ERROR(
        read_labels(node, "classlabels_ints", "classlabels_strings", &out->classes, &are_strings));
    if (out->classes > kMaxClasses) return node.unsupported("%" PRId64 " classes", out->classes);
    const Ints* counts = node.integers("vectors_per_class");
    for (size_t i = 0; counts != nullptr && i < counts->size(); ++i) {
      if ((*counts)[i] < 0 || (*counts)[i] > values) {
        return node.fail("a class has %" PRId64 " support vectors", (*counts)[i]);
      }
      out->vectors += (*counts)[i];
      if (out->vectors > values) return node.fail("there are fewer support vectors than counted");
    }
    if (out->vectors > 0 && length_of(counts) != out->classes) {
      return node.fail("vectors_per_class has %" PRId64 " entries for %" PRId64 " classes",
                       length_of(counts), out->classes);
    }
  }
  if (out->vectors == 0) {
    if (coefficients % out->classes != 0) {
      return node.fail("%" PRId64 " coefficients for %" PRId64 " classes", coefficients,
                       out->classes);
    }
    out->features = coefficients / out->classes;
    out->scores = out->classes;
    return {};
  }
  const bool is_regressor = node.op() == TensorOp::kSVMRegressor;
  const int64_t pairs = is_regressor ? 1 : out->classes * (out->classes - 1) / 2,
                sets = is_regressor ? 1 : out->classes - 1;
  if (values % out->vectors != 0 || values == 0) {
    return node.fail("%" PRId64 " values of %" PRId64 " support vectors", values, out->vectors);
  }
  out->features = values / out->vectors;
  if (sets == 0 || coefficients / out->vectors != sets || coefficients % out->vectors != 0) {
    return node.fail("%" PRId64 " coefficients of %" PRId64 " support vectors and %" PRId64
                     " classes",
                     coefficients, out->vectors, out->classes);
  }
  if (rho < pairs) return node.fail("rho has %" PRId64 " entries, not %" PRId64, rho, pairs);
  if (prob_a != prob_b || (prob_a != 0 && prob_a < pairs)) {
    return node.fail("prob_a and prob_b have %" PRId64 " and %" PRId64 " entries, not %" PRId64,
                     prob_a, prob_b, pairs);
  }
  out->has_probabilities = prob_a != 0;
  out->scores = out->has_probabilities || out->classes == 2 ? out->classes : pairs;
  return {};
}

Status infer_LinearClassifier(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  LinearModel model;
  LMN_RETURN_IF_ERROR(read_linear(node, &model));
  PostTransform transform;
  LMN_RETURN_IF_ERROR(read_post_transform(node, &transform));
  int64_t labels, rows = kUnknownSize;
  bool are_strings;
  LMN_RETURN_IF_ERROR(
      read_labels(node, "classlabels_ints", "classlabels_strings", &labels, &are_strings));
  if (node.ranked()) LMN_RETURN_IF_ERROR(rows_for(node, model.features, &rows));
  return infer_classes(node, outputs, are_strings, rows, labels);
}

Status infer_LinearRegressor(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  LinearModel model;
  LMN_RETURN_IF_ERROR(read_linear(node, &model));
  PostTransform transform;
  LMN_RETURN_IF_ERROR(read_post_transform(node, &transform));
  return infer_regression(node, outputs, model.features, model.targets);
}

Status infer_SVMClassifier(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  SvmModel model;
  LMN_RETURN_IF_ERROR(read_svm(node, &model));
  PostTransform transform;
  LMN_RETURN_IF_ERROR(read_post_transform(node, &transform));
  int64_t rows = kUnknownSize;
  if (node.ranked()) LMN_RETURN_IF_ERROR(rows_for(node, model.features, &rows));
  return infer_classes(node, outputs, length_of(node.texts("classlabels_strings")) != 0, rows,
                       model.scores);
}

Status infer_SVMRegressor(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  SvmModel model;
  LMN_RETURN_IF_ERROR(read_svm(node, &model));
  PostTransform transform;
  LMN_RETURN_IF_ERROR(read_post_transform(node, &transform));
  return infer_regression(node, outputs, model.features, 1);
}

Status infer_TreeEnsemble(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kF64, DType::kF16}));
  TreeEnsemble trees;
  LMN_RETURN_IF_ERROR(read_tree_ensemble(node, &trees));
  outputs[0].dtype = node.dtype(0);
  int64_t rows;
  LMN_RETURN_IF_ERROR(tree_rows(node, trees, &rows));
  outputs[0].shape = Shape{rows, trees.targets};
  return check_elements(node, outputs[0].shape);
}

Status infer_TreeEnsembleRegressor(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  TreeEnsemble trees;
  LMN_RETURN_IF_ERROR(read_tree_ensemble(node, &trees));
  outputs[0].dtype = DType::kF32;
  int64_t rows;
  LMN_RETURN_IF_ERROR(tree_rows(node, trees, &rows));
  outputs[0].shape = Shape{rows, trees.targets};
  return check_elements(node, outputs[0].shape);
}

Status infer_TreeEnsembleClassifier(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  TreeEnsemble trees;
  LMN_RETURN_IF_ERROR(read_tree_ensemble(node, &trees));
  int64_t rows;
  LMN_RETURN_IF_ERROR(tree_rows(node, trees, &rows));
  return infer_classes(node, outputs, length_of(node.texts("classlabels_strings")) != 0, rows,
                       trees.targets);
}

}  // namespace lmn::ops
