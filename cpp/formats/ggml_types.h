// SPDX-License-Identifier: Apache-2.0
//
// The tensor types that GGUF files number: names and block layouts of all known ones, and which of
// them are a DType of this library. Numbers never change meaning (ggml.h: enum ggml_type).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace lmn::formats {

struct GgmlType {
  uint32_t number;
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
  std::optional<DType> dtype;  // none: known, but this build does not compute with it
};

const GgmlType* find_ggml_type(uint32_t number);  // null when unknown
// "f32, f16, …, q6_k": the supported types of weights, for messages.
std::string weight_ggml_types();

}  // namespace lmn::formats
