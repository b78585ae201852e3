// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/embedding.cuh"
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
    switch (s.source) {
#define LMN_TYPE(type)                               \
  case DType::type:                                  \
    launch_embedding<DType::type>(p, a.rows, queue); \
    break;
      LMN_TYPE(kF32)
      LMN_TYPE(kF16)
      LMN_TYPE(kBF16)
      LMN_TYPE(kQ8_0)
      LMN_TYPE(kQ4_0)
      LMN_TYPE(kQ4_1)
      LMN_TYPE(kQ5_0)
      LMN_TYPE(kQ5_1)
      LMN_TYPE(kQ4_K)
      LMN_TYPE(kQ5_K)
      LMN_TYPE(kQ6_K)
#undef LMN_TYPE
      default:
        break;  // plan_pack takes no others
    }
  }
}

}  // namespace lmn::cuda
