// SPDX-License-Identifier: Apache-2.0
//
// Rows that are chosen by index along one axis: [outer, size, inner] of units becomes [outer,
// count, inner]. A thread takes a unit of the output. An index that names nothing is a failure and
// writes nothing.
#pragma once

#include "cuda/kernels/tensor/values.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kGatherThreads = 256;

struct GatherParams {
  const void* x;
  const void* indices;
  void* y;
  uint64_t* failure;
  uint64_t refusal;
  uint32_t elements;  // units of the output
  uint32_t size, count, inner;
  DType index_type;
};

template <typename T>
LMN_KERNEL(kGatherThreads, 4)
void gather_units(GatherParams p) {
  simt::wait_for_previous();
  const uint32_t i = static_cast<uint32_t>(simt::block_x()) * kGatherThreads +
                     static_cast<uint32_t>(simt::thread_index());
  if (i >= p.elements) return;
  const uint32_t row = i / p.inner, outer = row / p.count;
  int64_t index = load<int64_t>(p.indices, p.index_type, row - outer * p.count);
  if (index < 0) index += p.size;
  if (index < 0 || index >= p.size) return note_failure(p.failure, p.refusal);
  const uint32_t from = (outer * p.size + static_cast<uint32_t>(index)) * p.inner + i % p.inner;
  static_cast<T*>(p.y)[i] = static_cast<const T*>(p.x)[from];
}

}  // namespace lmn::cuda::tensor
