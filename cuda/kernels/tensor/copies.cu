// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/copies.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "cuda/kernels/tensor/walk.h"
#include "ops/ranges.h"

namespace lmn::cuda::tensor {
namespace {

// One copy of a node: its launch, but for the addresses.
struct Copy {
  CopyParams params{};
  int unit = 1;  // bytes
  bool transposes = false;
  int input = 0, output = 0;

  void launch(const ops::Operands& io, ops::LaunchQueue& queue) const;
};

template <typename T>
void launch_units(const CopyParams& p, bool transposes, ops::LaunchQueue& queue) {
  if constexpr (sizeof(T) >= 2 && sizeof(T) <= 8) {
    if (transposes) {
      const int last = p.rank - 1;
      const int64_t rows = p.sizes[last - 1], columns = p.sizes[last];
      const int64_t matrices = rows * columns == 0 ? 0 : p.count / (rows * columns);
      simt::launch<copy_transposed<T>>(
          queue,
          {blocks(matrices * simt::div_up(rows, kTile) * simt::div_up(columns, kTile)), 1, 1,
           kCopyThreads, kTile * (kTile + 1) * sizeof(T)},
          p);
      return;
    }
  }
  simt::launch<copy_units<T>>(queue,
                              {blocks(simt::div_up(p.count, kCopyThreads)), 1, 1, kCopyThreads}, p);
}

void Copy::launch(const ops::Operands& io, ops::LaunchQueue& queue) const {
  CopyParams p = params;
  p.x = io.input<std::byte>(input);
  p.y = io.output<std::byte>(output);
  if (p.y == nullptr) return;  // that nobody reads
  switch (unit) {
    case 1:
      return launch_units<uint8_t>(p, transposes, queue);
    case 2:
      return launch_units<uint16_t>(p, transposes, queue);
    case 4:
      return launch_units<uint32_t>(p, transposes, queue);
    case 8:
      return launch_units<uint64_t>(p, transposes, queue);
    default:
      return launch_units<simt::U32x4>(p, transposes, queue);
  }
}

constexpr int64_t kWidest = 16;

// The walk has strides of source and destination, in elements of `bytes`.
Status make_copy(const ops::TensorNode& node, const Walk& walk, int64_t bytes, int64_t x_offset,
                 int64_t y_offset, Copy* copy) {
  std::vector<Dimension> dimensions = walk.dimensions();
  if (dimensions.size() > kCopyRank) return node.unsupported("more than 16 dimensions");
  // How many elements a unit has, at most: a power of two that divides everything.
  int64_t widen = 1;
  if (!dimensions.empty() && dimensions.back().strides == std::vector<int64_t>{1, 1}) {
    int64_t common = std::gcd(std::gcd(x_offset, y_offset), dimensions.back().size);
    for (size_t d = 0; d + 1 < dimensions.size(); ++d) {
      for (const int64_t stride : dimensions[d].strides) common = std::gcd(common, stride);
    }
    while (widen * bytes < kWidest && common % (2 * widen) == 0) widen *= 2;
    dimensions.back().size /= widen;
  }
  // The source's neighbours, where they are not the destination's, beside those of the
  // destination's: a matrix.
  if (widen == 1 && bytes >= 2 && dimensions.size() > 1 && dimensions.back().strides[1] == 1 &&
      dimensions.back().strides[0] > 1) {
    const auto rows = std::find_if(dimensions.begin(), dimensions.end() - 1,
                                   [](const Dimension& d) { return d.strides[0] == 1; });
    copy->transposes = rows != dimensions.end() - 1;
    if (copy->transposes) std::rotate(rows, rows + 1, dimensions.end() - 1);
  }
  CopyParams& p = copy->params;
  copy->unit = static_cast<int>(widen * bytes);
  p.count = 1;
  p.x_offset = static_cast<uint32_t>(x_offset / widen);
  p.y_offset = static_cast<uint32_t>(y_offset / widen);
  for (size_t d = 0; d < dimensions.size(); ++d) {
    const bool inner = d + 1 == dimensions.size();
    const auto stride = [&](size_t tensor) {
      const int64_t elements = dimensions[d].strides[tensor];
      return static_cast<uint32_t>(inner ? elements : elements / widen);
    };
    p.sizes[d] = static_cast<uint32_t>(dimensions[d].size);
    p.from[d] = stride(0);
    p.to[d] = stride(1);
    p.count *= p.sizes[d];
  }
  p.rank = static_cast<int32_t>(dimensions.size());
  return {};
}

Result<int64_t> element_bytes(const ops::TensorNode& node, DType type) {
  if (type == DType::kString) return unsupported_type(node, type);
  return static_cast<int64_t>(info(type).block_bytes);
}

void set_copies(const Binding& b, std::vector<Copy> copies) {
  b.kernel.set([copies = std::move(copies)](const ops::Operands& io, const ops::Worker& worker) {
    for (const Copy& copy : copies) copy.launch(io, *worker.queue);
  });
}

Status bind_walk(const Binding& b, const Walk& walk, int64_t x_offset = 0) {
  LMN_ASSIGN_OR_RETURN(const int64_t bytes, element_bytes(b.node, b.outputs[0].dtype));
  Copy copy;
  LMN_RETURN_IF_ERROR(make_copy(b.node, walk, bytes, x_offset, 0, &copy));
  set_copies(b, {copy});
  return {};
}

// The whole tensor, and parts of it side by side along an axis; `joins`: the parts become the
// whole.
template <typename PartShape>
Status bind_parts(const Binding& b, const Shape& whole, int count, bool joins,
                  const PartShape& part_shape) {
  int64_t axis;
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(b.node.integer("axis", 0), whole.rank, &axis));
  LMN_ASSIGN_OR_RETURN(const int64_t bytes, element_bytes(b.node, b.outputs[0].dtype));
  int64_t outer = 1, inner = 1, offset = 0;
  for (int d = 0; d < whole.rank; ++d) {
    if (d < axis) outer *= whole[d];
    if (d > axis) inner *= whole[d];
  }
  const int64_t whole_row = whole[static_cast<int>(axis)] * inner;
  std::vector<Copy> copies;
  for (int i = 0; i < count; ++i) {
    const int64_t row = part_shape(i)[static_cast<int>(axis)] * inner;
    Walk walk;
    walk.add(outer,
             joins ? std::vector<int64_t>{row, whole_row} : std::vector<int64_t>{whole_row, row});
    walk.add(row, {1, 1});
    Copy copy;
    LMN_RETURN_IF_ERROR(
        make_copy(b.node, walk, bytes, joins ? 0 : offset, joins ? offset : 0, &copy));
    (joins ? copy.input : copy.output) = i;
    copies.push_back(copy);
    offset += row;
  }
  set_copies(b, std::move(copies));
  return {};
}

}  // namespace

