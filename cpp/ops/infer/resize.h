// SPDX-License-Identifier: Apache-2.0
//
// Resize and Upsample: what their inputs and attributes say, for inference and for kernels.
#pragma once

#include <array>
#include <vector>

#include "ops/tensor_op.h"

namespace lmn::ops {

enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
enum class Coordinates : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kCrop
};
enum class NearestMode : uint8_t { kPreferFloor, kPreferCeil, kFloor, kCeil };

struct Resizing {
  ResizeMode mode = ResizeMode::kNearest;
  Coordinates coordinates = Coordinates::kHalfPixel;
  NearestMode nearest = NearestMode::kPreferFloor;
  bool antialias = false, exclude_outside = false;
  float cubic = -0.75f, extrapolation = 0;
  // Of every dimension.
  std::array<double, kMaxRank> scale{}, begin{}, end{};  // begin and end of the region, for kCrop
  Shape out;             // of unknown rank where scales and sizes are not known
  bool complete = true;  // all that a kernel needs is known
};

Status read_resize(const TensorNode& node, Resizing* resizing);

// The values of operand i, floats of any type that are known, as doubles.
Status float_values(const TensorNode& node, int i, std::vector<double>* values);

}  // namespace lmn::ops
