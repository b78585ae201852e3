// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/ml.def: features, one at a time or by row.
#include "cpu/tensor/ml.h"

#include <algorithm>
#include <cmath>

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// The numbers of an attribute for every feature: the one that it has is that of all.
std::vector<float> per_feature(const ops::TensorNode& node, const char* key, int64_t features,
                               float otherwise) {
  const ops::Floats* given = node.numbers(key);
  std::vector<float> out(static_cast<size_t>(features), otherwise);
  for (size_t i = 0; given != nullptr && !given->empty() && i < out.size(); ++i) {
    out[i] = (*given)[given->size() == 1 ? 0 : i];
  }
  return out;
}

template <typename T>
void set_extractor(const Binding& b) {
  const int64_t features = b.node.shape(0).last(), count = b.outputs[0].shape.last(),
                rows = count == 0 ? 0 : b.outputs[0].shape.elements() / count;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const int64_t* indices = io.input<int64_t>(1);
    for (int64_t i = 0; i < count; ++i) {
      if (indices[i] < 0 || indices[i] >= features) {
        return io.fail("ArrayFeatureExtractor: an index is out of range");
      }
    }
    const auto [begin, end] = ops::share_of(rows, worker);
    for (int64_t row = begin; row < end; ++row) {
      const T* from = io.input<T>(0) + row * features;
      T* to = io.output<T>(0) + row * count;
      for (int64_t i = 0; i < count; ++i) to[i] = from[indices[i]];
    }
  });
}

}  // namespace

Status bind_ArrayFeatureExtractor(const Binding& b) {
  b.kernel.splits = true;
  if (b.node.dtype(0) == DType::kString) {
    set_extractor<std::string>(b);
    return {};
  }
  return with_size(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    set_extractor<typename decltype(tag)::type>(b);
    return {};
  });
}

Status bind_Binarizer(const Binding& b) {
  const double threshold = b.node.number("threshold", 0);
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      for (int64_t i = begin; i < end; ++i) {
        io.output<T>(0)[i] = static_cast<double>(io.input<T>(0)[i]) > threshold ? T(1) : T(0);
      }
    });
    return {};
  });
}

Status bind_FeatureVectorizer(const Binding& b) {
  struct Part {
    DType dtype;
    int64_t given, wanted;
  };
  const ops::Ints* sizes = b.node.integers("inputdimensions");
  std::vector<Part> parts;
  for (int i = 0; i < b.node.inputs(); ++i) {
    const int64_t given = b.node.shape(i).last();
    parts.push_back(
        {b.node.dtype(i), given, sizes == nullptr ? given : (*sizes)[static_cast<size_t>(i)]});
  }
  const int64_t rows = b.outputs[0].shape[0], columns = b.outputs[0].shape[1];
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(rows, worker);
    for (int64_t row = begin; row < end; ++row) {
      float* to = io.output<float>(0) + row * columns;
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto [dtype, given, wanted] = parts[i];
        const int64_t count = std::min(given, wanted), first = row * given;
        const auto convert = [&](const auto* from) {
          std::transform(from + first, from + first + count, to,
                         [](auto x) { return static_cast<float>(x); });
        };
        const int operand = static_cast<int>(i);
        if (dtype == DType::kF32) {
          convert(io.input<float>(operand));
        } else if (dtype == DType::kF64) {
          convert(io.input<double>(operand));
        } else if (dtype == DType::kI32) {
          convert(io.input<int32_t>(operand));
        } else {
          convert(io.input<int64_t>(operand));
        }
        std::fill_n(to + count, wanted - count, 0.0f);
        to += wanted;
      }
    }
  });
  return {};
}

Status bind_Imputer(const Binding& b) {
  const int64_t count = b.outputs[0].shape.elements(), features = b.outputs[0].shape.last();
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    std::vector<T> values;
    T replaced{};
    if constexpr (std::is_integral_v<T>) {
      for (const int64_t value : *b.node.integers("imputed_value_int64s")) {
        values.push_back(static_cast<T>(value));
      }
      replaced = static_cast<T>(b.node.integer("replaced_value_int64", 0));
    } else {
      for (const float value : *b.node.numbers("imputed_value_floats")) values.push_back(value);
      replaced = b.node.number("replaced_value_float", 0);
    }
    values.resize(static_cast<size_t>(std::max<int64_t>(features, 1)), values[0]);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const bool replaces_nan = replaced != replaced;
      const auto [begin, end] = ops::share_of(count, worker);
      for (int64_t i = begin; i < end; ++i) {
        const T x = io.input<T>(0)[i];
        const bool replace = replaces_nan ? x != x : x == replaced;
        io.output<T>(0)[i] = replace ? values[static_cast<size_t>(i % features)] : x;
      }
    });
    return {};
  });
}

// MAX divides by the largest value, not by the largest magnitude.
Status bind_Normalizer(const Binding& b) {
  const int64_t features = b.outputs[0].shape.last(),
                rows = features == 0 ? 0 : b.outputs[0].shape.elements() / features;
  const std::string_view text = b.node.text("norm", "MAX");
  enum class Norm { kMax, kL1, kL2 };
  const Norm norm = text == "MAX" ? Norm::kMax : text == "L1" ? Norm::kL1 : Norm::kL2;
  b.kernel.splits = true;
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        const T* x = io.input<T>(0) + row * features;
        double divisor = norm == Norm::kMax ? static_cast<double>(x[0]) : 0;
        for (int64_t i = 0; i < features; ++i) {
          const auto value = static_cast<double>(x[i]);
          divisor = norm == Norm::kMax  ? std::max(divisor, value)
                    : norm == Norm::kL1 ? divisor + std::abs(value)
                                        : divisor + value * value;
        }
        if (norm == Norm::kL2) divisor = std::sqrt(divisor);
        if (divisor == 0) divisor = 1;
        for (int64_t i = 0; i < features; ++i) {
          io.output<float>(0)[row * features + i] =
              static_cast<float>(static_cast<double>(x[i]) / divisor);
        }
      }
    });
    return {};
  });
}

Status bind_Scaler(const Binding& b) {
  const int64_t count = b.outputs[0].shape.elements(),
                features = std::max<int64_t>(b.outputs[0].shape.last(), 1);
  const std::vector<float> offset = per_feature(b.node, "offset", features, 0),
                           scale = per_feature(b.node, "scale", features, 1);
  b.kernel.splits = true;
  return with_ml_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    // Differences of float32 are taken in float32, as those of others in double are exact enough.
    using Wide = std::conditional_t<std::is_same_v<T, float>, float, double>;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      int64_t feature = begin % features;
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(feature);
        const Wide difference =
            static_cast<Wide>(io.input<T>(0)[i]) - static_cast<Wide>(offset[at]);
        io.output<float>(0)[i] = static_cast<float>(difference * static_cast<Wide>(scale[at]));
        if (++feature == features) feature = 0;
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
