// SPDX-License-Identifier: Apache-2.0
//
// Matrix products in float32, of operands of any float type and any strides. Of each output the
// products are added with fma in the order of the inner dimension, in chunks of kChunk from zero
// each; the chunks' sums are added in order. So the bits of a row are the same in every tile, and
// whether a block makes all chunks or one of them.
#pragma once

#include "cuda/kernels/tensor/element_op.h"
#include "cuda/kernels/tensor/values.cuh"

namespace lmn::cuda::tensor {

inline constexpr int kProductThreads = 256;  // 16 x 16
inline constexpr int kProductColumns = 64, kProductDepth = 16;
// Long enough that what is added between chunks is little, short enough that few rows of a wide
// matrix keep a whole GPU busy.
inline constexpr int kChunk = 512;

// What becomes of a sum: activation(alpha * sum + beta * c) + residual.
struct Epilogue {
  const void* c;
  const void* residual;
  void* y;
  DType c_type, residual_type, y_type;
  uint32_t c_row, c_column;  // strides
  uint32_t residual_rows;    // it repeats after so many
  float alpha, beta;
  ElementOp activation;
  float numbers[2];
};

struct ProductParams {
  const void* x;
  const void* w;
  float* partial;  // [chunks][batches][rows][columns]: a block makes one chunk. Null: it makes all
  DType x_type, w_type;
  uint32_t batches, rows, inner, columns;
  uint32_t x_row, x_inner, w_inner, w_column;
  int32_t batch_rank;
  uint32_t batch_sizes[8], x_batch[8], w_batch[8];
  Epilogue epilogue;
};

LMN_DEVICE float activate(const Epilogue& e, float v) {
  switch (e.activation) {
    case ElementOp::kRelu:
      return v < 0 ? 0.0f : v;
    case ElementOp::kGelu:
      return functions::gelu(v);
    case ElementOp::kGeluTanh:
      return functions::gelu_tanh(v);
    case ElementOp::kSwish:
      return functions::swish(v, 1.0f);
    case ElementOp::kTanh:
      return tanhf(v);
    case ElementOp::kSigmoid:
      return functions::sigmoid(v);
    case ElementOp::kLeakyRelu:
      return v < 0 ? e.numbers[0] * v : v;
    case ElementOp::kHardSigmoid:
      return functions::clamped_line(v, e.numbers[0], e.numbers[1]);
    default:
      return v;
  }
}

// `row` among those of all batches.
LMN_DEVICE void finish_output(const Epilogue& e, uint32_t row, uint32_t column, uint32_t columns,
                              float sum) {
  float v = e.alpha == 1.0f ? sum : e.alpha * sum;
  if (e.c != nullptr) {
    const float c = load<float>(e.c, e.c_type, row * e.c_row + column * e.c_column);
    v += e.beta == 1.0f ? c : e.beta * c;
  }
  v = activate(e, v);
  if (e.residual != nullptr)
    v += load<float>(e.residual, e.residual_type, row % e.residual_rows * columns + column);
  store(e.y, e.y_type, row * columns + column, v);
}

// What a block made of an output: all of it, or one chunk. `row` among those of all batches.
LMN_DEVICE void put_output(const ProductParams& p, uint32_t chunk, uint32_t row, uint32_t column,
                           float sum) {
  if (p.partial == nullptr) {
    finish_output(p.epilogue, row, column, p.columns, sum);
  } else {
    p.partial[(uint64_t{chunk} * p.batches * p.rows + row) * p.columns + column] = sum;
  }
}

// What a block makes: of a tile of kRows x kProductColumns, the chunks from `first_chunk` to before
// `end_chunk`. Tiles of all columns come before those of the next rows, then chunks, then batches.
struct BlockTile {
  uint32_t row, column, first_chunk, end_chunk, batch;
  uint32_t x_at, w_at;  // where the batch's matrices begin, in elements
};
template <int kRows>
LMN_DEVICE BlockTile block_tile(const ProductParams& p) {
  const uint32_t across = (p.columns + kProductColumns - 1) / kProductColumns;
  const uint32_t down = (p.rows + kRows - 1) / kRows;
  const uint32_t chunks = (p.inner + kChunk - 1) / kChunk;
  auto block = static_cast<uint32_t>(simt::block_x());
  BlockTile tile{};
  tile.column = block % across * kProductColumns;
  block /= across;
  tile.row = block % down * kRows;
  block /= down;
  tile.end_chunk = chunks;
  if (p.partial != nullptr) {
    tile.first_chunk = block % chunks;
    tile.end_chunk = tile.first_chunk + 1;
    block /= chunks;
  }
  tile.batch = block;
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    const uint32_t at = block % p.batch_sizes[d];
    block /= p.batch_sizes[d];
    tile.x_at += at * p.x_batch[d];
    tile.w_at += at * p.w_batch[d];
  }
  return tile;
}

