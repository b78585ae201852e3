// SPDX-License-Identifier: Apache-2.0
//
// Kernels of SimplifiedLayerNormalization and of com.microsoft's fused layer normalisations. Rows
// are shared out.
#include <cmath>

#include "cpu/tensor/attend.h"
#include "cpu/tensor/product.h"
#include "cpu/tensor/vector_loop.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta; simplified: by the root mean square.
// x is changed.
template <typename T>
void normalize(Sum<T>* x, int64_t count, const T* gamma, const T* beta, float epsilon,
               bool simplified, T* y, float* mean_out, float* inverse_out) {
  using S = Sum<T>;
  const S size = static_cast<S>(count);
  S mean{};
  if (!simplified) {
    mean = sum_of(x, count) / size;
    for (int64_t i = 0; i < count; ++i) x[i] -= mean;
  }
  S lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t l = 0; l < 8; ++l) lanes[l] += x[i + l] * x[i + l];
  }
  for (int64_t l = 0; i < count; ++i, ++l) lanes[l] += x[i] * x[i];
  const S inverse = S(1) / std::sqrt(sum_of(lanes, 8) / size + static_cast<S>(epsilon));
  for (int64_t k = 0; k < count; ++k) {
    S value = x[k] * inverse * static_cast<S>(gamma[k]);
    if (beta != nullptr) value += static_cast<S>(beta[k]);
    y[k] = static_cast<T>(value);
  }
  if (mean_out != nullptr) *mean_out = static_cast<float>(mean);
  if (inverse_out != nullptr) *inverse_out = static_cast<float>(inverse);
}

// A layer norm of float32 by the instruction set's kernel, where nobody asks for more: sums lie
// where their norms will.
void bind_float_skip(const Binding& b, int64_t rows, int64_t size, int64_t skip_rows,
                     float epsilon) {
  const bool has_beta = b.node.has(3);
  b.kernel.splits = true;
  b.kernel.in_place = 0;
  b.kernel.cost = static_cast<double>(rows * size) / 3;
  b.kernel.set([=, layer_norm = b.isa.floats.layer_norm](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(rows, worker);
    for (int64_t row = begin; row < end; ++row) {
      const float* const x = io.input<float>(0) + row * size;
      const float* const skip = io.input<float>(1) + row % skip_rows * size;
      float* const y = io.output<float>(0) + row * size;
      LMN_VECTOR_LOOP
      for (int64_t i = 0; i < size; ++i) y[i] = x[i] + skip[i];
      layer_norm(
          {y, io.input<float>(2), has_beta ? io.input<float>(3) : nullptr, epsilon, y, 1, size});
    }
  });
}

Status bind_skip(const Binding& b, bool simplified) {
  const Shape x = b.node.shape(0), skip = b.node.shape(1);
  const int64_t size = x.last(), rows = x.elements() / std::max<int64_t>(size, 1);
  const int64_t skip_rows = std::max<int64_t>(1, skip.elements() / std::max<int64_t>(size, 1));
  const float epsilon = b.node.number("epsilon", 1e-12f);
  if (b.node.dtype(0) == DType::kF32 && !simplified && !b.node.has(4) && b.node.outputs() == 1 &&
      size > 0) {
    bind_float_skip(b, rows, size, skip_rows, epsilon);
    return {};
  }
  const int beta = simplified ? -1 : 3, bias = simplified ? 3 : 4;
  const bool has_beta = !simplified && b.node.has(3), has_bias = b.node.has(bias);
  const int outputs = b.node.outputs();
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = sizeof(S) * static_cast<size_t>(size);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      S* const sums = reinterpret_cast<S*>(worker.scratch);
      const auto output = [&](int i) { return i < outputs ? io.output<T>(i) : nullptr; };
      const auto statistic = [&](int i) { return i < outputs ? io.output<float>(i) : nullptr; };
      T *const y = output(0), *const total = output(3);
      float *const mean = statistic(1), *const inverse = statistic(2);
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        const T* const a = io.input<T>(0) + row * size;
        const T* const s = io.input<T>(1) + row % skip_rows * size;
        for (int64_t i = 0; i < size; ++i) sums[i] = static_cast<S>(a[i]) + static_cast<S>(s[i]);
        if (has_bias) {
          const T* const more = io.input<T>(bias);
          for (int64_t i = 0; i < size; ++i) sums[i] += static_cast<S>(more[i]);
        }
        if (total != nullptr) {
          for (int64_t i = 0; i < size; ++i) total[row * size + i] = static_cast<T>(sums[i]);
        }
        if (y == nullptr) continue;
        normalize(sums, size, io.input<T>(2), has_beta ? io.input<T>(beta) : nullptr, epsilon,
                  simplified, y + row * size, mean == nullptr ? nullptr : mean + row,
                  inverse == nullptr ? nullptr : inverse + row);
      }
    });
    return {};
  });
}

}  // namespace

