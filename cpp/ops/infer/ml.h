// SPDX-License-Identifier: Apache-2.0
//
// What inference and kernels of tensor_ops/ml.def share.
#pragma once

#include "ops/tensor_op.h"
#include "ops/tree_ensemble.h"

namespace lmn::ops {

// Of an attribute that is a list; 0 where it is absent.
template <typename T>
int64_t length_of(const T* list) {
  return list == nullptr ? 0 : static_cast<int64_t>(list->size());
}

// Operand i is f32, f64, i32 or i64.
Status expect_ml_number(const TensorNode& node, int i);
// Input 0, whose rank is known, is [features], one row, or [rows, features].
Status rows_of(const TensorNode& node, int64_t* rows, int64_t* features);

// A linear model: every target has as many coefficients as there are features.
struct LinearModel {
  int64_t targets, features;
};
Status read_linear(const TensorNode& node, LinearModel* out);

// What a support vector machine's attributes say of its size.
struct SvmModel {
  int64_t classes = 1;  // of a classifier
  int64_t vectors = 0;  // support vectors; 0: a linear model, whose coefficients are weights
  int64_t features = 0;
  int64_t scores = 1;  // columns of a classifier's scores
  bool has_probabilities = false;
};
Status read_svm(const TensorNode& node, SvmModel* out);

enum class SvmKernel : uint8_t { kLinear, kPoly, kRbf, kSigmoid };
Status read_svm_kernel(const TensorNode& node, SvmKernel* out);

}  // namespace lmn::ops
