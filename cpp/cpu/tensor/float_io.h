// SPDX-License-Identifier: Apache-2.0
//
// Tensors of any float type as rows of C, float or double: kernels compute in C, a chunk at a time,
// and are not compiled once for every type. Rows that are stored as C are used where they lie.
// Integers are rows of themselves.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cpu/tensor/half_math.h"

namespace lmn::cpu {

// Elements that are converted at a time; they stay in the first-level cache.
inline constexpr int64_t kFloatChunk = 512;

// f(TypeTag<C>) for what a float type is computed in.
template <typename F>
Status with_computed(const ops::TensorNode& node, DType dtype, F&& f) {
  return with_float(node, dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, double>) {
      return f(TypeTag<double>{});
    } else {
      return f(TypeTag<float>{});
    }
  });
}

// Whether C lies in memory as it is.
template <typename C>
bool stored_as(DType dtype) {
  if constexpr (std::is_same_v<C, float>) return dtype == DType::kF32;
  if constexpr (std::is_same_v<C, double>) return dtype == DType::kF64;
  return true;
}

template <typename C>
struct Source {
  const std::byte* data;
  DType dtype;

  const C* stored() const { return reinterpret_cast<const C*>(data); }
  // Elements [first, first + count), count <= kFloatChunk where they are not stored as C.
  const C* read(int64_t first, int64_t count, C* buffer) const {
    if (stored_as<C>(dtype)) return stored() + first;
    if constexpr (std::is_floating_point_v<C>) {
      const auto convert = [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = reinterpret_cast<const T*>(data) + first;
        if constexpr (std::is_same_v<C, float> && sizeof(T) == 2) {
          to_floats(x, buffer, count);
        } else {
          for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<C>(x[i]);
        }
      };
      if (dtype == DType::kF16) convert(TypeTag<Half>{});
      if (dtype == DType::kBF16) convert(TypeTag<BFloat>{});
      if (dtype == DType::kF32) convert(TypeTag<float>{});
      if (dtype == DType::kF64) convert(TypeTag<double>{});
    }
    return buffer;
  }
  C at(int64_t i) const {
    C buffer[1] = {};
    return *read(i, 1, buffer);
  }
};

template <typename C>
struct Sink {
  std::byte* data;
  DType dtype;

  // Where to put elements from `first` on; put() then stores them.
  C* begin(int64_t first, C* buffer) const {
    return stored_as<C>(dtype) ? reinterpret_cast<C*>(data) + first : buffer;
  }
  void put(int64_t first, int64_t count, const C* values) const {
    if (stored_as<C>(dtype)) {
      C* y = reinterpret_cast<C*>(data) + first;
      if (y != values) std::copy_n(values, count, y);
      return;
    }
    if constexpr (std::is_floating_point_v<C>) {
      const auto convert = [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* y = reinterpret_cast<T*>(data) + first;
        if constexpr (std::is_same_v<C, float> && sizeof(T) == 2) {
          from_floats(values, y, count);
        } else {
          for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(static_cast<float>(values[i]));
        }
      };
      if (dtype == DType::kF16) convert(TypeTag<Half>{});
      if (dtype == DType::kBF16) convert(TypeTag<BFloat>{});
      if (dtype == DType::kF32) convert(TypeTag<float>{});
      if (dtype == DType::kF64) convert(TypeTag<double>{});
    }
  }
  void put(int64_t i, C value) const { put(i, 1, &value); }
};

// f(values, index of the first, count) for chunks of at most kFloatChunk of a row of `count`
// elements from `first` on.
template <typename C, typename F>
void for_chunks(const Source<C>& x, int64_t first, int64_t count, F&& f) {
  C buffer[kFloatChunk];
  for (int64_t at = 0; at < count; at += kFloatChunk) {
    const int64_t n = std::min(kFloatChunk, count - at);
    f(x.read(first + at, n, buffer), at, n);
  }
}

}  // namespace lmn::cpu
