// SPDX-License-Identifier: Apache-2.0
//
// The activations that products of this project's own operators take along, by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {

using RowFunction = void (*)(const float* x, float* y, int64_t count);  // y may be x

struct LinearActivation {
  std::string_view name;
  RowFunction apply;  // null: nothing
};

template <float (*kFunction)(float)>
void apply_to_row(const float* x, float* y, int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = kFunction(x[i]);
}

namespace row_functions {
inline float relu(float x) { return x < 0 ? 0.0f : x; }  // a NaN stays one
inline float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + vector_math::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}
inline float hard_swish(float x) { return x * vector_math::clamp(x / 6 + 0.5f, 0.0f, 1.0f); }
}  // namespace row_functions

// Null: there is none of that name.
inline const LinearActivation* find_linear_activation(std::string_view name) {
  static constexpr LinearActivation kActivations[] = {
      {"", nullptr},
      {"Relu", apply_to_row<row_functions::relu>},
      {"Gelu", apply_to_row<vector_math::gelu>},
      {"GeluTanh", apply_to_row<row_functions::gelu_tanh>},
      {"Silu", apply_to_row<vector_math::silu>},
      {"Tanh", apply_to_row<vector_math::tanh>},
      {"Sigmoid", apply_to_row<vector_math::sigmoid>},
      {"HardSwish", apply_to_row<row_functions::hard_swish>},
  };
  const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                   [&](const LinearActivation& a) { return a.name == name; });
  return found == std::end(kActivations) ? nullptr : found;
}

}  // namespace lmn::cpu
