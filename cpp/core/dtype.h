// SPDX-License-Identifier: Apache-2.0
//
// DType: the element types of tensors, plain and block-quantised, and the three numbers that
// describe each. The block formats are those of the GGUF specification (ggml block layouts).
#pragma once

#include <cstdint>
#include <string_view>

namespace lmn {

// X(enumerator, "name", elements per block, bytes per block)
#define LMN_DTYPES(X)                \
  X(kF32, "f32", 1, 4)               \
  X(kF16, "f16", 1, 2)               \
  X(kBF16, "bf16", 1, 2)             \
  X(kF64, "f64", 1, 8)               \
  X(kI8, "i8", 1, 1)                 \
  X(kI16, "i16", 1, 2)               \
  X(kI32, "i32", 1, 4)               \
  X(kI64, "i64", 1, 8)               \
  X(kU8, "u8", 1, 1)                 \
  X(kBool, "bool", 1, 1)             \
  X(kQ4_0, "q4_0", 32, 18)           \
  X(kQ4_1, "q4_1", 32, 20)           \
  X(kQ5_0, "q5_0", 32, 22)           \
  X(kQ5_1, "q5_1", 32, 24)           \
  X(kQ8_0, "q8_0", 32, 34)           \
  X(kQ4_K, "q4_k", 256, 144)         \
  X(kQ5_K, "q5_k", 256, 176)         \
  X(kQ6_K, "q6_k", 256, 210)         \
  X(kQA8, "qa8", 32, 40)             \
  X(kQA16, "qa16", 32, 72)           \
  X(kU16, "u16", 1, 2)               \
  X(kU32, "u32", 1, 4)               \
  X(kU64, "u64", 1, 8)               \
  X(kF8E4M3FN, "f8e4m3fn", 1, 1)     \
  X(kF8E4M3FNUZ, "f8e4m3fnuz", 1, 1) \
  X(kF8E5M2, "f8e5m2", 1, 1)         \
  X(kF8E5M2FNUZ, "f8e5m2fnuz", 1, 1) \
  X(kF8E8M0, "f8e8m0", 1, 1)         \
  X(kF4E2M1, "f4e2m1", 1, 1)         \
  X(kI4, "i4", 1, 1)                 \
  X(kU4, "u4", 1, 1)                 \
  X(kI2, "i2", 1, 1)                 \
  X(kU2, "u2", 1, 1)                 \
  X(kString, "string", 1, 32)

// Types narrower than a byte are packed in files only: in memory an element is a byte,
// sign-extended for kI4 and kI2, the low bits for the others. A kString element is a std::string,
// which never crosses a device or the C ABI as bytes. kQA8 and kQA16 are the activation formats of
// the integer kernels, never a file format: see ops/quantized_rows.h.

enum class DType : uint8_t {
#define X(e, name, elements, bytes) e,
  LMN_DTYPES(X)
#undef X
};

struct DTypeInfo {
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

inline constexpr DTypeInfo kDTypeInfo[] = {
#define X(e, name, elements, bytes) {name, elements, bytes},
    LMN_DTYPES(X)
#undef X
};

inline constexpr const DTypeInfo& info(DType type) { return kDTypeInfo[static_cast<int>(type)]; }
inline constexpr bool is_block_quantized(DType type) { return info(type).block_elements > 1; }

}  // namespace lmn
