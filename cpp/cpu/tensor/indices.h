// SPDX-License-Identifier: Apache-2.0
//
// Indices that data hold: what element they name, and whether there is one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {

// Index of an axis of `size`, negative ones counted from the end. False: there is no such element.
inline bool resolve_index(int64_t index, int64_t size, int64_t* out) {
  *out = index < 0 ? index + size : index;
  return *out >= 0 && *out < size;
}

// Elements of a tensor of i32 or i64.
struct Indices {
  const std::byte* data;
  bool narrow;

  Indices(const ops::Operands& io, int i, bool is_i32)
      : data(io.input<std::byte>(i)), narrow(is_i32) {}
  int64_t operator[](int64_t i) const {
    return narrow ? reinterpret_cast<const int32_t*>(data)[i]
                  : reinterpret_cast<const int64_t*>(data)[i];
  }
};

template <typename T>
void copy_elements(const T* x, int64_t count, T* y) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    std::memcpy(y, x, static_cast<size_t>(count) * sizeof(T));
  } else {
    std::copy_n(x, count, y);
  }
}

}  // namespace lmn::cpu
