// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/ml.def: linear models and support vectors. Rows are shared out; the order
// of every sum is that of the features, or of the support vectors.
#include <algorithm>
#include <cmath>

#include "cpu/tensor/ml.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::PostTransform;
using ops::Worker;

std::vector<float> list(const ops::TensorNode& node, const char* key) {
  const ops::Floats* found = node.numbers(key);
  return found == nullptr ? std::vector<float>{} : *found;
}

// scores[t] = sum of row[f] * weights[t][f], with `bias` to begin with.
struct Linear {
  int64_t targets, features;
  std::vector<float> weights;  // [features][targets]
  std::vector<float> bias;     // [targets]

  // Coefficients are [targets][features].
  Linear(int64_t targets_, int64_t features_, const std::vector<float>& coefficients,
         std::vector<float> bias_)
      : targets(targets_), features(features_), bias(std::move(bias_)) {
    weights.resize(coefficients.size());
    bias.resize(static_cast<size_t>(targets));
    for (int64_t t = 0; t < targets; ++t) {
      for (int64_t f = 0; f < features; ++f) {
        weights[static_cast<size_t>(f * targets + t)] =
            coefficients[static_cast<size_t>(t * features + f)];
      }
    }
  }
  template <typename T>
  void run(const T* row, double* scores) const {
    for (int64_t t = 0; t < targets; ++t) scores[t] = bias[static_cast<size_t>(t)];
    for (int64_t f = 0; f < features; ++f) {
      const auto x = static_cast<double>(row[f]);
      const float* w = weights.data() + f * targets;
      for (int64_t t = 0; t < targets; ++t) scores[t] += x * static_cast<double>(w[t]);
    }
  }
};

void write_row(float* out, const double* scores, int64_t count) {
  for (int64_t i = 0; out != nullptr && i < count; ++i) out[i] = static_cast<float>(scores[i]);
}

int64_t argmax(const double* values, int64_t count) {
  return std::max_element(values, values + count) - values;
}

}  // namespace

Status bind_LinearRegressor(const Binding& b) {
  ops::LinearModel model;
  PostTransform transform;
  LMN_RETURN_IF_ERROR(ops::read_linear(b.node, &model));
  LMN_RETURN_IF_ERROR(ops::read_post_transform(b.node, &transform));
  const Linear linear(model.targets, model.features, list(b.node, "coefficients"),
                      list(b.node, "intercepts"));
  const int64_t rows = b.outputs[0].shape[0];
  b.kernel.splits = true;
  b.kernel.scratch_bytes = static_cast<size_t>(model.targets) * sizeof(double);
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      auto* scores = reinterpret_cast<double*>(worker.scratch);
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        linear.run(io.input<T>(0) + row * linear.features, scores);
        transform_scores(transform, {scores, static_cast<size_t>(linear.targets)});
        write_row(io.output<float>(0) + row * linear.targets, scores, linear.targets);
      }
    });
    return {};
  });
}

// One target speaks, where it is positive, for the second of two classes.
Status bind_LinearClassifier(const Binding& b) {
  ops::LinearModel model;
  PostTransform transform;
  LMN_RETURN_IF_ERROR(ops::read_linear(b.node, &model));
  LMN_RETURN_IF_ERROR(ops::read_post_transform(b.node, &transform));
  const Linear linear(model.targets, model.features, list(b.node, "coefficients"),
                      list(b.node, "intercepts"));
  const Labels labels(b.node, "classlabels_ints", "classlabels_strings");
  const int64_t rows = b.outputs[0].shape[0], columns = labels.count();
  b.kernel.splits = true;
  b.kernel.scratch_bytes = static_cast<size_t>(columns) * sizeof(double);
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      auto* scores = reinterpret_cast<double*>(worker.scratch);
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        linear.run(io.input<T>(0) + row * linear.features, scores);
        if (linear.targets < columns) {
          labels.write(io, row, scores[0] > 0 ? 1 : 0);
          const auto [against, for_it] = transform_pair(transform, scores[0], true);
          scores[0] = against;
          scores[1] = for_it;
        } else if (columns == 1) {
          labels.write_flag(io, row, scores[0] > 0);
          transform_scores(transform, {scores, 1});
        } else {
          labels.write(io, row, argmax(scores, columns));
          transform_scores(transform, {scores, static_cast<size_t>(columns)});
        }
        if (float* out = io.output<float>(1)) write_row(out + row * columns, scores, columns);
      }
    });
    return {};
  });
}

namespace {

// kernel(row, support vector) for every support vector.
struct Kernels {
  ops::SvmKernel kind = ops::SvmKernel::kLinear;
  double gamma = 0, coef0 = 0, degree = 0;
  int64_t vectors, features;
  std::vector<float> values;  // [vectors][features]

