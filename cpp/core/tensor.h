// SPDX-License-Identifier: Apache-2.0
//
// TensorView: a dense, row-major tensor in somebody else's memory; Tensor: one that keeps its
// memory alive. dims[rank-1] is the fastest (GGUF's ne[0] is dims[rank-1] here: a weight of a
// linear layer is [out_features, in_features]). Block-quantised types are blocked along the last
// dimension, which is a multiple of the block. Who owns `data` is said where a view is handed out.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "core/dtype.h"

namespace lmn {

inline constexpr int kMaxRank = 8;

struct Shape {
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> dims{};

  Shape() = default;
  Shape(std::initializer_list<int64_t> values) {
    for (int64_t v : values) dims[static_cast<size_t>(rank++)] = v;
  }
  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims[static_cast<size_t>(i)]; }
  int64_t last() const { return rank == 0 ? 1 : dims[static_cast<size_t>(rank - 1)]; }
  // Product of the dimensions. Callers that read shapes from files check for overflow first
  // (formats do).
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  int64_t rows() const { return last() == 0 ? 0 : elements() / last(); }
  bool operator==(const Shape& other) const {
    if (rank != other.rank) return false;
    for (int i = 0; i < rank; ++i) {
      if ((*this)[i] != other[i]) return false;
    }
    return true;
  }
  std::string to_string() const {  // "[49152, 576]"
    std::string out = "[";
    for (int i = 0; i < rank; ++i) out += (i ? ", " : "") + std::to_string((*this)[i]);
    return out + "]";
  }
};

// Bytes of one row of `columns` elements; columns is a multiple of the type's block.
inline int64_t row_bytes(DType type, int64_t columns) {
  return columns / info(type).block_elements * info(type).block_bytes;
}

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;

  int64_t bytes() const { return shape.rows() * row_bytes(dtype, shape.last()); }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

// Copies share the bytes. Strings are std::string[elements].
struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::byte* data = nullptr;
  std::shared_ptr<void> owner;

  TensorView view() const { return {dtype, shape, data}; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace lmn