Status bind_SkipLayerNormalization(const Binding& b) { return bind_skip(b, false); }
Status bind_SkipSimplifiedLayerNormalization(const Binding& b) { return bind_skip(b, true); }

Status bind_SimplifiedLayerNormalization(const Binding& b) {
  const int64_t size = b.node.shape(1).elements();
  const int64_t rows = b.node.shape(0).elements() / std::max<int64_t>(size, 1);
  const float epsilon = b.node.number("epsilon", 1e-5f);
  const bool wants_inverse = b.node.outputs() > 1;
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = sizeof(Sum<T>) * static_cast<size_t>(size);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      Sum<T>* const x = reinterpret_cast<Sum<T>*>(worker.scratch);
      float* const inverse = wants_inverse ? io.output<float>(1) : nullptr;
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        const T* const from = io.input<T>(0) + row * size;
        for (int64_t i = 0; i < size; ++i) x[i] = static_cast<Sum<T>>(from[i]);
        normalize<T>(x, size, io.input<T>(1), nullptr, epsilon, true, io.output<T>(0) + row * size,
                     nullptr, inverse == nullptr ? nullptr : inverse + row);
      }
    });
    return {};
  });
}

Status bind_EmbedLayerNormalization(const Binding& b) {
  const ops::TensorNode& node = b.node;
  const Shape ids = node.shape(0);
  const int64_t size = node.shape(2)[1], words = node.shape(2)[0], positions = node.shape(3)[0];
  const bool has_segments = node.has(1), has_mask = node.has(7), has_positions = node.has(8);
  const int64_t segments = has_segments ? node.shape(4)[0] : 0;
  const bool one_row = has_positions && node.shape(8)[0] == 1;
  const float epsilon = node.number("epsilon", 1e-12f);
  const int outputs = node.outputs();
  return with_float(node, node.dtype(2), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = sizeof(S) * static_cast<size_t>(size);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      S* const sums = reinterpret_cast<S*>(worker.scratch);
      T* const total = outputs > 2 ? io.output<T>(2) : nullptr;
      int32_t* const lengths = outputs > 1 ? io.output<int32_t>(1) : nullptr;
      if (lengths != nullptr) {
        const auto [first, past] = ops::share_of(ids[0], worker);
        for (int64_t i = first; i < past; ++i) {
          lengths[i] = 0;
          for (int64_t j = 0; has_mask && j < ids[1]; ++j)
            lengths[i] += io.input<int32_t>(7)[i * ids[1] + j] == 1 ? 1 : 0;
        }
      }
      const auto [begin, end] = ops::share_of(ids[0] * ids[1], worker);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t column = row % ids[1];
        const auto pick = [&](int64_t index, int64_t count, const T* table) -> const T* {
          if (index >= 0 && index < count) return table + index * size;
          io.fail("EmbedLayerNormalization: an index is out of range");
          return nullptr;
        };
        const int64_t position =
            has_positions ? io.input<int32_t>(8)[one_row ? column : row] : column;
        const T* const parts[] = {
            pick(io.input<int32_t>(0)[row], words, io.input<T>(2)),
            pick(position, positions, io.input<T>(3)),
            has_segments ? pick(io.input<int32_t>(1)[row], segments, io.input<T>(4)) : nullptr};
        std::fill_n(sums, size, S{});
        for (const T* part : parts) {
          for (int64_t i = 0; part != nullptr && i < size; ++i) sums[i] += static_cast<S>(part[i]);
        }
        if (total != nullptr) {
          for (int64_t i = 0; i < size; ++i) total[row * size + i] = static_cast<T>(sums[i]);
        }
        if (io.output<T>(0) == nullptr) continue;
        normalize(sums, size, io.input<T>(5), io.input<T>(6), epsilon, false,
                  io.output<T>(0) + row * size, nullptr, nullptr);
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