  explicit Kernels(const ops::TensorNode& node, const ops::SvmModel& model)
      : vectors(model.vectors), features(model.features), values(list(node, "support_vectors")) {
    const std::vector<float> parameters = list(node, "kernel_params");
    if (parameters.size() == 3) {
      gamma = parameters[0];
      coef0 = parameters[1];
      degree = parameters[2];
    }
  }
  template <typename T>
  void run(const T* row, double* out) const {
    for (int64_t v = 0; v < vectors; ++v) {
      const float* vector = values.data() + v * features;
      double sum = 0;
      for (int64_t f = 0; f < features; ++f) {
        const auto x = static_cast<double>(row[f]), y = static_cast<double>(vector[f]);
        sum += kind == ops::SvmKernel::kRbf ? (x - y) * (x - y) : x * y;
      }
      switch (kind) {
        case ops::SvmKernel::kLinear:
          break;
        case ops::SvmKernel::kPoly:
          sum = std::pow(gamma * sum + coef0, degree);
          break;
        case ops::SvmKernel::kRbf:
          sum = std::exp(-gamma * sum);
          break;
        case ops::SvmKernel::kSigmoid:
          sum = std::tanh(gamma * sum + coef0);
          break;
      }
      out[v] = sum;
    }
  }
};

// Probabilities of classes from those of pairs, r[i][j] of class i against j: the fixed point of T.
// Wu, C. Lin and R. Weng, "Probability estimates for multi-class classification by pairwise
// coupling" (2004), algorithm 2. `q` is room for classes * (classes + 1) numbers.
void couple(int64_t classes, const double* r, double* p, double* q) {
  double* qp = q + classes * classes;
  for (int64_t i = 0; i < classes; ++i) {
    p[i] = 1 / static_cast<double>(classes);
    q[i * classes + i] = 0;
    for (int64_t j = 0; j < classes; ++j) {
      if (j == i) continue;
      q[i * classes + i] += r[j * classes + i] * r[j * classes + i];
      q[i * classes + j] = -r[j * classes + i] * r[i * classes + j];
    }
  }
  const double enough = 0.005 / static_cast<double>(classes);
  for (int step = 0; step < 100; ++step) {
    double sum = 0, error = 0;
    for (int64_t i = 0; i < classes; ++i) {
      qp[i] = 0;
      for (int64_t j = 0; j < classes; ++j) qp[i] += q[i * classes + j] * p[j];
      sum += p[i] * qp[i];
    }
    for (int64_t i = 0; i < classes; ++i) error = std::max(error, std::abs(qp[i] - sum));
    if (error < enough) return;
    for (int64_t i = 0; i < classes; ++i) {
      const double own = q[i * classes + i], change = (sum - qp[i]) / own, scale = 1 + change;
      p[i] += change;
      sum = (sum + change * (change * own + 2 * qp[i])) / scale / scale;
      for (int64_t j = 0; j < classes; ++j) {
        qp[j] = (qp[j] + change * q[i * classes + j]) / scale;
        p[j] /= scale;
      }
    }
  }
}

// A classifier of pairs of classes: pair (i, j) sums the kernels of both classes' support vectors.
struct PairSvm {
  Kernels kernels;
  std::vector<float> coefficients;  // [classes - 1][vectors]
  std::vector<float> rho, prob_a, prob_b;
  std::vector<int64_t> begin;  // of the support vectors of a class, and the end
  int64_t classes, pairs;

  PairSvm(const ops::TensorNode& node, const ops::SvmModel& model)
      : kernels(node, model),
        coefficients(list(node, "coefficients")),
        rho(list(node, "rho")),
        prob_a(list(node, "prob_a")),
        prob_b(list(node, "prob_b")),
        begin{0},
        classes(model.classes),
        pairs(classes * (classes - 1) / 2) {
    for (const int64_t count : *node.integers("vectors_per_class")) {
      begin.push_back(begin.back() + count);
    }
  }
  // Numbers of scratch: kernels, scores of pairs, votes, probabilities, and room for couple().
  int64_t scratch() const {
    return kernels.vectors + pairs + 2 * classes +
           (prob_a.empty() ? 0 : classes * (2 * classes + 1));
  }
  double sum(const double* kernel, int64_t set, int64_t of) const {
    double total = 0;
    for (int64_t v = begin[static_cast<size_t>(of)]; v < begin[static_cast<size_t>(of + 1)]; ++v) {
      total += static_cast<double>(coefficients[static_cast<size_t>(set * kernels.vectors + v)]) *
               kernel[v];
    }
    return total;
  }
  // Scores of the pairs, votes of the classes and, where there are any, probabilities.
  template <typename T>
  void run(const T* row, double* kernel) const {
    double *scores = kernel + kernels.vectors, *votes = scores + pairs;
    double *chances = votes + classes, *r = chances + classes;
    kernels.run(row, kernel);
    std::fill_n(votes, classes, 0.0);
    int64_t pair = 0;
    for (int64_t i = 0; i < classes; ++i) {
      for (int64_t j = i + 1; j < classes; ++j, ++pair) {
        const auto at = static_cast<size_t>(pair);
        scores[pair] = static_cast<double>(rho[at]) + sum(kernel, j - 1, i) + sum(kernel, i, j);
        votes[scores[pair] > 0 ? i : j] += 1;
        if (prob_a.empty()) continue;
        const double of_i = 1 / (1 + std::exp(scores[pair] * static_cast<double>(prob_a[at]) +
                                              static_cast<double>(prob_b[at])));
        r[i * classes + j] = std::clamp(of_i, 1e-7, 1 - 1e-7);
        r[j * classes + i] = 1 - r[i * classes + j];
      }
    }
    if (!prob_a.empty()) couple(classes, r, chances, r + classes * classes);
  }
};

}  // namespace

