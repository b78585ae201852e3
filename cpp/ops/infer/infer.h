// SPDX-License-Identifier: Apache-2.0
//
// What the inference functions of several operators share.
#pragma once

#include <initializer_list>
#include <string>

#include "ops/tensor_op.h"

namespace lmn::ops {

// The size of a dimension that is `a` and is `b`, where both are known to be equal or one is 1 and
// repeated. False: they contradict each other.
inline bool broadcast_size(int64_t a, int64_t b, int64_t* size) {
  if (a == b || b == 1) {
    *size = a;
  } else if (a == 1) {
    *size = b;
  } else if (a < 0 || b < 0) {
    // An unknown size beside a known one above 1 can only be that or 1; two unknown ones may be
    // anything.
    *size = a > 1 ? a : b > 1 ? b : kUnknownSize;
  } else {
    return false;
  }
  return true;
}

// Shapes aligned at their last dimensions, every dimension equal or 1. INVALID_ARGUMENT names both.
Status broadcast(const TensorNode& node, const Shape& a, const Shape& b, Shape* out);
// The same of all operands that are present.
Status broadcast_all(const TensorNode& node, Shape* out);

// A shape with the sizes of a list that is not known: all of unknown size where the list's length
// is known, of unknown rank otherwise. `list` is a vector.
inline Shape shape_of_unknown(const Shape& list) {
  Shape out;
  out.rank = list.rank == 1 && list[0] >= 0 && list[0] <= kMaxRank ? static_cast<int>(list[0])
                                                                   : kUnknownRank;
  for (int i = 0; i < out.rank; ++i) out[i] = kUnknownSize;
  return out;
}

inline constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kF64, DType::kF16,
                                                         DType::kBF16};
inline Status expect_float(const TensorNode& node, int i) { return node.expect_dtype(i, kFloats); }
inline std::string type_name(DType dtype) { return std::string(info(dtype).name); }

// Output 0 has the type of input 0.
Status same_as_input(const TensorNode& node, TensorTypes outputs);

}  // namespace lmn::ops
