// SPDX-License-Identifier: Apache-2.0
//
// Kernels of the matrix products of tensor_ops/products.def.
#include <cmath>
#include <limits>

#include "cpu/panel_layout.h"
#include "cpu/tensor/activate.h"
#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/product.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Many products of one size: rows x inner times inner x columns. Strides are in elements.
struct Matrices {
  int64_t rows = 1, inner = 1, columns = 1;
  int64_t x_row = 0, x_inner = 0, w_inner = 0, w_column = 0;
  BroadcastWalk<2> batch;  // of the first elements of both factors
};

int64_t count_of(const Matrices& m) { return m.batch.rows() * m.batch.inner(); }

// Strides of a tensor of this shape after FusedMatMul's transpositions, and its new shape.
struct StridedShape {
  Shape shape;
  std::array<int64_t, kMaxRank> strides{};
};
StridedShape strided(const Shape& shape, bool transpose_batch, bool transpose) {
  StridedShape s;
  s.shape = shape;
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    s.strides[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
  if (shape.rank < 2) return s;
  if (transpose_batch) {
    std::rotate(s.shape.dims.begin(), s.shape.dims.begin() + 1,
                s.shape.dims.begin() + shape.rank - 1);
    std::rotate(s.strides.begin(), s.strides.begin() + 1, s.strides.begin() + shape.rank - 1);
  }
  if (transpose) {
    const auto last = static_cast<size_t>(shape.rank - 1);
    std::swap(s.shape.dims[last - 1], s.shape.dims[last]);
    std::swap(s.strides[last - 1], s.strides[last]);
  }
  return s;
}

Matrices make_matrices(const StridedShape& x, const StridedShape& w, const Shape& out) {
  Matrices m;
  const auto xr = static_cast<size_t>(x.shape.rank), wr = static_cast<size_t>(w.shape.rank);
  m.inner = x.shape.last();
  m.x_inner = x.strides[xr - 1];
  if (xr > 1) {
    m.rows = x.shape.dims[xr - 2];
    m.x_row = x.strides[xr - 2];
  }
  if (wr > 1) {
    m.columns = w.shape.last();
    m.w_column = w.strides[wr - 1];
    m.w_inner = w.strides[wr - 2];
  } else {
    m.w_inner = w.strides[0];
  }
  const int rank = out.rank - (xr > 1 ? 1 : 0) - (wr > 1 ? 1 : 0);
  m.batch.rank = std::max(rank, 1);
  if (rank == 0) m.batch.sizes[0] = 1;
  for (int i = 0; i < rank; ++i) {
    const auto d = static_cast<size_t>(i);
    m.batch.sizes[d] = out[i];
    for (size_t o = 0; o < 2; ++o) {
      const StridedShape& operand = o == 0 ? x : w;
      const int at = i - rank + std::max(0, operand.shape.rank - 2);
      if (at >= 0 && operand.shape[at] != 1)
        m.batch.strides[o][d] = operand.strides[static_cast<size_t>(at)];
    }
  }
  // One matrix for all rows of a batch is one product.
  bool folds = true;
  int64_t next = m.x_row * m.rows;
  for (int i = rank - 1; i >= 0; --i) {
    const auto d = static_cast<size_t>(i);
    if (m.batch.sizes[d] == 1) continue;
    folds = folds && m.batch.strides[1][d] == 0 && m.batch.strides[0][d] == next;
    next *= m.batch.sizes[d];
  }
  if (folds && xr > 1) {
    m.rows *= count_of(m);
    m.batch = {};
    m.batch.rank = 1;
    m.batch.sizes[0] = 1;
  }
  return m;
}

// float32 whose rows are dense in one direction: a group of the second matrix's columns is packed
// as weights are (panel_layout.h), and multiplied by the kernel of lmnative.Linear. Whether it is
// done depends on strides alone, so that a row gives the same bits among any number of rows.
struct PanelProduct {
  bool applies = false;
  int64_t lanes = 0, panel_size = 0, group = 0;  // panels that are packed at a time

  PanelProduct(const Matrices& m, const IsaKernels& isa) {
    lanes = isa.float_lanes;
    applies = (m.x_inner == 1 || m.inner == 1) && m.inner > 0 &&
              (m.w_column == 1 || (m.w_inner == 1 && m.w_column > 0));
    panel_size = panel_bytes(DType::kF32, m.inner, lanes);
    constexpr int64_t kGroupBytes = 256 * 1024;  // a part of a second-level cache
    group = std::clamp<int64_t>(kGroupBytes / std::max<int64_t>(panel_size, 1), 1,
                                std::max<int64_t>(1, (m.columns + lanes - 1) / lanes));
  }
  size_t scratch_bytes() const { return applies ? static_cast<size_t>(group * panel_size) : 0; }

  // Rows [row_begin, row_end), panels [panel_begin, panel_end).
  void run(const Matrices& m, const IsaKernels& isa, const float* x, const float* w, float* y,
           int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
           std::byte* scratch) const {
    LinearTask t{};
    t.source = DType::kF32;
    t.input_type = DType::kF32;
    t.columns = m.inner;
    t.panels = scratch;
    t.rows = row_end - row_begin;
    t.x = reinterpret_cast<const std::byte*>(x + row_begin * m.x_row);
    t.x_row_bytes = m.x_row * static_cast<int64_t>(sizeof(float));
    t.y_stride = m.columns;
    for (int64_t panel = panel_begin; panel < panel_end; panel += group) {
      const int64_t first = panel * lanes;
      t.panel_end = std::min(group, panel_end - panel);
      t.channels = std::min(t.panel_end * lanes, m.columns - first);
      pack(m, isa, w + first * m.w_column, t.channels, scratch);
      t.y = y + row_begin * m.columns + first;
      isa.linear(t);
    }
  }

 private:
  void pack(const Matrices& m, const IsaKernels& isa, const float* w, int64_t columns,
            std::byte* panels) const {
    if (m.w_column == 1) return isa.floats.pack_columns(w, m.inner, columns, m.w_inner, panels);
    for (int64_t first = 0; first < columns; first += lanes) {
      isa.pack({DType::kF32, DType::kF32, m.inner,
                reinterpret_cast<const std::byte*>(w + first * m.w_column),
                std::min(lanes, columns - first), panels + first / lanes * panel_size,
                m.w_column * static_cast<int64_t>(sizeof(float))});
    }
  }
};

// Calls store(matrix, row, column, count, sums) for all outputs of a worker; sums may be where they
// belong in `out`.
template <typename T, typename Store>
void multiply(const Matrices& m, const PanelProduct& panels, const IsaKernels& isa, const T* x,
              const T* w, T* out, const Worker& worker, const Store& store) {
  const int64_t matrices = count_of(m);
  // A matrix each, where there are many; else a part of every matrix.
  const bool whole = matrices >= 4 * worker.parts;
  const auto [begin, end] = whole ? ops::share_of(matrices, worker) : ops::Share{0, matrices};
  const ProductShare share =
      whole ? ProductShare{0, m.rows, 0, m.columns} : share_product(m.rows, m.columns, worker);
  for (int64_t i = begin; i < end; ++i) {
    const auto offset = m.batch.offsets(i / m.batch.inner());
    const int64_t in_run = i % m.batch.inner();
    const T* xs = x + offset[0] + in_run * m.batch.inner_stride(0);
    const T* ws = w + offset[1] + in_run * m.batch.inner_stride(1);
    if constexpr (std::is_same_v<T, float>) {
      if (panels.applies) {
        const int64_t count = (m.columns + panels.lanes - 1) / panels.lanes;
        const bool by_rows = whole || share.column_end - share.column_begin == m.columns;
        const auto [panel, panel_end] =
            by_rows ? ops::Share{0, count} : ops::share_of(count, worker);
        T* const y = out + i * m.rows * m.columns;
        panels.run(m, isa, xs, ws, y, share.row_begin, share.row_end, panel, panel_end,
                   worker.scratch);
        const int64_t first = panel * panels.lanes;
        const int64_t columns = std::min(panel_end * panels.lanes, m.columns) - first;
        for (int64_t row = share.row_begin; row < share.row_end && columns > 0; ++row)
          store(i, row, first, columns, y + row * m.columns + first);
        continue;
      }
    }
    const auto to = [&](int64_t row, int64_t column, int64_t count, Sum<T>* sums) {
      store(i, row, column, count, sums);
    };
    if (share.row_end - share.row_begin <= kMicroRows && m.w_column == 1) {
      few_rows_product(xs, m.x_row, m.x_inner, share.row_begin, share.row_end, ws, m.w_inner,
                       share.column_begin, share.column_end, m.inner, worker.scratch, to);
    } else {
      blocked_product<Sum<T>>(share.row_begin, share.row_end, share.column_begin, share.column_end,
                              m.inner, worker.scratch, RowPacker<T>{xs, m.x_row, m.x_inner},
                              ColumnPacker<T>{ws, m.w_column, m.w_inner}, to);
    }
  }
}

// alpha times a sum. Integers are scaled as doubles and saturate.
template <typename S>
S scaled(S value, float by, bool is_signed) {
  if constexpr (std::is_floating_point_v<S>) {
    return value * static_cast<S>(by);
  } else {
    using Signed = std::make_signed_t<S>;
    if (by == 1.0f) return value;
    const double y =
        (is_signed ? static_cast<double>(static_cast<Signed>(value)) : static_cast<double>(value)) *
        static_cast<double>(by);
    if (std::isnan(y)) return 0;
    if (!is_signed) {
      return y <= 0 ? S{0}
             : y >= static_cast<double>(std::numeric_limits<S>::max())
                 ? std::numeric_limits<S>::max()
                 : static_cast<S>(y);
    }
    using Limits = std::numeric_limits<Signed>;
    return static_cast<S>(y <= static_cast<double>(Limits::min())   ? Limits::min()
                          : y >= static_cast<double>(Limits::max()) ? Limits::max()
                                                                    : static_cast<Signed>(y));
  }
}

bool is_signed(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

Status bind_matrices(const Binding& b, const Matrices& m) {
  const float alpha = b.node.number("alpha", 1.0f);
  const bool with_sign = is_signed(b.node.dtype(0));
  return with_factor(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    const PanelProduct panels(m, b.isa);
    b.kernel.scratch_bytes = std::max(product_scratch_bytes<Sum<T>>(), panels.scratch_bytes());
    const IsaKernels* isa = &b.isa;
    b.kernel.cost = 50 + static_cast<double>(count_of(m) * m.rows * m.inner * m.columns) / 20;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      T* const out = io.output<T>(0);
      multiply(m, panels, *isa, io.input<T>(0), io.input<T>(1), out, worker,
               [&](int64_t matrix, int64_t row, int64_t column, int64_t count, Sum<T>* sums) {
                 T* const to = out + (matrix * m.rows + row) * m.columns + column;
                 if (alpha != 1.0f) {
                   for (int64_t i = 0; i < count; ++i) sums[i] = scaled(sums[i], alpha, with_sign);
                 }
                 if constexpr (std::is_same_v<T, float>) {
                   if (to == sums) return;
                 }
                 for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(sums[i]);
               });
    });
    return {};
  });
}