// A thread has kRows / 16 rows and 4 columns of the block's tile.
template <int kRows>
LMN_KERNEL(kProductThreads, 2)
void product(ProductParams p) {
  simt::wait_for_previous();
  constexpr int kOwnRows = kRows / 16, kOwnColumns = kProductColumns / 16;
  constexpr int kRowFetches = kRows * kProductDepth / kProductThreads;
  constexpr int kColumnFetches = kProductColumns * kProductDepth / kProductThreads;
  constexpr int kRowStride = kRows + 4, kColumnStride = kProductColumns + 4;  // of banks
  float* rows = reinterpret_cast<float*>(simt::shared_memory());              // [depth][kRowStride]
  float* columns = rows + kProductDepth * kRowStride;  // [depth][kColumnStride]

  const BlockTile tile = block_tile<kRows>(p);
  const uint32_t row = tile.row, column = tile.column;

  const auto thread = static_cast<uint32_t>(simt::thread_index());
  const uint32_t own_row = thread / 16 * kOwnRows, own_column = thread % 16 * kOwnColumns;
  float next_rows[kRowFetches], next_columns[kColumnFetches];
  // Neighbouring threads read neighbouring elements, along whichever dimension these lie.
  const auto row_place = [&](int i, uint32_t* r, uint32_t* k) {
    const uint32_t at = static_cast<uint32_t>(i) * kProductThreads + thread;
    *r = p.x_inner == 1 ? at / kProductDepth : at % kRows;
    *k = p.x_inner == 1 ? at % kProductDepth : at / kRows;
  };
  const auto column_place = [&](int i, uint32_t* c, uint32_t* k) {
    const uint32_t at = static_cast<uint32_t>(i) * kProductThreads + thread;
    *c = p.w_column == 1 ? at % kProductColumns : at / kProductDepth;
    *k = p.w_column == 1 ? at / kProductColumns : at % kProductDepth;
  };
  const auto fetch = [&](uint32_t depth, uint32_t end) {
    for (int i = 0; i < kRowFetches; ++i) {
      uint32_t r, k;
      row_place(i, &r, &k);
      const bool inside = row + r < p.rows && depth + k < end;
      next_rows[i] = inside ? load<float>(p.x, p.x_type,
                                          tile.x_at + (row + r) * p.x_row + (depth + k) * p.x_inner)
                            : 0.0f;
    }
    for (int i = 0; i < kColumnFetches; ++i) {
      uint32_t c, k;
      column_place(i, &c, &k);
      const bool inside = column + c < p.columns && depth + k < end;
      next_columns[i] =
          inside ? load<float>(p.w, p.w_type,
                               tile.w_at + (depth + k) * p.w_inner + (column + c) * p.w_column)
                 : 0.0f;
    }
  };

  float total[kOwnRows][kOwnColumns] = {};
  for (uint32_t chunk = tile.first_chunk; chunk < tile.end_chunk; ++chunk) {
    const uint32_t begin = chunk * kChunk;
    const uint32_t end = p.inner - begin < kChunk ? p.inner : begin + kChunk;
    float sum[kOwnRows][kOwnColumns] = {};
    fetch(begin, end);
    for (uint32_t depth = begin; depth < end; depth += kProductDepth) {
      for (int i = 0; i < kRowFetches; ++i) {
        uint32_t r, k;
        row_place(i, &r, &k);
        rows[k * kRowStride + r] = next_rows[i];
      }
      for (int i = 0; i < kColumnFetches; ++i) {
        uint32_t c, k;
        column_place(i, &c, &k);
        columns[k * kColumnStride + c] = next_columns[i];
      }
      simt::sync_block();
      if (depth + kProductDepth < end) fetch(depth + kProductDepth, end);
      for (int k = 0; k < kProductDepth; ++k) {
        float x[kOwnRows];
        for (int r = 0; r < kOwnRows; ++r)
          x[r] = rows[k * kRowStride + static_cast<int>(own_row) + r];
        const simt::F32x4 w = *reinterpret_cast<const simt::F32x4*>(columns + k * kColumnStride +
                                                                    static_cast<int>(own_column));
        for (int r = 0; r < kOwnRows; ++r) {
          sum[r][0] = simt::fma(x[r], w.x, sum[r][0]);
          sum[r][1] = simt::fma(x[r], w.y, sum[r][1]);
          sum[r][2] = simt::fma(x[r], w.z, sum[r][2]);
          sum[r][3] = simt::fma(x[r], w.w, sum[r][3]);
        }
      }
      simt::sync_block();
    }
    for (int r = 0; r < kOwnRows; ++r) {
      for (int c = 0; c < kOwnColumns; ++c) total[r][c] += sum[r][c];
    }
  }
  for (int r = 0; r < kOwnRows; ++r) {
    const uint32_t at_row = row + own_row + static_cast<uint32_t>(r);
    if (at_row >= p.rows) break;
    for (int c = 0; c < kOwnColumns; ++c) {
      const uint32_t at_column = column + own_column + static_cast<uint32_t>(c);
      if (at_column >= p.columns) break;
      put_output(p, tile.first_chunk, tile.batch * p.rows + at_row, at_column, total[r][c]);
    }
  }
}

// The sums of the chunks of every output, added in their order.
LMN_KERNEL(kProductThreads, 4) void add_chunks(ProductParams p) {
  simt::wait_for_previous();
  const uint32_t outputs = p.batches * p.rows * p.columns;
  const uint32_t i = static_cast<uint32_t>(simt::block_x()) * kProductThreads +
                     static_cast<uint32_t>(simt::thread_index());
  if (i >= outputs) return;
  const uint32_t chunks = (p.inner + kChunk - 1) / kChunk;
  float total = 0;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk)
    total += p.partial[uint64_t{chunk} * outputs + i];
  finish_output(p.epilogue, i / p.columns, i % p.columns, p.columns, total);
}

}  // namespace lmn::cuda::tensor
