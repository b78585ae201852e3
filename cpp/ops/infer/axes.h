// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of sizes and axes for inference, safe on whatever a file contains: sizes may be
// unknown (tensor_op.h), lists may be hostile.
#pragma once

#include <cstdint>
#include <span>

#include "ops/tensor_op.h"

namespace lmn::ops {

inline constexpr int64_t kMaxElements = int64_t{1} << 40;
inline constexpr int64_t kMaxSize = int64_t{1} << 31;   // of a window or an image
inline constexpr int64_t kMaxHeads = int64_t{1} << 20;  // of attention

// The sum of two sizes, unknown where one is, unless the other is 0.
inline int64_t add_sizes(int64_t a, int64_t b) {
  return a == 0 ? b : b == 0 ? a : a < 0 || b < 0 ? kUnknownSize : a + b;
}

// Both sizes are known and differ.
inline bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

// INVALID_ARGUMENT when the sizes that are known multiply to more than kMaxElements (a size of 0
// counts as 1, so that strides stay in bounds too).
Status check_elements(const TensorNode& node, const Shape& shape);

// The product of sizes [begin, end) of a shape: a symbol where only that one is not 1.
int64_t size_product(const Shape& shape, int begin, int end);

// The size that is both `a` and `b`. False: they contradict each other.
inline bool same_size(int64_t a, int64_t b, int64_t* size) {
  if (a >= 0 && b >= 0 && a != b) return false;
  *size = a >= 0 ? a : b >= 0 ? b : a == b ? a : kUnknownSize;
  return true;
}

// One bit for each axis of a list, negative ones counted from the end; one that repeats is refused.
Status axis_bits(const TensorNode& node, std::span<const int64_t> axes, int rank, uint32_t* bits);

// The axes, one bit each, that a reduction of operand 0 along operand 1, known where present, takes
// together.
Status reduced_axes(const TensorNode& node, uint32_t* bits);

// Whether the values of operand i, a list of integers, are known; an empty list is.
inline bool knows_list(const TensorNode& node, int i) {
  return node.knows(i) || (node.has(i) && node.type(i).is_known() && node.shape(i).elements() == 0);
}
// Operand i, where present, is i32 or i64 and of rank 0 or 1.
Status expect_list(const TensorNode& node, int i);
// The one value of operand i, whose data are known, of any integer or float type (cut to an
// integer). INVALID_ARGUMENT when it has not one element, or is no finite number.
Status scalar_integer(const TensorNode& node, int i, int64_t* value);

// The shape that operand i, a list of sizes that are known, is. INVALID_ARGUMENT names a size below
// 0; UNSUPPORTED a rank that is too high.
Status shape_of_list(const TensorNode& node, int i, Shape* shape);

// A shape of this rank, all sizes unknown.
Shape unknown_sizes(int rank);

// The type that an attribute names by its number in ONNX (TensorProto.DataType). UNSUPPORTED: there
// is no such type here.
Status dtype_of_onnx(const TensorNode& node, int64_t number, DType* dtype);

}  // namespace lmn::ops
