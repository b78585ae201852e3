// SPDX-License-Identifier: Apache-2.0
//
// What the lists of Slice, Pad and CenterCropPad mean for every axis: inference derives shapes from
// it, and kernels the elements that they move.
#pragma once

#include <array>

#include "ops/tensor_op.h"

namespace lmn::ops {

// Elements start, start + step, … of an axis, `count` of them; unknown sizes give unknown counts.
struct SliceAxis {
  int64_t start = 0, step = 1, count = 0;
};
using SliceAxes = std::array<SliceAxis, kMaxRank>;
// Of a Slice whose lists are all known.
Status slice_axes(const TensorNode& node, SliceAxes* out);

// Elements that an axis gets before its first and after its last; below 0: that many are cut off.
struct PadAxis {
  int64_t begin = 0, end = 0;
};
using PadAxes = std::array<PadAxis, kMaxRank>;
// Of a Pad whose lists are known.
Status pad_axes(const TensorNode& node, PadAxes* out);
// Of a CenterCropPad whose shape is known, where the sizes of its axes are.
Status center_axes(const TensorNode& node, PadAxes* out);

enum class PadMode : uint8_t { kConstant, kReflect, kEdge, kWrap };
Status pad_mode(const TensorNode& node, PadMode* mode);

}  // namespace lmn::ops
