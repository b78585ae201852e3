// SPDX-License-Identifier: Apache-2.0
//
// The blocked matrix product behind matrices, convolutions and recurrent networks. The operands are
// packed by functions of the caller, tile by tile, so that they may lie anywhere (strided, in an
// image, quantised); each output takes its products in the order of the inner dimension, one
// rounding for the product and one for the sum, whatever the tiles and the split are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {

// The type in which products of T are summed. Signed integers wrap, as unsigned ones do.
template <typename T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<Half> {
  using type = float;
};
template <>
struct SumOf<BFloat> {
  using type = float;
};
template <>
struct SumOf<int32_t> {
  using type = uint32_t;
};
template <>
struct SumOf<int64_t> {
  using type = uint64_t;
};
template <typename T>
using Sum = typename SumOf<T>::type;

// Rows and columns of a tile of accumulators, and how much of the inner dimension is packed at a
// time: for f32, 16 KiB, 24 KiB of columns and 1.5 KiB of rows, which stay in the L1 or L2 cache.
inline constexpr int64_t kTileRows = 64, kTileColumns = 64, kTileDepth = 96, kMicroRows = 4;

template <typename S>
constexpr size_t product_scratch_bytes() {
  return sizeof(S) *
         static_cast<size_t>(kTileRows * kTileColumns + kTileDepth * (kTileColumns + kMicroRows));
}

// sums[row][c] += rows[i][row] * columns[i][c] for i in order. Two vectors of the baseline's 16
// bytes wide.
template <typename S>
struct MicroKernel {
  typedef S Vector __attribute__((vector_size(16), aligned(16)));
  static constexpr int64_t kLanes = 16 / sizeof(S), kColumns = 2 * kLanes;

  static void run(const S* rows, const S* columns, int64_t depth, S* sums) {
    Vector acc[kMicroRows][2];
    for (int64_t r = 0; r < kMicroRows; ++r) {
      const auto* from = reinterpret_cast<const Vector*>(sums + r * kTileColumns);
      acc[r][0] = from[0];
      acc[r][1] = from[1];
    }
    for (int64_t i = 0; i < depth; ++i) {
      const auto* column = reinterpret_cast<const Vector*>(columns + i * kTileColumns);
      const Vector c0 = column[0], c1 = column[1];
      const S* row = rows + i * kMicroRows;
#pragma GCC unroll 4
      for (int64_t r = 0; r < kMicroRows; ++r) {
        acc[r][0] += c0 * row[r];
        acc[r][1] += c1 * row[r];
      }
    }
    for (int64_t r = 0; r < kMicroRows; ++r) {
      auto* to = reinterpret_cast<Vector*>(sums + r * kTileColumns);
      to[0] = acc[r][0];
      to[1] = acc[r][1];
    }
  }
};

// Outputs [row_begin, row_end) x [column_begin, column_end).
//   pack_rows(row, count, k, depth, to):       to[i * kMicroRows + r]    for r < count, i < depth
//   pack_columns(column, count, k, depth, to): to[i * kTileColumns + c]  for c < count, i < depth
//   store(row, column, count, sums)            takes sums[0 .. count) of one row
// scratch: product_scratch_bytes<S>(), aligned to 64 bytes.
template <typename S, typename PackRows, typename PackColumns, typename Store>
void blocked_product(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                     int64_t inner, std::byte* scratch, const PackRows& pack_rows,
                     const PackColumns& pack_columns, const Store& store) {
  S* const sums = reinterpret_cast<S*>(scratch);
  S* const columns = sums + kTileRows * kTileColumns;
  S* const rows = columns + kTileDepth * kTileColumns;
  std::fill_n(columns, kTileDepth * kTileColumns, S{});  // what is packed but not used is finite
  std::fill_n(rows, kTileDepth * kMicroRows, S{});
  for (int64_t column = column_begin; column < column_end; column += kTileColumns) {
    const int64_t width = std::min(kTileColumns, column_end - column);
    for (int64_t row = row_begin; row < row_end; row += kTileRows) {
      const int64_t height = std::min(kTileRows, row_end - row);
      std::fill_n(sums, kTileRows * kTileColumns, S{});
      for (int64_t k = 0; k < inner; k += kTileDepth) {
        const int64_t depth = std::min(kTileDepth, inner - k);
        pack_columns(column, width, k, depth, columns);
        for (int64_t r = 0; r < height; r += kMicroRows) {
          pack_rows(row + r, std::min(kMicroRows, height - r), k, depth, rows);
          for (int64_t c = 0; c < width; c += MicroKernel<S>::kColumns)
            MicroKernel<S>::run(rows, columns + c, depth, sums + r * kTileColumns + c);
        }
      }
      for (int64_t r = 0; r < height; ++r) store(row + r, column, width, sums + r * kTileColumns);
    }
  }
}

