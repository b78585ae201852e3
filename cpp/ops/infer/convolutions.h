// SPDX-License-Identifier: Apache-2.0
//
// Geometry of convolutions, for inference and for kernels.
#pragma once

#include "ops/infer/spatial.h"

namespace lmn::ops {

// x [batch, channels, spatial...], w [outputs, channels / groups, kernel...]. For ConvTranspose, w
// is [channels, outputs / groups, kernel...], windows.in are the sizes of x and windows.out those
// of the output.
struct Convolution {
  Windows windows;
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
};

Status read_convolution(const TensorNode& node, Convolution* convolution);
Status read_transposed_convolution(const TensorNode& node, Convolution* convolution);

// Col2Im: in are numbers of blocks, out the image.
Status read_image(const TensorNode& node, Windows* windows);

}  // namespace lmn::ops
