// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/training.def: element by element, every output from the elements at its
// place, all read before any is written.
#include <cmath>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// The rate, the count of updates, and one element's operands: x, gradient, states; they are
// replaced by the new x and states.
template <typename T, int kGroups, typename Step>
void update(const Operands& io, const Worker& worker, int tensors, int tensor, int64_t count,
            const Step& step) {
  const T* in[kGroups];
  T* out[kGroups - 1];
  for (int g = 0; g < kGroups; ++g) in[g] = io.input<T>(2 + tensor + g * tensors);
  for (int g = 0; g + 1 < kGroups; ++g) out[g] = io.output<T>(tensor + g * tensors);
  const auto [begin, end] = ops::share_of(count, worker);
  for (int64_t i = begin; i < end; ++i) {
    T values[kGroups];
    for (int g = 0; g < kGroups; ++g) values[g] = in[g][i];
    step(values);
    if (out[0] != nullptr) out[0][i] = values[0];
    for (int g = 1; g + 1 < kGroups; ++g) {
      if (out[g] != nullptr) out[g][i] = values[g + 1];
    }
  }
}

// make_step(tag, rate, count) gives the function of one element's values.
template <int kGroups, typename MakeStep>
Status bind_update(const Binding& b, const MakeStep& make_step) {
  const int tensors = (b.node.inputs() - 2) / kGroups;
  struct Part {
    bool is_double;
    int64_t count;
  };
  std::vector<Part> parts;
  for (int i = 0; i < tensors; ++i) {
    parts.push_back({b.node.dtype(2 + i) == DType::kF64, b.node.shape(2 + i).elements()});
  }
  const bool double_rate = b.node.dtype(0) == DType::kF64;
  b.kernel.splits = true;
  b.kernel.in_place = 2;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const double rate =
        double_rate ? *io.input<double>(0) : static_cast<double>(*io.input<float>(0));
    const int64_t updates = *io.input<int64_t>(1);
    for (int i = 0; i < tensors; ++i) {
      const auto [is_double, count] = parts[static_cast<size_t>(i)];
      if (is_double) {
        update<double, kGroups>(io, worker, tensors, i, count,
                                make_step(TypeTag<double>{}, rate, updates));
      } else {
        update<float, kGroups>(io, worker, tensors, i, count,
                               make_step(TypeTag<float>{}, rate, updates));
      }
    }
  });
  return {};
}

}  // namespace

Status bind_Adagrad(const Binding& b) {
  const double norm = b.node.number("norm_coefficient", 0),
               decay = b.node.number("decay_factor", 0), epsilon = b.node.number("epsilon", 1e-6f);
  return bind_update<3>(b, [=](auto tag, double rate, int64_t updates) {
    using T = typename decltype(tag)::type;
    const T r = static_cast<T>(rate / (1 + static_cast<double>(updates) * decay));
    const T n = static_cast<T>(norm), e = static_cast<T>(epsilon);
    return [=](T* v) {
      const T gradient = n * v[0] + v[1];
      v[2] += gradient * gradient;
      v[0] -= r * gradient / (std::sqrt(v[2]) + e);
    };
  });
}

Status bind_Adam(const Binding& b) {
  const double norm = b.node.number("norm_coefficient", 0),
               norm_post = b.node.number("norm_coefficient_post", 0),
               epsilon = b.node.number("epsilon", 1e-6f), alpha = b.node.number("alpha", 0.9f),
               beta = b.node.number("beta", 0.999f);
  return bind_update<4>(b, [=](auto tag, double rate, int64_t updates) {
    using T = typename decltype(tag)::type;
    const auto count = static_cast<double>(updates);
    const T r = static_cast<T>(updates > 0 ? rate * std::sqrt(1 - std::pow(beta, count)) /
                                                 (1 - std::pow(alpha, count))
                                           : rate);
    const T n = static_cast<T>(norm), e = static_cast<T>(epsilon), a = static_cast<T>(alpha),
            b2 = static_cast<T>(beta), keep = static_cast<T>(1 - norm_post);
    return [=](T* v) {
      const T gradient = n * v[0] + v[1];
      v[2] = a * v[2] + (1 - a) * gradient;
      v[3] = b2 * v[3] + (1 - b2) * gradient * gradient;
      v[0] = keep * (v[0] - r * v[2] / (std::sqrt(v[3]) + e));
    };
  });
}

Status bind_Momentum(const Binding& b) {
  const double norm = b.node.number("norm_coefficient", 0), alpha = b.node.number("alpha", 0),
               beta = b.node.number("beta", 0);
  const bool nesterov = b.node.text("mode", "") == "nesterov";
  return bind_update<3>(b, [=](auto tag, double rate, int64_t updates) {
    using T = typename decltype(tag)::type;
    const T n = static_cast<T>(norm), a = static_cast<T>(alpha), r = static_cast<T>(rate),
            of_gradient = static_cast<T>(updates > 0 ? beta : 1);
    return [=](T* v) {
      const T gradient = n * v[0] + v[1];
      v[2] = a * v[2] + of_gradient * gradient;
      v[0] -= r * (nesterov ? gradient + a * v[2] : v[2]);
    };
  });
}

}  // namespace lmn::cpu
