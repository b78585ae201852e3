// SPDX-License-Identifier: Apache-2.0
//
// The activations that products of this project's own operators take along, by name.
#pragma once

#include <cstdint>
#include <string_view>

#include "cpu/kernels/isa.h"
#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {

using RowFunction = void (*)(const float* x, float* y, int64_t count);  // y may be x

template <float (*kFunction)(float)>
void apply_to_row(const float* x, float* y, int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = kFunction(x[i]);
}
// The same in vectors of 32 bytes: the same bits, as nothing is fused.
#if defined(__x86_64__)
template <float (*kFunction)(float)>
[[gnu::target("avx2"), gnu::flatten]] void apply_to_row_wide(const float* x, float* y,
                                                             int64_t count) {
  LMN_VECTOR_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = kFunction(x[i]);
}
inline bool has_wide_rows(const IsaKernels& isa) {
  return &isa == &avx2::kKernels || &isa == &avx512::kKernels;
}
#else
template <float (*kFunction)(float)>
void apply_to_row_wide(const float* x, float* y, int64_t count) {
  apply_to_row<kFunction>(x, y, count);
}
inline bool has_wide_rows(const IsaKernels&) { return false; }
#endif

namespace row_functions {
inline float relu(float x) { return x < 0 ? 0.0f : x; }  // a NaN stays one
inline float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + vector_math::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}
inline float hard_swish(float x) { return x * vector_math::clamp(x / 6 + 0.5f, 0.0f, 1.0f); }
}  // namespace row_functions

// Null for the name "" of none. False: there is none of that name.
inline bool find_linear_activation(std::string_view name, const IsaKernels& isa,
                                   RowFunction* found) {
#define LMN_BOTH(name, function) \
  { name, apply_to_row<function>, apply_to_row_wide<function> }
  static constexpr struct {
    std::string_view name;
    RowFunction any, wide;
  } kActivations[] = {
      {"", nullptr, nullptr},
      LMN_BOTH("Relu", row_functions::relu),
      LMN_BOTH("Gelu", vector_math::gelu),
      LMN_BOTH("GeluTanh", row_functions::gelu_tanh),
      LMN_BOTH("Silu", vector_math::silu),
      LMN_BOTH("Tanh", vector_math::tanh),
      LMN_BOTH("Sigmoid", vector_math::sigmoid),
      LMN_BOTH("HardSwish", row_functions::hard_swish),
  };
#undef LMN_BOTH
  for (const auto& activation : kActivations) {
    if (activation.name != name) continue;
    *found = has_wide_rows(isa) ? activation.wide : activation.any;
    return true;
  }
  return false;
}

}  // namespace lmn::cpu
