// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of 3x3 with a stride of 1 by Winograd's F(2x2, 3x3) (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016): four outputs for 16 products a channel
// where sums over taps take 36. Tiles lie where the image begins, whatever is done together, so
// results depend on the image alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kernels/isa.h"
#include "cpu/tensor/linear_activation.h"
#include "ops/infer/convolutions.h"
#include "ops/tensor_kernel.h"

namespace lmn::cpu {

// Whether it is faster: enough positions in an image for the 16 matrices of weights, which are
// almost twice as large as the weights w. And whether these are of one size: what is computed
// mixes the products of a tile, which are taken apart again by differences, so that a weight that
// dwarfs the others would spoil outputs that it does not even touch.
bool suits_winograd(const ops::Convolution& convolution, const float* w);

// The matrices, each in panels of `lanes` output channels.
struct WinogradWeights {
  int64_t panel_size = 0, panels = 0;
  std::vector<std::byte> memory;
  const std::byte* data = nullptr;  // in memory, 64-byte aligned
};
// w: [outputs, channels, 3, 3]
WinogradWeights pack_winograd(const float* w, int64_t outputs, int64_t channels,
                              const IsaKernels& isa);

// A convolution's share of a worker. What becomes of sums is IndirectTask's, whose bias, residual,
// y and limits are read, for the whole output.
class Winograd {
 public:
  Winograd(const ops::Convolution& convolution, const WinogradWeights& weights,
           const IsaKernels& isa);
  size_t scratch_bytes() const;
  // zeros: the channels of one position. `apply` (or null) is applied to the outputs in the end.
  void run(const float* x, const float* zeros, const IndirectTask& ending, RowFunction apply,
           const ops::Worker& worker) const;

 private:
  struct Tile;
  void transform_inputs(const float* x, const float* zeros, int64_t first, int64_t count,
                        float* to) const;
  void transform_outputs(const float* sums, int64_t first, int64_t count, int64_t channel,
                         int64_t channels, const IndirectTask& ending, RowFunction apply,
                         float* spare) const;
  Tile tile_at(int64_t index) const;

  ops::Convolution c_;
  const WinogradWeights& weights_;
  ConvolutionKernels kernels_;
  int64_t lanes_, tiles_down_, tiles_across_, block_;
  bool wide_;  // vectors of 32 bytes
};

}  // namespace lmn::cpu