Status bind_SVMRegressor(const Binding& b) {
  ops::SvmModel model;
  PostTransform transform;
  LMN_RETURN_IF_ERROR(ops::read_svm(b.node, &model));
  LMN_RETURN_IF_ERROR(ops::read_post_transform(b.node, &transform));
  Kernels kernels(b.node, model);
  std::vector<float> coefficients = list(b.node, "coefficients");
  if (model.vectors == 0) {  // linear: one vector, of the coefficients, with weight 1
    kernels.vectors = 1;
    kernels.values = coefficients;
    coefficients = {1.0f};
  } else {
    LMN_RETURN_IF_ERROR(ops::read_svm_kernel(b.node, &kernels.kind));
  }
  const double rho = static_cast<double>(list(b.node, "rho")[0]);
  const bool one_class = b.node.integer("one_class", 0) != 0;
  const int64_t rows = b.outputs[0].shape[0];
  b.kernel.splits = true;
  b.kernel.scratch_bytes = static_cast<size_t>(kernels.vectors) * sizeof(double);
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      auto* kernel = reinterpret_cast<double*>(worker.scratch);
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        kernels.run(io.input<T>(0) + row * kernels.features, kernel);
        double sum = 0;
        for (int64_t v = 0; v < kernels.vectors; ++v) {
          sum += static_cast<double>(coefficients[static_cast<size_t>(v)]) * kernel[v];
        }
        sum += rho;
        if (one_class) sum = sum > 0 ? 1 : -1;
        io.output<float>(0)[row] = static_cast<float>(sum);
      }
    });
    return {};
  });
}

// The label is the class with most votes, or, of a linear model, with the highest score.
Status bind_SVMClassifier(const Binding& b) {
  ops::SvmModel model;
  PostTransform transform;
  LMN_RETURN_IF_ERROR(ops::read_svm(b.node, &model));
  LMN_RETURN_IF_ERROR(ops::read_post_transform(b.node, &transform));
  const Labels labels(b.node, "classlabels_ints", "classlabels_strings");
  const int64_t rows = b.outputs[0].shape[0], columns = model.scores, classes = model.classes;
  b.kernel.splits = true;
  if (model.vectors == 0) {
    const Linear linear(classes, model.features, list(b.node, "coefficients"),
                        std::vector<float>(static_cast<size_t>(classes), list(b.node, "rho")[0]));
    b.kernel.scratch_bytes = static_cast<size_t>(classes) * sizeof(double);
    return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      b.kernel.set([=](const Operands& io, const Worker& worker) {
        auto* scores = reinterpret_cast<double*>(worker.scratch);
        const auto [begin, end] = ops::share_of(rows, worker);
        for (int64_t row = begin; row < end; ++row) {
          linear.run(io.input<T>(0) + row * linear.features, scores);
          labels.write(io, row, argmax(scores, classes));
          transform_scores(transform, {scores, static_cast<size_t>(classes)});
          if (float* out = io.output<float>(1)) write_row(out + row * columns, scores, columns);
        }
      });
      return {};
    });
  }
  PairSvm svm(b.node, model);
  LMN_RETURN_IF_ERROR(ops::read_svm_kernel(b.node, &svm.kernels.kind));
  b.kernel.scratch_bytes = static_cast<size_t>(svm.scratch()) * sizeof(double);
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      auto* scratch = reinterpret_cast<double*>(worker.scratch);
      double *scores = scratch + svm.kernels.vectors, *votes = scores + svm.pairs,
             *chances = votes + classes;
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        svm.run(io.input<T>(0) + row * svm.kernels.features, scratch);
        labels.write(io, row, argmax(votes, classes));
        double* shown = svm.prob_a.empty() ? scores : chances;
        if (svm.prob_a.empty() && classes == 2) {
          const auto [against, for_it] =
              transform_pair(transform, scores[0], transform != PostTransform::kNone);
          shown = chances;
          shown[0] = against;
          shown[1] = for_it;
        } else {
          transform_scores(transform, {shown, static_cast<size_t>(columns)});
        }
        if (float* out = io.output<float>(1)) write_row(out + row * columns, shown, columns);
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
