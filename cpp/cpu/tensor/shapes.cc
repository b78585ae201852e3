// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/shapes.def: elements that move. Operators that keep the bytes and change
// the shape are copies here; plans turn them into another view of the same memory where they can.
#include <cstring>
#include <vector>

#include "cpu/tensor/box_copy.h"
#include "ops/ranges.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

Status bind_copy(const Binding& b) {
  const DType dtype = b.outputs[0].dtype;
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.in_place = 0;
  if (dtype == DType::kString) {
    b.kernel.set([count](const Operands& io, const Worker&) {
      const std::string* x = io.input<std::string>(0);
      std::string* y = io.output<std::string>(0);
      if (x != y) std::copy_n(x, count, y);
    });
    return {};
  }
  const int64_t bytes = count * info(dtype).block_bytes;
  b.kernel.splits = true;
  b.kernel.set([bytes](const Operands& io, const Worker& worker) {
    const std::byte* x = io.input<std::byte>(0);
    std::byte* y = io.output<std::byte>(0);
    const auto [begin, end] = ops::share_of(bytes, worker);
    if (x != y && begin != end) std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin));
  });
  return {};
}

// Parts of a tensor along an axis and the whole: how the elements of each part lie in it.
struct Part {
  Box box;
  int64_t offset = 0;  // of the first, in the whole
};
template <typename ShapeOf>
std::vector<Part> make_parts(const Shape& whole, int axis, int count, bool to_whole,
                             ShapeOf shape_of) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= whole[i];
  for (int i = axis + 1; i < whole.rank; ++i) inner *= whole[i];
  std::vector<Part> parts(static_cast<size_t>(count));
  int64_t offset = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t width = shape_of(i)[axis] * inner, row = whole[axis] * inner;
    Part& part = parts[static_cast<size_t>(i)];
    part.box.add(outer, to_whole ? width : row, to_whole ? row : width);
    part.box.add(width, 1, 1);
    part.offset = offset;
    offset += width;
  }
  return parts;
}

}  // namespace

Status bind_ExpandDims(const Binding& b) { return bind_copy(b); }
Status bind_Flatten(const Binding& b) { return bind_copy(b); }
Status bind_Identity(const Binding& b) { return bind_copy(b); }
Status bind_Reshape(const Binding& b) { return bind_copy(b); }
Status bind_Squeeze(const Binding& b) { return bind_copy(b); }
Status bind_Unsqueeze(const Binding& b) { return bind_copy(b); }

Status bind_Shape(const Binding& b) {
  const Shape x = b.node.shape(0);
  const int64_t count = b.outputs[0].shape[0];
  int64_t begin = b.node.integer("start", 0);
  begin = std::clamp<int64_t>(begin < 0 ? begin + x.rank : begin, 0, x.rank);
  b.kernel.set([x, begin, count](const Operands& io, const Worker&) {
    std::copy_n(x.dims.data() + begin, count, io.output<int64_t>(0));
  });
  return {};
}

Status bind_Size(const Binding& b) {
  const int64_t count = b.node.shape(0).elements();
  b.kernel.set([count](const Operands& io, const Worker&) { *io.output<int64_t>(0) = count; });
  return {};
}

Status bind_Transpose(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const auto from = dense_strides(x), to = dense_strides(y);
  const ops::Ints* perm = b.node.integers("perm");
  Box box;
  for (int i = 0; i < y.rank; ++i) {
    const auto d = static_cast<size_t>(i);
    const auto source =
        perm == nullptr ? static_cast<size_t>(y.rank - 1 - i) : static_cast<size_t>((*perm)[d]);
    box.add(y[i], from[source], to[d]);
  }
  return bind_box(b, box);
}

Status bind_Slice(const Binding& b) {
  ops::SliceAxes axes;
  LMN_RETURN_IF_ERROR(ops::slice_axes(b.node, &axes));
  const Shape& y = b.outputs[0].shape;
  const auto from = dense_strides(b.node.shape(0)), to = dense_strides(y);
  Box box;
  int64_t offset = 0;
  for (int i = 0; i < y.rank; ++i) {
    const auto d = static_cast<size_t>(i);
    offset += axes[d].start * from[d];
    if (y[i] == 1) continue;
    // Where nothing is taken the step may be anything.
    box.add(y[i], y[i] == 0 ? 0 : axes[d].step * from[d], to[d]);
  }
  return bind_box(b, box, offset);
}

Status bind_Expand(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const auto from = dense_strides(x), to = dense_strides(y);
  Box box;
  for (int i = 0; i < y.rank; ++i) {
    const int source = i - (y.rank - x.rank);
    const bool repeats = source < 0 || x[source] == 1;
    box.add(y[i], repeats ? 0 : from[static_cast<size_t>(source)], to[static_cast<size_t>(i)]);
  }
  return bind_box(b, box);
}

Status bind_Tile(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const auto from = dense_strides(x), to = dense_strides(y);
  const std::vector<int64_t> repeats = b.node.integers(1);
  Box box;
  for (int i = 0; i < y.rank; ++i) {
    const auto d = static_cast<size_t>(i);
    box.add(repeats[d], 0, to[d] * x[i]);
    box.add(x[i], from[d], to[d]);
  }
  return bind_box(b, box);
}

Status bind_Concat(const Binding& b) {
  const Shape& y = b.outputs[0].shape;
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), y.rank, &axis));
  const auto parts = make_parts(y, static_cast<int>(axis), b.node.inputs(), true,
                                [&](int i) -> const Shape& { return b.node.shape(i); });
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([parts](const Operands& io, const Worker& worker) {
      for (size_t i = 0; i < parts.size(); ++i)
        copy_box(parts[i].box, io.input<T>(static_cast<int>(i)), io.output<T>(0) + parts[i].offset,
                 worker);
    });
    return {};
  });
}

Status bind_Split(const Binding& b) {
  const Shape& x = b.node.shape(0);
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), x.rank, &axis));
  const auto parts =
      make_parts(x, static_cast<int>(axis), b.node.outputs(), false,
                 [&](int i) -> const Shape& { return b.outputs[static_cast<size_t>(i)].shape; });
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([parts](const Operands& io, const Worker& worker) {
      for (size_t i = 0; i < parts.size(); ++i) {
        T* y = io.output<T>(static_cast<int>(i));
        if (y != nullptr) copy_box(parts[i].box, io.input<T>(0) + parts[i].offset, y, worker);
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