Status bind_gemm(const Binding& b, const ops::Activation& activation) {
  const ops::TensorNode& node = b.node;
  const Matrices m = make_matrices(strided(node.shape(0), false, node.integer("transA", 0) != 0),
                                   strided(node.shape(1), false, node.integer("transB", 0) != 0),
                                   b.outputs[0].shape);
  const float alpha = node.number("alpha", 1.0f), beta = node.number("beta", 1.0f);
  int64_t c_row = 0, c_column = 0;
  const bool has_c = node.has(2) && beta != 0.0f;
  if (has_c) {
    const Shape& c = node.shape(2);
    if (c.rank > 0 && c.last() != 1) c_column = 1;
    if (c.rank > 1 && c[c.rank - 2] != 1) c_row = c.last();
  }
  const bool with_sign = is_signed(node.dtype(0));
  return with_factor(node, node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    const PanelProduct panels(m, b.isa);
    b.kernel.scratch_bytes = std::max(product_scratch_bytes<Sum<T>>(), panels.scratch_bytes());
    const IsaKernels* isa = &b.isa;
    b.kernel.cost = 50 + static_cast<double>(count_of(m) * m.rows * m.inner * m.columns) / 20;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      T* const out = io.output<T>(0);
      const T* const c = has_c ? io.input<T>(2) : nullptr;
      multiply(m, panels, *isa, io.input<T>(0), io.input<T>(1), out, worker,
               [&](int64_t, int64_t row, int64_t column, int64_t count, Sum<T>* sums) {
                 T* const to = out + row * m.columns + column;
                 if (alpha != 1.0f) {
                   for (int64_t i = 0; i < count; ++i) sums[i] = scaled(sums[i], alpha, with_sign);
                 }
                 if (c != nullptr) {
                   const T* const from = c + row * c_row + column * c_column;
                   for (int64_t i = 0; i < count; ++i) {
                     const auto value = static_cast<Sum<T>>(from[i * c_column]);
                     sums[i] += beta == 1.0f ? value : scaled(value, beta, with_sign);
                   }
                 }
                 if constexpr (std::is_floating_point_v<Sum<T>>) activate(activation, sums, count);
                 for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(sums[i]);
               });
    });
    return {};
  });
}

}  // namespace

Status bind_MatMul(const Binding& b) {
  return bind_matrices(b,
                       make_matrices(strided(b.node.shape(0), false, false),
                                     strided(b.node.shape(1), false, false), b.outputs[0].shape));
}

Status bind_FusedMatMul(const Binding& b) {
  const auto operand = [&](int i, const char* batch, const char* last_two) {
    return strided(b.node.shape(i), b.node.integer(batch, 0) != 0,
                   b.node.integer(last_two, 0) != 0);
  };
  return bind_matrices(b, make_matrices(operand(0, "transBatchA", "transA"),
                                        operand(1, "transBatchB", "transB"), b.outputs[0].shape));
}

Status bind_Gemm(const Binding& b) { return bind_gemm(b, {}); }

Status bind_FusedGemm(const Binding& b) {
  ops::Activation activation;
  LMN_RETURN_IF_ERROR(read_activation(b.node, &activation));
  return bind_gemm(b, activation);
}

}  // namespace lmn::cpu
