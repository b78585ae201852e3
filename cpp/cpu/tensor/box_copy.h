// SPDX-License-Identifier: Apache-2.0
//
// Box: a walk of up to 2 × kMaxRank dimensions over a source and a destination at once, the one
// loop behind Transpose, Slice, Concat, Split, Expand and Tile. Elements are moved, never looked
// at; each of the destination is written once, by one worker.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {

// f(TypeTag<T>) for operators that move elements: with_size, and std::string.
template <typename F>
Status with_element(const ops::TensorNode& node, DType dtype, F&& f) {
  if (dtype == DType::kString) return f(TypeTag<std::string>{});
  return with_size(node, dtype, f);
}

inline constexpr int kMaxBoxRank = 2 * kMaxRank;

// Strides are in elements; a source's may be 0 (repeated) or negative.
struct Box {
  int rank = 0;
  std::array<int64_t, kMaxBoxRank> sizes{}, from{}, to{};

  // Adds a dimension inside the others; one that goes on where the last one ends is merged with it.
  void add(int64_t size, int64_t from_stride, int64_t to_stride) {
    if (size == 1) return;
    if (rank > 0) {
      const auto last = static_cast<size_t>(rank - 1);
      if (sizes[last] != 0 && from[last] == from_stride * size && to[last] == to_stride * size) {
        sizes[last] *= size;
        from[last] = from_stride;
        to[last] = to_stride;
        return;
      }
    }
    const auto at = static_cast<size_t>(rank++);
    sizes[at] = size;
    from[at] = from_stride;
    to[at] = to_stride;
  }
  int64_t elements(int end) const {  // of the dimensions before `end`
    int64_t n = 1;
    for (int i = 0; i < end; ++i) n *= sizes[static_cast<size_t>(i)];
    return n;
  }
  // A dimension that the source runs through step by step while the destination does so in the last
  // one: the two make a matrix to transpose. -1: there is none.
  int transposed() const {
    if (rank < 2 || to[static_cast<size_t>(rank - 1)] != 1) return -1;
    if (from[static_cast<size_t>(rank - 1)] == 1 || from[static_cast<size_t>(rank - 1)] == 0)
      return -1;
    for (int i = 0; i + 1 < rank; ++i) {
      if (from[static_cast<size_t>(i)] == 1) return i;
    }
    return -1;
  }
};

namespace box_copy {

// Counts through dimensions [0, rank) of a box, all but `skip`, and knows where that is in both
// tensors.
class Odometer {
 public:
  Odometer(const Box& box, int rank, int skip, int64_t at) : box_(box), rank_(rank), skip_(skip) {
    for (int i = rank - 1; i >= 0; --i) {
      if (i == skip) continue;
      const auto d = static_cast<size_t>(i);
      index_[d] = at % box.sizes[d];
      at /= box.sizes[d];
      from_ += index_[d] * box.from[d];
      to_ += index_[d] * box.to[d];
    }
  }
  int64_t from() const { return from_; }
  int64_t to() const { return to_; }
  void next() {
    for (int i = rank_ - 1; i >= 0; --i) {
      if (i == skip_) continue;
      const auto d = static_cast<size_t>(i);
      from_ += box_.from[d];
      to_ += box_.to[d];
      if (++index_[d] < box_.sizes[d]) return;
      from_ -= index_[d] * box_.from[d];
      to_ -= index_[d] * box_.to[d];
      index_[d] = 0;
    }
  }

 private:
  const Box& box_;
  int rank_, skip_;
  int64_t from_ = 0, to_ = 0;
  std::array<int64_t, kMaxBoxRank> index_{};
};

template <typename T>
void copy_run(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t count) {
  if (y_stride == 1 && x_stride == 1) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      std::memcpy(y, x, static_cast<size_t>(count) * sizeof(T));
    } else {
      std::copy_n(x, count, y);
    }
  } else if (y_stride == 1 && x_stride == 0) {
    std::fill_n(y, count, *x);
  } else if (y_stride == 1) {
    for (int64_t i = 0; i < count; ++i) y[i] = x[i * x_stride];
  } else {
    for (int64_t i = 0; i < count; ++i) y[i * y_stride] = x[i * x_stride];
  }
}

