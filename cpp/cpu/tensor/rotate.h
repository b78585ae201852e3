// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding of one row of one head.
#pragma once

#include <cstdint>

#include "cpu/tensor/product.h"

namespace lmn::cpu {

// Pairs of the first `rotary` elements are rotated, element i with i + rotary / 2, or, interleaved,
// 2 i with 2 i + 1; the others are copied. cosine and sine have rotary / 2 elements. In place or
// not.
template <typename T>
void rotate(const T* x, const T* cosine, const T* sine, int64_t rotary, int64_t dim,
            bool interleaved, T* y) {
  const int64_t half = rotary / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
  for (int64_t i = 0; i < half; ++i) {
    const Sum<T> c = static_cast<Sum<T>>(cosine[i]), s = static_cast<Sum<T>>(sine[i]);
    const Sum<T> a = static_cast<Sum<T>>(x[i * step]), b = static_cast<Sum<T>>(x[i * step + apart]);
    y[i * step] = static_cast<T>(c * a - s * b);
    y[i * step + apart] = static_cast<T>(s * a + c * b);
  }
  for (int64_t i = rotary; i < dim; ++i) y[i] = x[i];
}

}  // namespace lmn::cpu
