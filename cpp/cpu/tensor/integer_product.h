// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices of 8-bit integers, exact in 32 bits (sums beyond wrap). Rows and columns are
// packed by functions of the caller as 16-bit integers with the zero points taken off, along the
// inner dimension, so that one instruction multiplies and adds pairs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cpu/tensor/codes.h"

namespace lmn::cpu {

inline constexpr int64_t kIntegerTile = 16;  // rows and columns of a tile
inline constexpr int64_t kMicroColumns = 4, kMicroPair = 2;

inline int64_t padded_inner(int64_t inner) { return (inner + 7) / 8 * 8; }
inline size_t integer_product_scratch_bytes(int64_t inner) {
  return static_cast<size_t>(2 * kIntegerTile * padded_inner(inner)) * sizeof(int16_t);
}

// sums[r][c] = rows[r] . columns[c] of two rows and four columns, `pitch` apart, of a length that
// is a multiple of 8. Sums of rows are kIntegerTile apart.
inline void multiply_micro(const int16_t* rows, const int16_t* columns, int64_t pitch,
                           int32_t* sums) {
#if defined(__SSE2__)
  const auto load = [](const int16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  __m128i acc[kMicroPair][kMicroColumns];
  for (auto& row : acc) {
    for (__m128i& sum : row) sum = _mm_setzero_si128();
  }
  for (int64_t k = 0; k < pitch; k += 8) {
    const __m128i row0 = load(rows + k), row1 = load(rows + pitch + k);
#pragma GCC unroll 4
    for (int64_t c = 0; c < kMicroColumns; ++c) {
      const __m128i column = load(columns + c * pitch + k);
      acc[0][c] = _mm_add_epi32(acc[0][c], _mm_madd_epi16(row0, column));
      acc[1][c] = _mm_add_epi32(acc[1][c], _mm_madd_epi16(row1, column));
    }
  }
  for (int64_t r = 0; r < kMicroPair; ++r) {
    const __m128i low01 = _mm_unpacklo_epi32(acc[r][0], acc[r][1]);
    const __m128i high01 = _mm_unpackhi_epi32(acc[r][0], acc[r][1]);
    const __m128i low23 = _mm_unpacklo_epi32(acc[r][2], acc[r][3]);
    const __m128i high23 = _mm_unpackhi_epi32(acc[r][2], acc[r][3]);
    const __m128i pairs01 = _mm_add_epi32(low01, high01), pairs23 = _mm_add_epi32(low23, high23);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(sums + r * kIntegerTile),
        _mm_add_epi32(_mm_unpacklo_epi64(pairs01, pairs23), _mm_unpackhi_epi64(pairs01, pairs23)));
  }
#else
  for (int64_t r = 0; r < kMicroPair; ++r) {
    for (int64_t c = 0; c < kMicroColumns; ++c) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < pitch; ++k)
        sum += static_cast<uint32_t>(int32_t{rows[r * pitch + k]} * columns[c * pitch + k]);
      sums[r * kIntegerTile + c] = static_cast<int32_t>(sum);
    }
  }
#endif
}

// Outputs [row_begin, row_end) x [column_begin, column_end).
//   pack_rows, pack_columns(first, count, pitch, to): to[i * pitch + k] for i < count, k < inner
//   store(row, column, count, sums)
// scratch: integer_product_scratch_bytes(inner), aligned to 64 bytes.
template <typename PackRows, typename PackColumns, typename Store>
void integer_product(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                     int64_t inner, std::byte* scratch, const PackRows& pack_rows,
                     const PackColumns& pack_columns, const Store& store) {
  const int64_t pitch = padded_inner(inner);
  int16_t* const rows = reinterpret_cast<int16_t*>(scratch);
  int16_t* const columns = rows + kIntegerTile * pitch;
  std::fill_n(rows, 2 * kIntegerTile * pitch, int16_t{0});
  const bool few_rows = row_end - row_begin <= kIntegerTile;
  if (few_rows && row_begin < row_end) pack_rows(row_begin, row_end - row_begin, pitch, rows);
  for (int64_t column = column_begin; column < column_end; column += kIntegerTile) {
    const int64_t width = std::min(kIntegerTile, column_end - column);
    pack_columns(column, width, pitch, columns);
    for (int64_t row = row_begin; row < row_end; row += kIntegerTile) {
      const int64_t height = std::min(kIntegerTile, row_end - row);
      if (!few_rows) pack_rows(row, height, pitch, rows);
      int32_t sums[kIntegerTile * kIntegerTile];
      for (int64_t r = 0; r < height; r += kMicroPair) {
        for (int64_t c = 0; c < width; c += kMicroColumns) {
          multiply_micro(rows + r * pitch, columns + c * pitch, pitch, sums + r * kIntegerTile + c);
        }
      }
      for (int64_t r = 0; r < height; ++r) store(row + r, column, width, sums + r * kIntegerTile);
    }
  }
}

// Packs lines of a matrix of bytes whose element (outer, k) is at data[outer * stride + k *
// k_stride]. zeros: zero points, `zero_stride` (0 or 1) apart; null: 0.
struct BytePacker {
  const uint8_t* data;
  int64_t stride, k_stride, inner;
  int32_t flip;
  const uint8_t* zeros;
  int64_t zero_stride;

  void operator()(int64_t first, int64_t count, int64_t pitch, int16_t* to) const {
    const uint8_t* const from = data + first * stride;
    int32_t taken[kIntegerTile];
    for (int64_t i = 0; i < count; ++i) {
      const bool has = zeros != nullptr;
      taken[i] = flip + (has ? code_value(zeros[(first + i) * zero_stride], flip) : 0);
    }
    if (k_stride == 1) {
      for (int64_t i = 0; i < count; ++i) {
        const int32_t less = taken[i];
        for (int64_t k = 0; k < inner; ++k)
          to[i * pitch + k] = static_cast<int16_t>((from[i * stride + k] ^ flip) - less);
      }
      return;
    }
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t i = 0; i < count; ++i) {
        to[i * pitch + k] =
            static_cast<int16_t>((from[i * stride + k * k_stride] ^ flip) - taken[i]);
      }
    }
  }
};

}  // namespace lmn::cpu
