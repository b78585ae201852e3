// SPDX-License-Identifier: Apache-2.0
//
// PackedMatrix: the weight of a linear layer (or an embedding table) in the layout one kernel
// family wants. Built once when a model is loaded, by KernelTable::pack; read-only and shared by
// all threads afterwards. The bytes belong to whoever allocated them (a plan, from its device).
//
// Output channels are grouped in panels whose width is the kernel's vector width, so that vector
// lanes are output channels: a sum along K never crosses lanes, and the matrix-vector and
// matrix-matrix kernels add in the same order. A matrix merged from several tensors (q, k and v) is
// a list of segments, one per source tensor, each with its own type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace lmn::ops {

struct PackedSegment {
  DType source = DType::kF32;  // type in the file
  int64_t row_begin = 0;       // first output channel of this segment in the matrix
  int64_t rows = 0;            // output channels (the last panel may be partly padding)
  int64_t offset = 0;          // bytes from PackedMatrix::data, a multiple of 64
  int64_t bytes = 0;
};

struct PackedMatrix {
  int64_t rows = 0;                // output channels (n)
  int64_t columns = 0;             // input channels (k)
  DType input_type = DType::kF32;  // what a Linear with this weight reads: kF32, kQA8 or kQA16
  // Two tensors of equal shape and type (gate and up) whose panels alternate; Linear then computes
  // silu(gate) * up.
  bool interleaved = false;
  std::vector<PackedSegment> segments;
  int64_t bytes = 0;  // size of `data`
  const std::byte* data = nullptr;
};

}  // namespace lmn::ops
