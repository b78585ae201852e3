// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/shapes.def: tensors with a border, a triangle or a diagonal, and tensors
// made of numbers.
#include <cstring>

#include "core/check.h"
#include "cpu/tensor/box_copy.h"
#include "ops/ranges.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::PadMode;
using ops::Worker;

struct PadDim {
  int64_t out = 1;             // size of the output
  int64_t before = 0;          // elements in front of those of the source
  int64_t from = 0, size = 1;  // the elements of the source that are kept
  int64_t stride = 0;

  // The element of the source that is at `index` of the output; -1: none.
  int64_t source(int64_t index, PadMode mode) const {
    int64_t i = index - before;
    if (i < 0 || i >= size) {
      switch (mode) {
        case PadMode::kConstant:
          return -1;
        case PadMode::kEdge:
          i = i < 0 ? 0 : size - 1;
          break;
        case PadMode::kWrap:
          i %= size;
          if (i < 0) i += size;
          break;
        case PadMode::kReflect: {
          const int64_t period = std::max<int64_t>(1, 2 * (size - 1));
          i %= period;
          if (i < 0) i += period;
          if (i >= size) i = period - i;
        }
      }
    }
    return from + i;
  }
};

// Rows are the last padded dimension; behind it lie blocks that move whole.
struct Padding {
  int rank = 0;
  std::array<PadDim, kMaxRank> dims{};
  int64_t rows = 1, block = 1;
  PadMode mode = PadMode::kConstant;

  Padding(const Shape& x, const Shape& y, const ops::PadAxes& axes, PadMode pad_mode)
      : mode(pad_mode) {
    const auto strides = dense_strides(x);
    for (int i = 0; i < x.rank; ++i) {
      const auto [begin, end] = axes[static_cast<size_t>(i)];
      if (begin != 0 || end != 0) rank = i + 1;
    }
    for (int i = 0; i < rank; ++i) {
      const auto d = static_cast<size_t>(i);
      const auto [begin, end] = axes[d];
      dims[d] = {y[i], std::max<int64_t>(begin, 0), std::max<int64_t>(-begin, 0),
                 x[i] + std::min<int64_t>(begin, 0) + std::min<int64_t>(end, 0), strides[d]};
      if (i + 1 < rank) rows *= y[i];
    }
    for (int i = rank; i < x.rank; ++i) block *= x[i];
  }

  template <typename T>
  void run(const T* x, T* y, const T& fill, const Worker& worker) const {
    const PadDim& row = dims[static_cast<size_t>(rank - 1)];
    const auto [begin, end] = ops::share_of(rows, worker);
    std::array<int64_t, kMaxRank> index{};
    int64_t at = begin;
    for (int i = rank - 2; i >= 0; --i) {
      const auto d = static_cast<size_t>(i);
      if (dims[d].out == 0) return;
      index[d] = at % dims[d].out;
      at /= dims[d].out;
    }
    for (int64_t r = begin; r < end; ++r) {
      bool inside = true;
      int64_t source = 0;
      for (int i = 0; i + 1 < rank; ++i) {
        const auto d = static_cast<size_t>(i);
        const int64_t s = dims[d].source(index[d], mode);
        inside = inside && s >= 0;
        source += s * dims[d].stride;
      }
      write_row(row, inside ? x + source : nullptr, y + r * row.out * block, fill);
      for (int i = rank - 2; i >= 0; --i) {
        const auto d = static_cast<size_t>(i);
        if (++index[d] < dims[d].out) break;
        index[d] = 0;
      }
    }
  }

 private:
  template <typename T>
  void write_row(const PadDim& row, const T* x, T* y, const T& fill) const {
    if (x == nullptr) {
      std::fill_n(y, row.out * block, fill);
      return;
    }
    const auto border = [&](int64_t begin, int64_t end) {
      if (mode == PadMode::kConstant) {
        std::fill_n(y + begin * block, (end - begin) * block, fill);
        return;
      }
      for (int64_t i = begin; i < end; ++i)
        std::copy_n(x + row.source(i, mode) * block, block, y + i * block);
    };
    border(0, row.before);
    std::copy_n(x + row.from * block, row.size * block, y + row.before * block);
    border(row.before + row.size, row.out);
  }
};

// `value`: the operand that holds what fills a constant border, where the node has it.
Status bind_padding(const Binding& b, const ops::PadAxes& axes, PadMode mode, int value) {
  const Padding padding(b.node.shape(0), b.outputs[0].shape, axes, mode);
  if (padding.rank == 0) {
    Box box;
    box.add(padding.block, 1, 1);
    return bind_box(b, box);
  }
  if (!b.node.has(value)) value = -1;
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([padding, value](const Operands& io, const Worker& worker) {
      const T fill = value < 0 ? T{} : *io.input<T>(value);
      padding.run(io.input<T>(0), io.output<T>(0), fill, worker);
    });
    return {};
  });
}

}  // namespace

