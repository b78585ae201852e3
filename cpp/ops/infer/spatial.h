// SPDX-License-Identifier: Apache-2.0
//
// Windows that slide over the spatial dimensions of [batch, channels, spatial...]: convolutions and
// poolings. Read from a node's attributes by inference, and again when a kernel is bound, by the
// same function. All numbers are bounded so that no sum or product of two of them overflows.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ops/infer/axes.h"
#include "ops/tensor_op.h"

namespace lmn::ops {

inline constexpr int kMaxSpatial = kMaxRank - 2;
using SpatialSizes = std::array<int64_t, kMaxSpatial>;

struct Windows {
  int rank = 0;  // number of spatial dimensions
  SpatialSizes kernel{}, stride{}, dilation{}, pad_begin{}, pad_end{}, in{}, out{};

  // Positions of one window, and of all windows of one channel.
  int64_t taps() const { return product(kernel); }
  int64_t inputs() const { return product(in); }
  int64_t outputs() const { return product(out); }
  int64_t product(const SpatialSizes& sizes) const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[static_cast<size_t>(i)];
    return n;
  }
};

// `count` numbers of attribute `key`, each between least and most; `fallback` where it is absent.
Status read_sizes(const TensorNode& node, const char* key, int count, int64_t least, int64_t most,
                  int64_t fallback, int64_t* out);

// Attributes strides, dilations, pads and auto_pad of a window of these kernel sizes over x, of
// rank 3 at least; sizes may be unknown, and then those of the output are. ceil: a last window that
// begins inside the (left padded) input counts though it ends outside.
Status read_windows(const TensorNode& node, const Shape& x, std::span<const int64_t> kernel,
                    bool ceil, Windows* windows);

}  // namespace lmn::ops
