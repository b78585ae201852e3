// SPDX-License-Identifier: Apache-2.0
//
// Elements that move: from one walk of strides to another. An element is a unit of 1 to 16 bytes,
// as wide as what lies side by side in both tensors allows. Where the source's neighbours are not
// the destination's, a tile goes through shared memory, so that both are read and written in rows.
#pragma once

#include "cuda/core/simt.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kCopyThreads = 256, kCopyRank = 16;
inline constexpr int kTile = 32, kTileRows = kCopyThreads / kTile;

// Strides and offsets are in units; those of the source may go backwards, modulo 2^32.
struct CopyParams {
  const void* x;
  void* y;
  uint32_t count;
  int32_t rank;
  uint32_t x_offset, y_offset;
  uint32_t sizes[kCopyRank], from[kCopyRank], to[kCopyRank];
};

template <typename T>
LMN_KERNEL(kCopyThreads, 4)
void copy_units(CopyParams p) {
  simt::wait_for_previous();
  uint32_t i = static_cast<uint32_t>(simt::block_x()) * kCopyThreads +
               static_cast<uint32_t>(simt::thread_index());
  if (i >= p.count) return;
  uint32_t x = p.x_offset, y = p.y_offset;
  for (int d = p.rank - 1; d >= 0; --d) {
    const uint32_t rest = d == 0 ? 0 : i / p.sizes[d];
    const uint32_t at = i - rest * p.sizes[d];
    x += at * p.from[d];
    y += at * p.to[d];
    i = rest;
  }
  static_cast<T*>(p.y)[y] = static_cast<const T*>(p.x)[x];
}

// Dimensions rank - 2 and rank - 1 are a matrix: the source is dense along the first of them, the
// destination along the second. A block moves a tile of it.
template <typename T>
LMN_KERNEL(kCopyThreads, 4)
void copy_transposed(CopyParams p) {
  simt::wait_for_previous();
  T* tile = reinterpret_cast<T*>(simt::shared_memory());  // [kTile][kTile + 1]
  const int last = p.rank - 1, rows_at = p.rank - 2;
  const uint32_t rows = p.sizes[rows_at], columns = p.sizes[last];
  const uint32_t across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  uint32_t block = static_cast<uint32_t>(simt::block_x());
  const uint32_t column = block % across * kTile;
  block /= across;
  const uint32_t row = block % down * kTile;
  block /= down;
  uint32_t x = p.x_offset, y = p.y_offset;
  for (int d = rows_at - 1; d >= 0; --d) {
    const uint32_t at = block % p.sizes[d];
    block /= p.sizes[d];
    x += at * p.from[d];
    y += at * p.to[d];
  }
  const auto lane = static_cast<uint32_t>(simt::lane()), warp = static_cast<uint32_t>(simt::warp());
  for (uint32_t i = warp; i < kTile; i += kTileRows) {  // along a column of the matrix
    if (row + lane < rows && column + i < columns) {
      tile[i * (kTile + 1) + lane] =
          static_cast<const T*>(p.x)[x + (row + lane) + (column + i) * p.from[last]];
    }
  }
  simt::sync_block();
  for (uint32_t i = warp; i < kTile; i += kTileRows) {
    if (row + i < rows && column + lane < columns) {
      static_cast<T*>(p.y)[y + (row + i) * p.to[rows_at] + (column + lane)] =
          tile[lane * (kTile + 1) + i];
    }
  }
}

}  // namespace lmn::cuda::tensor
