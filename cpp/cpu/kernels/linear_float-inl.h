// SPDX-License-Identifier: Apache-2.0
//
// Float weights (f32, f16, bf16) times float32 activations. A panel is two vectors wide. Each
// output is one accumulator that takes acc = w * x + acc for every column in order, whatever the
// tile, so that a row has the same bits in every tile. Tiles of few rows take several panels at
// once, to keep enough independent accumulators in flight for the latency of fma.

template <DType kType>
LMN_INLINE F load_weights(const std::byte* p) {
  if constexpr (kType == DType::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kType == DType::kF16) return load_half(p);
  if constexpr (kType == DType::kBF16) return load_bfloat(p);
}

template <DType kType, int kRows, int kPanels>
LMN_INLINE void float_tile(const std::byte* panel, int64_t panel_size, int64_t columns,
                           const std::byte* x, int64_t x_row_bytes, F (&out)[kRows][kPanels][2]) {
  constexpr int kVectorBytes = kLanes * (kType == DType::kF32 ? 4 : 2);
  RowPointers<kRows> row(x, x_row_bytes);
  RowPointers<kPanels> weights(panel, panel_size);
  F acc[kRows][kPanels][2];  // registers; `out` is memory, as the caller indexes it with variables
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LMN_UNROLL
    for (int p = 0; p < kPanels; ++p) acc[r][p][0] = acc[r][p][1] = zero();
  }
  for (int64_t k = 0; k < columns; ++k) {
    F w[kPanels][2];
    LMN_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      prefetch(weights.at(p, kPrefetchBytes));
      w[p][0] = load_weights<kType>(weights.at(p, 0));
      w[p][1] = load_weights<kType>(weights.at(p, kVectorBytes));
    }
    LMN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const F b = load1(reinterpret_cast<const float*>(row.at(r, 0)));
      LMN_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        acc[r][p][0] = fma(w[p][0], b, acc[r][p][0]);
        acc[r][p][1] = fma(w[p][1], b, acc[r][p][1]);
      }
    }
    row.advance(4);
    weights.advance(2 * kVectorBytes);
  }
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LMN_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      out[r][p][0] = acc[r][p][0];
      out[r][p][1] = acc[r][p][1];
    }
  }
}

template <DType kType, int kRows, int kPanels>
void float_panels_by_rows(const LinearTask& t, int64_t panel_size, int64_t row, int64_t begin,
                          int64_t end) {
  const std::byte* x = t.x + row * t.x_row_bytes;
  F sums[2][kRows][kPanels]
        [2];  // of some panels; or, where panels are taken singly, of a gate and its up panel
  for (int64_t p = begin; p < end; p += kPanels) {
    const int64_t second = t.gated && kPanels == 1 ? p % 2 : 0;
    float_tile<kType, kRows, kPanels>(t.panels + p * panel_size, panel_size, t.columns, x,
                                      t.x_row_bytes, sums[second]);
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < kPanels; ++i) {
        const int64_t panel = p + i;
        const F* values = &sums[second][0][i][half];
        if (!t.gated) {
          write_outputs(t, row, kRows, panel * kFloatLanes + half * kLanes, values, 2 * kPanels);
        } else if ((kPanels == 1 ? panel : i) % 2 == 1) {
          const F* gates = kPanels == 1 ? &sums[0][0][0][half] : &sums[0][0][i - 1][half];
          write_gated(t, row, kRows, panel / 2 * kFloatLanes + half * kLanes, gates, values,
                      2 * kPanels);
        }
      }
    }
  }
}

// Tiles of kRows = rows, which is in [1, kRows]. Panels at a time: enough for 8 accumulators where
// the registers allow.
template <DType kType, int kRows>
void float_panels_by_any_rows(const LinearTask& t, int64_t panel_size, int64_t rows, int64_t row,
                              int64_t begin, int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows)
      return float_panels_by_any_rows<kType, kRows - 1>(t, panel_size, rows, row, begin, end);
  }
  constexpr int kPanels = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  const int64_t whole = begin + (end - begin) / kPanels * kPanels;
  float_panels_by_rows<kType, kRows, kPanels>(t, panel_size, row, begin, whole);
  if (whole < end) float_panels_by_rows<kType, kRows, 1>(t, panel_size, row, whole, end);
}

template <DType kType>
void linear_float_type(const LinearTask& t) {
  const int64_t panel_size = panel_bytes(t.source, t.columns, kFloatLanes);
  const int64_t group = panel_group(panel_size);
  for (int64_t begin = t.panel_begin; begin < t.panel_end; begin += group) {
    const int64_t end = begin + group < t.panel_end ? begin + group : t.panel_end;
    for (int64_t row = 0; row < t.rows;) {
      const int64_t left = t.rows - row, tiles = (left + kMaxFloatTileRows - 1) / kMaxFloatTileRows;
      const int64_t rows = (left + tiles - 1) / tiles;  // evenly: 7 rows are 4 and 3
      float_panels_by_any_rows<kType, kMaxFloatTileRows>(t, panel_size, rows, row, begin, end);
      row += rows;
    }
  }
}

void linear_float(const LinearTask& t) {
  switch (t.source) {
    case DType::kF32:
      return linear_float_type<DType::kF32>(t);
    case DType::kF16:
      return linear_float_type<DType::kF16>(t);
    case DType::kBF16:
      return linear_float_type<DType::kBF16>(t);
    default:
      return;
  }
}
