// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/signal.def: Fourier transforms of the rows of a tensor. Work is shared out
// in groups of rows that are transformed together.
#include "ops/infer/signal.h"

#include "cpu/tensor/dispatch.h"
#include "cpu/tensor/transform.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Row r: load(r, re, im, step) fills elements 0, step, 2 step, … of the zeroed arrays; store(r, re,
// im, step) takes them out.
template <typename Load, typename Store>
void transform_rows(const Transform& transform, const Worker& worker, int64_t rows,
                    const Load& load, const Store& store) {
  const int64_t lanes = transform.lanes(), array = transform.scratch() / 4;
  double* buffers = reinterpret_cast<double*>(worker.scratch);
  const auto [begin, end] = ops::share_of((rows + lanes - 1) / lanes, worker);
  for (int64_t group = begin; group < end; ++group) {
    const int64_t first = group * lanes, count = std::min(lanes, rows - first);
    std::fill_n(buffers, 2 * array, 0.0);
    for (int64_t lane = 0; lane < count; ++lane) {
      load(first + lane, buffers + lane, buffers + array + lane, lanes);
    }
    const auto parts = transform.run(buffers);
    for (int64_t lane = 0; lane < count; ++lane) {
      store(first + lane, buffers + parts.real * array + lane,
            buffers + parts.imaginary * array + lane, lanes);
    }
  }
}

template <typename T>
T narrow(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

struct DftShape {
  int64_t outer = 1, inner = 1;  // rows
  int64_t in_size, out_size;     // along the axis
  int64_t in_parts, out_parts;   // 1: real, 2: complex
  int64_t length;
  bool inverse, half;
};

// An inverse transform is a forward one whose real and imaginary parts are exchanged before and
// after. Of a half spectrum, the other half is its mirror image.
template <typename T>
void set_dft(const Binding& b, const DftShape& shape) {
  auto transform = std::make_shared<const Transform>(shape.length);
  b.kernel.splits = true;
  b.kernel.scratch_bytes = static_cast<size_t>(transform->scratch()) * sizeof(double);
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const double scale = shape.inverse ? 1 / static_cast<double>(shape.length) : 1.0;
    const bool mirror = shape.inverse && shape.half;
    const int64_t taken = std::min(shape.in_size, mirror ? shape.length / 2 + 1 : shape.length);
    const auto load = [&](int64_t row, double* re, double* im, int64_t step) {
      if (shape.inverse) std::swap(re, im);
      const int64_t o = row / shape.inner, i = row % shape.inner;
      for (int64_t k = 0; k < taken; ++k) {
        const T* x = io.input<T>(0) + ((o * shape.in_size + k) * shape.inner + i) * shape.in_parts;
        const double real = static_cast<double>(x[0]),
                     imaginary = shape.in_parts == 2 ? static_cast<double>(x[1]) : 0.0;
        re[k * step] = real;
        im[k * step] = imaginary;
        if (mirror && k > 0 && shape.length - k != k) {
          re[(shape.length - k) * step] = real;
          im[(shape.length - k) * step] = -imaginary;
        }
      }
    };
    const auto store = [&](int64_t row, const double* re, const double* im, int64_t step) {
      if (shape.inverse) std::swap(re, im);
      const int64_t o = row / shape.inner, i = row % shape.inner;
      for (int64_t k = 0; k < shape.out_size; ++k) {
        T* y = io.output<T>(0) + ((o * shape.out_size + k) * shape.inner + i) * shape.out_parts;
        y[0] = narrow<T>(re[k * step] * scale);
        if (shape.out_parts == 2) y[1] = narrow<T>(im[k * step] * scale);
      }
    };
    transform_rows(*transform, worker, shape.outer * shape.inner, load, store);
  });
}

}  // namespace

Status bind_DFT(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const int axis = static_cast<int>(ops::dft_axis(b.node, x.rank));
  DftShape shape;
  for (int i = 0; i + 1 < x.rank; ++i) {
    if (i != axis) (i < axis ? shape.outer : shape.inner) *= x[i];
  }
  shape.in_size = x[axis];
  shape.out_size = y[axis];
  shape.in_parts = x.last();
  shape.out_parts = y.last();
  shape.inverse = b.node.integer("inverse", 0) != 0;
  shape.half = b.node.integer("onesided", 0) != 0;
  if (shape.half && !shape.inverse) {
    shape.length = b.node.has(1) ? b.node.integers(1)[0] : shape.in_size;
  } else {
    shape.length = shape.out_size;
  }
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    set_dft<typename decltype(tag)::type>(b, shape);
    return {};
  });
}

Status bind_STFT(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const int64_t length = b.node.has(3)   ? b.node.integers(3)[0]
                         : b.node.has(2) ? b.node.shape(2)[0]
                                         : x[1];
  const int64_t step = b.node.integers(1)[0], parts = x[2], samples = x[1];
  const int64_t batches = y[0], frames = y[1], bins = y[2];
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    auto transform = std::make_shared<const Transform>(length);
    b.kernel.splits = true;
    b.kernel.scratch_bytes = static_cast<size_t>(transform->scratch()) * sizeof(double);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const T* window = io.input<T>(2);
      const auto load = [&](int64_t row, double* re, double* im, int64_t stride) {
        const T* from = io.input<T>(0) + (row / frames * samples + row % frames * step) * parts;
        for (int64_t k = 0; k < length; ++k) {
          const double weight = window == nullptr ? 1.0 : static_cast<double>(window[k]);
          re[k * stride] = static_cast<double>(from[k * parts]) * weight;
          if (parts == 2) im[k * stride] = static_cast<double>(from[k * parts + 1]) * weight;
        }
      };
      const auto store = [&](int64_t row, const double* re, const double* im, int64_t stride) {
        T* to = io.output<T>(0) + row * bins * 2;
        for (int64_t k = 0; k < bins; ++k) {
          to[2 * k] = narrow<T>(re[k * stride]);
          to[2 * k + 1] = narrow<T>(im[k * stride]);
        }
      };
      transform_rows(*transform, worker, batches * frames, load, store);
    });
    return {};
  });
}

}  // namespace lmn::cpu
