// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/axes.h"

#include <cinttypes>
#include <cmath>

#include "core/float16.h"

namespace lmn::ops {

Status check_elements(const TensorNode& node, const Shape& shape) {
  int64_t elements = 1;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] <= 1) continue;
    if (__builtin_mul_overflow(elements, shape[i], &elements) || elements > kMaxElements) {
      return node.fail("the output %s has more than 2^40 elements", shape.to_string().c_str());
    }
  }
  return {};
}

int64_t size_product(const Shape& shape, int begin, int end) {
  int64_t known = 1, symbol = kUnknownSize;
  int unknown = 0;
  for (int i = begin; i < end; ++i) {
    if (shape[i] == 0) return 0;
    if (shape[i] < 0) {
      ++unknown;
      symbol = shape[i];
    } else if (__builtin_mul_overflow(known, shape[i], &known)) {
      return kUnknownSize;
    }
  }
  if (unknown == 0) return known;
  return unknown == 1 && known == 1 ? symbol : kUnknownSize;
}

Status axis_bits(const TensorNode& node, std::span<const int64_t> axes, int rank, uint32_t* bits) {
  *bits = 0;
  for (const int64_t value : axes) {
    int64_t axis;
    LMN_RETURN_IF_ERROR(node.normalize_axis(value, rank, &axis));
    if ((*bits >> axis & 1u) != 0) return node.fail("axis %" PRId64 " occurs twice", axis);
    *bits |= 1u << axis;
  }
  return {};
}

Status expect_list(const TensorNode& node, int i) {
  LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kI64, DType::kI32}));
  if (node.has(i) && node.rank(i) > 1) {
    return node.fail("input %d is a list, and has rank %d", i, node.rank(i));
  }
  return {};
}

Status scalar_integer(const TensorNode& node, int i, int64_t* value) {
  if (node.shape(i).elements() != 1) {
    return node.fail("input %d has shape %s; it is one number", i,
                     node.shape(i).to_string().c_str());
  }
  const auto from_float = [&](double x) -> Status {
    if (!(std::abs(x) < 0x1p62)) return node.fail("input %d is %g", i, x);
    *value = static_cast<int64_t>(x);
    return {};
  };
  switch (node.dtype(i)) {
    case DType::kI64:
      return *value = *node.data<int64_t>(i), Status();
    case DType::kI32:
      return *value = *node.data<int32_t>(i), Status();
    case DType::kI16:
      return *value = *node.data<int16_t>(i), Status();
    case DType::kI8:
      return *value = *node.data<int8_t>(i), Status();
    case DType::kU8:
      return *value = *node.data<uint8_t>(i), Status();
    case DType::kU16:
      return *value = *node.data<uint16_t>(i), Status();
    case DType::kU32:
      return *value = *node.data<uint32_t>(i), Status();
    case DType::kU64:
      return from_float(static_cast<double>(*node.data<uint64_t>(i)));
    case DType::kF32:
      return from_float(*node.data<float>(i));
    case DType::kF64:
      return from_float(*node.data<double>(i));
    case DType::kF16:
      return from_float(f16_to_f32(*node.data<uint16_t>(i)));
    case DType::kBF16:
      return from_float(bf16_to_f32(*node.data<uint16_t>(i)));
    default:
      return node.unsupported("input %d is %s; it is a number", i,
                              std::string(info(node.dtype(i)).name).c_str());
  }
}

Status shape_of_list(const TensorNode& node, int i, Shape* shape) {
  const std::vector<int64_t> sizes = node.integers(i);
  if (sizes.size() > kMaxRank) {
    return node.unsupported("rank %zu; at most %d", sizes.size(), kMaxRank);
  }
  *shape = Shape{};
  for (const int64_t size : sizes) {
    if (size < 0) return node.fail("a size of %" PRId64 " in input %d", size, i);
    (*shape)[shape->rank++] = size;
  }
  return {};
}

Shape unknown_sizes(int rank) {
  Shape shape;
  shape.rank = rank;
  for (int i = 0; i < rank; ++i) shape[i] = kUnknownSize;
  return shape;
}

Status dtype_of_onnx(const TensorNode& node, int64_t number, DType* dtype) {
  // TensorProto.DataType of onnx.proto; 14 and 15 are the complex types.
  static constexpr DType kTypes[] = {
      DType::kF32,        DType::kF32,  DType::kU8,       DType::kI8,         DType::kU16,
      DType::kI16,        DType::kI32,  DType::kI64,      DType::kString,     DType::kBool,
      DType::kF16,        DType::kF64,  DType::kU32,      DType::kU64,        DType::kF32,
      DType::kF32,        DType::kBF16, DType::kF8E4M3FN, DType::kF8E4M3FNUZ, DType::kF8E5M2,
      DType::kF8E5M2FNUZ, DType::kU4,   DType::kI4,       DType::kF4E2M1,     DType::kF8E8M0,
      DType::kU2,         DType::kI2};
  constexpr int64_t kCount = sizeof kTypes / sizeof kTypes[0];
  if (number < 1 || number >= kCount || number == 14 || number == 15) {
    return node.unsupported("element type %" PRId64 " of ONNX", number);
  }
  *dtype = kTypes[number];
  return {};
}

}  // namespace lmn::ops