Status bind_Pad(const Binding& b) {
  PadMode mode;
  ops::PadAxes axes;
  LMN_RETURN_IF_ERROR(ops::pad_mode(b.node, &mode));
  LMN_RETURN_IF_ERROR(ops::pad_axes(b.node, &axes));
  return bind_padding(b, axes, mode, 2);
}

Status bind_CenterCropPad(const Binding& b) {
  ops::PadAxes axes;
  LMN_RETURN_IF_ERROR(ops::center_axes(b.node, &axes));
  return bind_padding(b, axes, PadMode::kConstant, -1);
}

Status bind_Trilu(const Binding& b) {
  const Shape& x = b.node.shape(0);
  const int64_t rows = x[x.rank - 2], columns = x.last();
  const int64_t all_rows = columns == 0 ? 0 : x.elements() / columns;
  const bool upper = b.node.integer("upper", 1) != 0, has_k = b.node.has(1);
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      // Beyond these it is all or nothing.
      const int64_t k =
          has_k ? std::clamp<int64_t>(*io.input<int64_t>(1), -rows - 1, columns + 1) : 0;
      const auto [begin, end] = ops::share_of(all_rows, worker);
      for (int64_t r = begin; r < end; ++r) {
        const T* from = io.input<T>(0) + r * columns;
        T* to = io.output<T>(0) + r * columns;
        // The diagonal crosses the row before this column (upper) or behind it (lower).
        const int64_t cut = std::clamp<int64_t>(r % rows + k + (upper ? 0 : 1), 0, columns);
        std::fill(to + (upper ? 0 : cut), to + (upper ? cut : columns), T{});
        if (from == to) continue;
        const int64_t keep = upper ? cut : 0;
        std::copy_n(from + keep, upper ? columns - cut : cut, to + keep);
      }
    });
    return {};
  });
}

Status bind_EyeLike(const Binding& b) {
  const Shape& y = b.outputs[0].shape;
  const int64_t rows = y[0], columns = y[1];
  const int64_t k = std::clamp<int64_t>(b.node.integer("k", 0), -rows, columns);
  const auto fill = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(rows, worker);
      T* out = io.output<T>(0);
      std::fill(out + begin * columns, out + end * columns, T(0));
      for (int64_t r = std::max(begin, -k); r < std::min(end, columns - k); ++r)
        out[r * columns + r + k] = T(1);
    });
    return {};
  };
  if (b.outputs[0].dtype == DType::kBool) return fill(TypeTag<uint8_t>{});
  return with_number(b.node, b.outputs[0].dtype, fill);
}

Status bind_ConstantOfShape(const Binding& b) {
  const int64_t count = b.outputs[0].shape.elements();
  const Tensor* value = b.node.tensor("value");
  return with_element(b.node, b.outputs[0].dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const T fill = value == nullptr ? T{} : *value->as<T>();
    b.kernel.splits = true;
    b.kernel.set([count, fill](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      std::fill(io.output<T>(0) + begin, io.output<T>(0) + end, fill);
    });
    return {};
  });
}

// Numbers of 16 bits are computed in float.
Status bind_Range(const Binding& b) {
  const int64_t count = b.outputs[0].shape[0];
  const auto fill = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([count](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      T* out = io.output<T>(0);
      if constexpr (std::is_integral_v<T>) {
        const auto start = static_cast<uint64_t>(*io.input<T>(0));
        const auto delta = static_cast<uint64_t>(*io.input<T>(2));
        for (int64_t i = begin; i < end; ++i)
          out[i] = static_cast<T>(start + static_cast<uint64_t>(i) * delta);
      } else {
        using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
        const Number start = *io.input<T>(0), delta = *io.input<T>(2);
        for (int64_t i = begin; i < end; ++i)
          out[i] = static_cast<T>(start + static_cast<Number>(i) * delta);
      }
    });
    return {};
  };
  switch (b.outputs[0].dtype) {
    case DType::kI64:
      return fill(TypeTag<int64_t>{});
    case DType::kI32:
      return fill(TypeTag<int32_t>{});
    case DType::kI16:
      return fill(TypeTag<int16_t>{});
    default:
      return with_float(b.node, b.outputs[0].dtype, fill);
  }
}

}  // namespace lmn::cpu