// pack_rows and pack_columns of a matrix whose element (outer, k) is at
// data[outer * stride + k * k_stride].
template <typename T, int64_t kWidth>
struct StridedPacker {
  const T* data;
  int64_t stride, k_stride;

  void operator()(int64_t outer, int64_t count, int64_t k, int64_t depth, Sum<T>* to) const {
    const T* from = data + outer * stride + k * k_stride;
    if (stride == 1) {
      for (int64_t i = 0; i < depth; ++i) {
        for (int64_t o = 0; o < count; ++o)
          to[i * kWidth + o] = static_cast<Sum<T>>(from[i * k_stride + o]);
      }
      return;
    }
    for (int64_t o = 0; o < count; ++o) {
      for (int64_t i = 0; i < depth; ++i)
        to[i * kWidth + o] = static_cast<Sum<T>>(from[o * stride + i * k_stride]);
    }
  }
};
template <typename T>
using RowPacker = StridedPacker<T, kMicroRows>;
template <typename T>
using ColumnPacker = StridedPacker<T, kTileColumns>;

// The same sums for a few rows of a matrix whose columns lie side by side: not packed, since every
// element of it is used only so often. At most kMicroRows rows.
template <typename T, typename Store>
void few_rows_product(const T* x, int64_t x_stride, int64_t x_k_stride, int64_t row_begin,
                      int64_t row_end, const T* w, int64_t w_k_stride, int64_t column_begin,
                      int64_t column_end, int64_t inner, std::byte* scratch, const Store& store) {
  constexpr int64_t kWide = kTileRows * kTileColumns / kMicroRows;
  Sum<T>* const sums = reinterpret_cast<Sum<T>*>(scratch);
  for (int64_t column = column_begin; column < column_end; column += kWide) {
    const int64_t width = std::min(kWide, column_end - column);
    for (int64_t row = row_begin; row < row_end; ++row) {
      Sum<T>* const to = sums + (row - row_begin) * kWide;
      std::fill_n(to, width, Sum<T>{});
    }
    for (int64_t k = 0; k < inner; ++k) {
      const T* const from = w + k * w_k_stride + column;
      for (int64_t row = row_begin; row < row_end; ++row) {
        const Sum<T> factor = static_cast<Sum<T>>(x[row * x_stride + k * x_k_stride]);
        Sum<T>* const to = sums + (row - row_begin) * kWide;
        for (int64_t c = 0; c < width; ++c) to[c] += factor * static_cast<Sum<T>>(from[c]);
      }
    }
    for (int64_t row = row_begin; row < row_end; ++row)
      store(row, column, width, sums + (row - row_begin) * kWide);
  }
}

// What a worker has of a product: whole rows when there are enough for all, else whole columns.
struct ProductShare {
  int64_t row_begin, row_end, column_begin, column_end;
};
inline ProductShare share_product(int64_t rows, int64_t columns, const ops::Worker& worker) {
  if (rows >= 4 * kMicroRows * worker.parts || columns < rows) {
    const int64_t units = (rows + kMicroRows - 1) / kMicroRows;
    const auto [begin, end] = ops::share_of(units, worker);
    return {begin * kMicroRows, std::min(end * kMicroRows, rows), 0, columns};
  }
  const auto [begin, end] = ops::share_of(columns, worker);
  return {0, rows, begin, end};
}

// f(TypeTag<T>) for the types that matrices may have. Signed integers are multiplied as unsigned
// ones.
template <typename F>
Status with_factor(const ops::TensorNode& node, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI32:
    case DType::kU32:
      return f(TypeTag<uint32_t>{});
    case DType::kI64:
    case DType::kU64:
      return f(TypeTag<uint64_t>{});
    default:
      return with_float(node, dtype, f);
  }
}

}  // namespace lmn::cpu
