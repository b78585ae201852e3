// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/shapes.def that choose elements by index. An index that is out of range is
// an error of the run and reads nothing.
#include <cmath>
#include <vector>

#include "cpu/tensor/box_copy.h"
#include "cpu/tensor/indices.h"
#include "cpu/tensor/lanes.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Element i of a tensor of T, as a number.
template <typename T>
double number_at(const std::byte* data, int64_t i) {
  return static_cast<double>(reinterpret_cast<const T*>(data)[i]);
}

}  // namespace

Status bind_Gather(const Binding& b) {
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), b.node.rank(0), &axis));
  const Lanes lanes(b.node.shape(0), static_cast<int>(axis));
  const int64_t count = b.node.shape(1).elements();
  const bool narrow = b.node.dtype(1) == DType::kI32;
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const T* x = io.input<T>(0);
      const Indices index_of(io, 1, narrow);
      const int64_t inner = lanes.inner;
      const auto [begin, end] = ops::share_of(lanes.outer * count * inner, worker);
      T* y = io.output<T>(0) + begin;
      for (int64_t at = begin; at < end;) {
        const int64_t row = at / inner, first = at % inner, n = std::min(inner - first, end - at);
        int64_t index;
        if (resolve_index(index_of[row % count], lanes.size, &index)) {
          copy_elements(x + (row / count * lanes.size + index) * inner + first, n, y);
        } else {
          io.fail("Gather: an index is out of range");
        }
        y += n;
        at += n;
      }
    });
    return {};
  });
}

Status bind_GatherElements(const Binding& b) {
  const Shape x_shape = b.node.shape(0), shape = b.outputs[0].shape;
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), x_shape.rank, &axis));
  const auto strides = dense_strides(x_shape);
  const int64_t size = x_shape[static_cast<int>(axis)];
  const int64_t along = strides[static_cast<size_t>(axis)];
  // Rows of the output's last dimension; their first elements lie in x along a box that stands
  // still on the axis.
  Box box;
  for (int i = 0; i + 1 < shape.rank; ++i) {
    const auto d = static_cast<size_t>(i);
    box.add(shape[i], i == axis ? 0 : strides[d], 0);
  }
  const int64_t columns = shape.last(), step = axis == shape.rank - 1 ? 0 : 1;
  const bool narrow = b.node.dtype(1) == DType::kI32;
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      if (columns == 0) return;
      const auto [begin, end] = ops::share_of(box.elements(box.rank), worker);
      if (begin == end) return;
      const Indices index_of(io, 1, narrow);
      box_copy::Odometer at(box, box.rank, -1, begin);
      for (int64_t row = begin; row < end; ++row, at.next()) {
        const T* x = io.input<T>(0) + at.from();
        T* y = io.output<T>(0) + row * columns;
        for (int64_t i = 0; i < columns; ++i) {
          int64_t index;
          if (resolve_index(index_of[row * columns + i], size, &index)) {
            y[i] = x[i * step + index * along];
          } else {
            io.fail("GatherElements: an index is out of range");
          }
        }
      }
    });
    return {};
  });
}

Status bind_GatherND(const Binding& b) {
  const Shape &x = b.node.shape(0), &indices = b.node.shape(1);
  const int batch = static_cast<int>(b.node.integer("batch_dims", 0));
  const int depth = static_cast<int>(indices.last());
  const auto strides = dense_strides(x);
  std::array<int64_t, kMaxRank> sizes{}, steps{};
  int64_t batches = 1, tuples = 1, slice = 1, batch_stride = 1;
  for (int i = 0; i < batch; ++i) batches *= x[i];
  for (int i = batch; i < x.rank; ++i) batch_stride *= x[i];
  for (int i = batch; i + 1 < indices.rank; ++i) tuples *= indices[i];
  for (int i = batch + depth; i < x.rank; ++i) slice *= x[i];
  for (int i = 0; i < depth; ++i) {
    sizes[static_cast<size_t>(i)] = x[batch + i];
    steps[static_cast<size_t>(i)] = strides[static_cast<size_t>(batch + i)];
  }
  const bool narrow = b.node.dtype(1) == DType::kI32;
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const Indices index_of(io, 1, narrow);
      const auto [begin, end] = ops::share_of(batches * tuples, worker);
      for (int64_t row = begin; row < end; ++row) {
        int64_t from = row / tuples * batch_stride;
        bool inside = true;
        for (int i = 0; i < depth; ++i) {
          int64_t index;
          inside =
              resolve_index(index_of[row * depth + i], sizes[static_cast<size_t>(i)], &index) &&
              inside;
          if (inside) from += index * steps[static_cast<size_t>(i)];
        }
        if (inside) {
          copy_elements(io.input<T>(0) + from, slice, io.output<T>(0) + row * slice);
        } else {
          io.fail("GatherND: an index is out of range");
        }
      }
    });
    return {};
  });
}

