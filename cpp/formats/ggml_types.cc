// SPDX-License-Identifier: Apache-2.0
#include "formats/ggml_types.h"

namespace lmn::formats {
namespace {

constexpr GgmlType known(uint32_t number, DType dtype) {
  return {number, info(dtype).name, info(dtype).block_elements, info(dtype).block_bytes, dtype};
}
constexpr GgmlType foreign(uint32_t number, std::string_view name, uint32_t elements,
                           uint32_t bytes) {
  return {number, name, elements, bytes, std::nullopt};
}

// 4 and 5 (q4_2, q4_3) were withdrawn before GGUF existed. 31 to 33 and 36 to 38 were written for a
// while: their blocks, interleaved by rows, are as large as the plain type's. q8_1 is 36 bytes in
// ggml (two halves and 32 bytes); the Python gguf package still says 40.
constexpr GgmlType kTypes[] = {
    known(0, DType::kF32),
    known(1, DType::kF16),
    known(30, DType::kBF16),
    known(8, DType::kQ8_0),
    known(2, DType::kQ4_0),
    known(3, DType::kQ4_1),
    known(6, DType::kQ5_0),
    known(7, DType::kQ5_1),
    known(12, DType::kQ4_K),
    known(13, DType::kQ5_K),
    known(14, DType::kQ6_K),
    known(24, DType::kI8),
    known(25, DType::kI16),
    known(26, DType::kI32),
    known(27, DType::kI64),
    known(28, DType::kF64),
    foreign(9, "q8_1", 32, 36),
    foreign(10, "q2_k", 256, 84),
    foreign(11, "q3_k", 256, 110),
    foreign(15, "q8_k", 256, 292),
    foreign(16, "iq2_xxs", 256, 66),
    foreign(17, "iq2_xs", 256, 74),
    foreign(18, "iq3_xxs", 256, 98),
    foreign(19, "iq1_s", 256, 50),
    foreign(20, "iq4_nl", 32, 18),
    foreign(21, "iq3_s", 256, 110),
    foreign(22, "iq2_s", 256, 82),
    foreign(23, "iq4_xs", 256, 136),
    foreign(29, "iq1_m", 256, 56),
    foreign(31, "q4_0_4_4", 32, 18),
    foreign(32, "q4_0_4_8", 32, 18),
    foreign(33, "q4_0_8_8", 32, 18),
    foreign(34, "tq1_0", 256, 54),
    foreign(35, "tq2_0", 256, 66),
    foreign(36, "iq4_nl_4_4", 32, 18),
    foreign(37, "iq4_nl_4_8", 32, 18),
    foreign(38, "iq4_nl_8_8", 32, 18),
    foreign(39, "mxfp4", 32, 17),
    foreign(40, "nvfp4", 64, 36),
    foreign(41, "q1_0", 128, 18),
};

}  // namespace

const GgmlType* find_ggml_type(uint32_t number) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

std::string weight_ggml_types() {
  std::string names;
  for (const GgmlType& type : kTypes) {
    if (!type.dtype) continue;
    const bool is_float =
        *type.dtype == DType::kF32 || *type.dtype == DType::kF16 || *type.dtype == DType::kBF16;
    if (!is_float && !is_block_quantized(*type.dtype)) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace lmn::formats
