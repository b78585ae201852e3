// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/embedding.cuh"
#include "cuda/kernels/linear/weight_types.h"
#include "ops/packed_matrix.h"

namespace lmn::cuda {
namespace {

constexpr int64_t kMostRows = 65535;  // of a grid's second dimension

template <DType kType>
void launch_embedding(EmbeddingParams p, int64_t rows, ops::LaunchQueue& queue) {
  for (int64_t row = 0; row < rows; row += kMostRows) {
    simt::launch<embedding<kType>>(queue,
                                   {blocks(simt::div_up(p.columns, kEmbeddingThreads)),
                                    blocks(std::min(rows - row, kMostRows)), 1, kEmbeddingThreads},
                                   p);
    p.ids += kMostRows;
    p.y += kMostRows * p.columns;
  }
}

}  // namespace

void launch_op(const ops::EmbeddingArgs& a, ops::LaunchQueue& queue) {
  for (const ops::PackedSegment& s : a.table->segments) {
    const EmbeddingParams p{a.table->data + s.offset,
                            panel_bytes(s.source, a.columns),
                            s.row_begin,
                            s.rows,
                            a.ids,
                            a.y,
                            a.columns};
    const auto launch = [&]<DType kType>() { launch_embedding<kType>(p, a.rows, queue); };
    if (s.source == DType::kF32) {
      launch.template operator()<DType::kF32>();
    } else if (s.source == DType::kF16) {
      launch.template operator()<DType::kF16>();
    } else if (s.source == DType::kBF16) {
      launch.template operator()<DType::kBF16>();
    } else {
      with_quantized_type(s.source, launch);
    }
  }
}

}  // namespace lmn::cuda
