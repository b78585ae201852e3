// SPDX-License-Identifier: Apache-2.0
//
// From a DType to a C++ type, for kernels that are templates over it. Floats of 16 bits are read
// and written through Half and BFloat, which convert to and from float.
#pragma once

#include <cstdint>
#include <string>

#include "core/float16.h"
#include "cpu/tensor/tensor_kernels.h"

namespace lmn::cpu {

struct Half {
  uint16_t bits;
  Half() = default;
  Half(float value) : bits(f32_to_f16(value)) {}       // NOLINT: implicit by design
  operator float() const { return f16_to_f32(bits); }  // NOLINT: implicit by design
};
struct BFloat {
  uint16_t bits;
  BFloat() = default;
  BFloat(float value) : bits(f32_to_bf16(value)) {}     // NOLINT: implicit by design
  operator float() const { return bf16_to_f32(bits); }  // NOLINT: implicit by design
};

template <typename T>
struct TypeTag {
  using type = T;
};

// f(TypeTag<T>) for the C++ type of `dtype`, among the types that are wanted; UNSUPPORTED names the
// operator and the type otherwise. f returns a Status.
template <typename F>
Status with_float(const ops::TensorNode& node, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kF64:
      return f(TypeTag<double>{});
    case DType::kF16:
      return f(TypeTag<Half>{});
    case DType::kBF16:
      return f(TypeTag<BFloat>{});
    default:
      return node.unsupported("no kernel for %s; it takes f32, f64, f16 and bf16",
                              std::string(info(dtype).name).c_str());
  }
}

template <typename F>
Status with_integer(const ops::TensorNode& node, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI8:
      return f(TypeTag<int8_t>{});
    case DType::kI16:
      return f(TypeTag<int16_t>{});
    case DType::kI32:
      return f(TypeTag<int32_t>{});
    case DType::kI64:
      return f(TypeTag<int64_t>{});
    case DType::kU8:
      return f(TypeTag<uint8_t>{});
    case DType::kU16:
      return f(TypeTag<uint16_t>{});
    case DType::kU32:
      return f(TypeTag<uint32_t>{});
    case DType::kU64:
      return f(TypeTag<uint64_t>{});
    default:
      return node.unsupported("no kernel for %s; it takes integers",
                              std::string(info(dtype).name).c_str());
  }
}

// Floats and integers.
template <typename F>
Status with_number(const ops::TensorNode& node, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16:
      return with_float(node, dtype, f);
    default:
      return with_integer(node, dtype, f);
  }
}

// For kernels that only move elements: an unsigned integer of the element's size. Not for strings.
template <typename F>
Status with_size(const ops::TensorNode& node, DType dtype, F&& f) {
  switch (info(dtype).block_bytes) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    case 8:
      return f(TypeTag<uint64_t>{});
    default:
      return node.unsupported("no kernel for %s", std::string(info(dtype).name).c_str());
  }
}

}  // namespace lmn::cpu