// y[i][j] = x[j][i], 4 × 4 elements of 4 bytes.
inline void transpose_4x4(const uint32_t* x, int64_t x_stride, uint32_t* y, int64_t y_stride) {
  using Four = uint32_t __attribute__((vector_size(16)));
  Four r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], x + i * x_stride, sizeof(Four));
  const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Four d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
  for (int i = 0; i < 4; ++i) std::memcpy(y + i * y_stride, &r[i], sizeof(Four));
}

// y[i][j] = x[j][i] for i < rows, j < columns.
template <typename T>
void transpose_tile(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows,
                    int64_t columns) {
  int64_t whole_rows = 0, whole_columns = 0;
  if constexpr (std::is_same_v<T, uint32_t>) {
    whole_rows = rows & ~int64_t{3};
    whole_columns = columns & ~int64_t{3};
    for (int64_t i = 0; i < whole_rows; i += 4) {
      for (int64_t j = 0; j < whole_columns; j += 4)
        transpose_4x4(x + j * x_stride + i, x_stride, y + i * y_stride + j, y_stride);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      y[i * y_stride + j] = x[j * x_stride + i];
  }
}

// Tiles are a cache line of 64 bytes wide in both tensors.
template <typename T>
inline constexpr int64_t kTile = sizeof(T) >= 16 ? 4 : 64 / static_cast<int64_t>(sizeof(T));

}  // namespace box_copy

// A worker's share of a box; x and y are where its first elements are.
template <typename T>
void copy_box(const Box& box, const T* x, T* y, const ops::Worker& worker) {
  using namespace box_copy;
  if (box.elements(box.rank) == 0) return;
  if (box.rank == 0) {
    if (worker.part == 0) *y = *x;
    return;
  }
  const int last = box.rank - 1;
  const auto l = static_cast<size_t>(last);
  const int rows = box.transposed();
  if (rows < 0) {
    const int64_t inner = box.sizes[l];
    const auto [begin, end] = ops::share_of(box.elements(box.rank), worker);
    if (begin == end) return;
    Odometer at(box, last, -1, begin / inner);
    int64_t first = begin % inner;
    for (int64_t left = end - begin; left > 0; at.next()) {
      const int64_t count = std::min(inner - first, left);
      copy_run(x + at.from() + first * box.from[l], box.from[l], y + at.to() + first * box.to[l],
               box.to[l], count);
      left -= count;
      first = 0;
    }
    return;
  }
  const auto r = static_cast<size_t>(rows);
  const int64_t bands = (box.sizes[r] + kTile<T> - 1) / kTile<T>;
  const auto [begin, end] =
      ops::share_of(box.elements(box.rank) / box.sizes[l] / box.sizes[r] * bands, worker);
  if (begin == end) return;
  Odometer at(box, last, rows, begin / bands);
  int64_t band = begin % bands;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t i = band * kTile<T>, height = std::min(kTile<T>, box.sizes[r] - i);
    for (int64_t j = 0; j < box.sizes[l]; j += kTile<T>) {
      transpose_tile(x + at.from() + i + j * box.from[l], box.from[l],
                     y + at.to() + i * box.to[r] + j, box.to[r], height,
                     std::min(kTile<T>, box.sizes[l] - j));
    }
    if (++band == bands) {
      band = 0;
      at.next();
    }
  }
}

// Strides of a dense tensor.
inline std::array<int64_t, kMaxRank> dense_strides(const Shape& shape) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
  return strides;
}

// A kernel that fills output 0 from input 0 along a box that starts at element `from` of it.
inline Status bind_box(const Binding& b, const Box& box, int64_t from = 0) {
  return with_element(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([box, from](const ops::Operands& io, const ops::Worker& worker) {
      copy_box(box, io.input<T>(0) + from, io.output<T>(0), worker);
    });
    return {};
  });
}

}  // namespace lmn::cpu
