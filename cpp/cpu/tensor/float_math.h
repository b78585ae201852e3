// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh and the logistic function for loops that are templates over the type in which they
// compute: float takes those that become vectors (vector_math.h), double the standard library's.
#pragma once

#include <cmath>

#include "cpu/tensor/vector_math.h"

namespace lmn::cpu {

inline float fast_exp(float x) { return vector_math::exp(x); }
inline double fast_exp(double x) { return std::exp(x); }
inline float fast_tanh(float x) { return vector_math::tanh(x); }
inline double fast_tanh(double x) { return std::tanh(x); }
inline float fast_sigmoid(float x) { return vector_math::sigmoid(x); }
inline double fast_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace lmn::cpu