Status bind_OneHot(const Binding& b) {
  const Shape& y = b.outputs[0].shape;
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", -1), y.rank, &axis));
  const Lanes lanes(y, static_cast<int>(axis));
  double (*index_at)(const std::byte*, int64_t) = nullptr;
  LMN_RETURN_IF_ERROR(with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    index_at = number_at<typename decltype(tag)::type>;
    return {};
  }));
  return with_element(b.node, b.node.dtype(2), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const T* values = io.input<T>(2);
      T* out = io.output<T>(0);
      const auto depth = static_cast<double>(lanes.size);
      lanes.for_each_block(worker, [&](int64_t first, int64_t width, int64_t lane) {
        for (int64_t a = 0; a < lanes.size; ++a)
          std::fill_n(out + first + a * lanes.inner, width, values[0]);
        for (int64_t i = 0; i < width; ++i) {
          // Floats are cut to integers; of what is out of range nothing is hot.
          double index = std::trunc(index_at(io.input<std::byte>(0), lane + i));
          if (index < 0) index += depth;
          if (!(index >= 0 && index < depth)) continue;
          out[first + static_cast<int64_t>(index) * lanes.inner + i] = values[1];
        }
      });
    });
    return {};
  });
}

Status bind_ReverseSequence(const Binding& b) {
  const Shape& x = b.node.shape(0);
  const bool batch_first = b.node.integer("batch_axis", 1) == 0;
  const int64_t batch = x[batch_first ? 0 : 1], steps = x[batch_first ? 1 : 0];
  int64_t row = 1;
  for (int i = 2; i < x.rank; ++i) row *= x[i];
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const int64_t* lengths = io.input<int64_t>(1);
      const auto [begin, end] = ops::share_of(batch * steps, worker);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t sequence = batch_first ? unit / steps : unit % batch;
        const int64_t step = batch_first ? unit % steps : unit / batch, length = lengths[sequence];
        if (length < 0 || length > steps) {
          io.fail("ReverseSequence: a length is out of range");
          continue;
        }
        const int64_t from = step < length ? length - 1 - step : step;
        const int64_t source = batch_first ? sequence * steps + from : from * batch + sequence;
        copy_elements(io.input<T>(0) + source * row, row, io.output<T>(0) + unit * row);
      }
    });
    return {};
  });
}

Status evaluate_Compress(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor &x = context.tensor(0), &condition = context.tensor(1);
  const bool flat = node.attributes().find("axis") == nullptr;
  int64_t axis = 0;
  Shape shape = flat ? Shape{x.shape.elements()} : x.shape;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), shape.rank, &axis));
  const Lanes lanes(shape, static_cast<int>(axis));
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < std::min(condition.shape.elements(), lanes.size); ++i) {
    if (condition.as<uint8_t>()[i] != 0) chosen.push_back(i);
  }
  shape[static_cast<int>(axis)] = static_cast<int64_t>(chosen.size());
  return with_element(node, x.dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    LMN_ASSIGN_OR_RETURN(T * y, context.make<T>(0, x.dtype, shape));
    for (int64_t o = 0; o < lanes.outer; ++o) {
      for (const int64_t i : chosen) {
        copy_elements(x.as<T>() + (o * lanes.size + i) * lanes.inner, lanes.inner, y);
        y += lanes.inner;
      }
    }
    return {};
  });
}

}  // namespace lmn::cpu
