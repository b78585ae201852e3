// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of tensor_ops/ml.def share: types of inputs, labels, and what becomes of scores.
// Scores are computed in double. Where the specification is vague they become what ONNX Runtime
// 1.32 makes of them.
#pragma once

#include <span>

#include "cpu/tensor/dispatch.h"
#include "ops/infer/ml.h"

namespace lmn::cpu {

// f(TypeTag<T>) for f32, f64, i32, i64.
template <typename F>
Status with_ml_number(const ops::TensorNode& node, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kF64:
      return f(TypeTag<double>{});
    case DType::kI32:
      return f(TypeTag<int32_t>{});
    case DType::kI64:
      return f(TypeTag<int64_t>{});
    default:
      return node.unsupported("no kernel for %s", std::string(info(dtype).name).c_str());
  }
}

// Scores after the transform, as many as there are; LOGISTIC and both SOFTMAX leave a single score
// as it is.
void transform_scores(ops::PostTransform transform, std::span<double> scores);

// The two scores that one becomes: of the class that it speaks against, and of the other.
struct ScorePair {
  double against, for_it;
};
// `complement`: the scores add up to 1, else they are opposite.
ScorePair transform_pair(ops::PostTransform transform, double score, bool complement);

// Labels of a classifier: writes that of a class into a row of the output.
class Labels {
 public:
  // From the attributes of these names, of which one is given.
  Labels(const ops::TensorNode& node, std::string_view integers, std::string_view strings);
  int64_t count() const {
    return static_cast<int64_t>(strings_.empty() ? integers_.size() : strings_.size());
  }
  void write(const ops::Operands& io, int64_t row, int64_t label) const;
  // 1 or 0, which is what a classifier of one class says.
  void write_flag(const ops::Operands& io, int64_t row, bool positive) const;

 private:
  ops::Ints integers_;
  ops::Strings strings_;
};

}  // namespace lmn::cpu