Status bind_copy(const Binding& b) {
  Walk walk;
  walk.add(b.outputs[0].shape.elements(), {1, 1});
  return bind_walk(b, walk);
}

Status bind_transpose(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const auto from = dense_strides(x), to = dense_strides(y);
  const ops::Ints* perm = b.node.integers("perm");
  Walk walk;
  for (int d = 0; d < y.rank; ++d) {
    const int64_t source = perm == nullptr ? y.rank - 1 - d : (*perm)[static_cast<size_t>(d)];
    walk.add(y[d], {from[static_cast<size_t>(source)], to[static_cast<size_t>(d)]});
  }
  return bind_walk(b, walk);
}

Status bind_slice(const Binding& b) {
  ops::SliceAxes axes;
  LMN_RETURN_IF_ERROR(ops::slice_axes(b.node, &axes));
  const Shape& y = b.outputs[0].shape;
  const auto from = dense_strides(b.node.shape(0)), to = dense_strides(y);
  Walk walk;
  int64_t first = 0;
  for (size_t d = 0; d < static_cast<size_t>(y.rank); ++d) {
    const int64_t size = y[static_cast<int>(d)];
    if (size > 0) first += axes[d].start * from[d];
    // Of an axis of one element the step may be anything.
    walk.add(size, {size > 1 ? axes[d].step * from[d] : 0, to[d]});
  }
  return bind_walk(b, walk, y.elements() == 0 ? 0 : first);
}

Status bind_expand(const Binding& b) {
  const Shape& y = b.outputs[0].shape;
  const auto to = dense_strides(y);
  Walk walk;
  for (int d = 0; d < y.rank; ++d) {
    walk.add(y[d], {broadcast_stride(b.node.shape(0), y.rank, d), to[static_cast<size_t>(d)]});
  }
  return bind_walk(b, walk);
}

Status bind_tile(const Binding& b) {
  const Shape &x = b.node.shape(0), &y = b.outputs[0].shape;
  const auto from = dense_strides(x), to = dense_strides(y);
  Walk walk;
  for (int i = 0; i < y.rank; ++i) {
    const auto d = static_cast<size_t>(i);
    if (x[i] > 0) walk.add(y[i] / x[i], {0, to[d] * x[i]});
    walk.add(x[i], {from[d], to[d]});
  }
  return bind_walk(b, walk);
}

Status bind_concat(const Binding& b) {
  return bind_parts(b, b.outputs[0].shape, b.node.inputs(), true,
                    [&](int i) -> const Shape& { return b.node.shape(i); });
}

Status bind_split(const Binding& b) {
  return bind_parts(b, b.node.shape(0), b.node.outputs(), false,
                    [&](int i) -> const Shape& { return b.outputs[static_cast<size_t>(i)].shape; });
}

}  // namespace lmn::cuda::tensor
