// SPDX-License-Identifier: Apache-2.0
//
// Products of float panels with rows that lie in pieces: convolutions, whose rows are the channels
// under the taps of a window. As in linear_float-inl.h an output is one accumulator that takes
// acc = w * x + acc for every column in order, whatever the tile. Panels are the outer loop: one
// stays in the second-level cache while the rows pass.

// Rows of a tile: 24 sums, two weights, a factor, of 32 registers.
constexpr int kIndirectRows = kLanes == 16 ? 12 : kMaxFloatTileRows;

// What becomes of sums: bias and residual added, then clamped (a NaN stays one).
struct Finisher {
  const float *bias, *residual;
  float* y;
  int64_t y_stride, channels;
  F low, high;

  LMN_INLINE void operator()(int64_t row, int64_t channel, F value) const {
    const int64_t valid = channels - channel, at = row * y_stride + channel;
    if (bias != nullptr) value = add(value, load_n(bias + channel, valid));
    if (residual != nullptr) value = add(value, load_n(residual + at, valid));
    store_n(y + at, min(high, max(low, value)), valid);
  }
};

// One vector for each of `rows` rows, `stride` vectors apart. A function of its own, so that it
// exists once.
LMN_NOINLINE void finish_indirect(const Finisher& finish, int64_t row, int64_t rows,
                                  int64_t channel, const F* values, int64_t stride) {
  if (channel >= finish.channels) return;
  for (int64_t r = 0; r < rows; ++r) finish(row + r, channel, values[r * stride]);
}

template <int kRows, int kPanels>
LMN_INLINE void indirect_tile(const IndirectTask& t, const float* panel, int64_t row,
                              F (&out)[kRows][kPanels][2]) {
  F acc[kRows][kPanels][2];
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LMN_UNROLL
    for (int p = 0; p < kPanels; ++p) acc[r][p][0] = acc[r][p][1] = zero();
  }
  const int64_t next_panel = t.panel_bytes / static_cast<int64_t>(sizeof(float));
  for (int64_t s = 0; s < t.segments; ++s) {
    const float* const* pointers = t.pointers + s * t.pointer_stride + row;
    const float* x[kRows];
    LMN_UNROLL
    for (int r = 0; r < kRows; ++r) x[r] = pointers[r] + t.offset;
    for (int64_t k = 0; k < t.length; ++k) {
      F w[kPanels][2];
      LMN_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        w[p][0] = load(panel + p * next_panel);
        w[p][1] = load(panel + p * next_panel + kLanes);
      }
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const F b = load1(x[r] + k);
        LMN_UNROLL
        for (int p = 0; p < kPanels; ++p) {
          acc[r][p][0] = fma(w[p][0], b, acc[r][p][0]);
          acc[r][p][1] = fma(w[p][1], b, acc[r][p][1]);
        }
      }
      panel += 2 * kLanes;
    }
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

template <int kRows, int kPanels>
void indirect_rows(const IndirectTask& t, const Finisher& finish, int64_t row, int64_t begin,
                   int64_t end) {
  for (int64_t p = begin; p < end; p += kPanels) {
    F sums[kRows][kPanels][2];
    indirect_tile<kRows, kPanels>(t, reinterpret_cast<const float*>(t.panels + p * t.panel_bytes),
                                  row, sums);
    for (int64_t i = 0; i < kPanels; ++i) {
      const int64_t channel = (p + i) * 2 * kLanes;
      finish_indirect(finish, row, kRows, channel, &sums[0][i][0], 2 * kPanels);
      finish_indirect(finish, row, kRows, channel + kLanes, &sums[0][i][1], 2 * kPanels);
    }
  }
}

// Tiles of kRows = rows, which is in [1, kRows]; of few rows, several panels at once.
template <int kRows>
void indirect_any_rows(const IndirectTask& t, const Finisher& finish, int64_t rows, int64_t row,
                       int64_t begin, int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return indirect_any_rows<kRows - 1>(t, finish, rows, row, begin, end);
  }
  constexpr int kPanels = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  const int64_t whole = begin + (end - begin) / kPanels * kPanels;
  indirect_rows<kRows, kPanels>(t, finish, row, begin, whole);
  if (whole < end) indirect_rows<kRows, 1>(t, finish, row, whole, end);
}

void linear_indirect(const IndirectTask& t) {
  const Finisher finish{t.bias, t.residual, t.y, t.y_stride, t.channels, set1(t.low), set1(t.high)};
  const bool few = t.rows <= 2;
  for (int64_t panel = t.panel_begin; panel < t.panel_end;) {
    const int64_t end = few ? t.panel_end : panel + 1;
    for (int64_t row = 0; row < t.rows;) {
      const int64_t left = t.rows - row, tiles = (left + kIndirectRows - 1) / kIndirectRows;
      const int64_t rows = (left + tiles - 1) / tiles;  // evenly: 14 rows are 7 and 7
      indirect_any_rows<kIndirectRows>(t, finish, rows, row, panel, end);
      row += rows;
    }
    panel = end;
  }
}

// A sum for each channel over the taps, in order.
template <int kVectors>
LMN_INLINE void depthwise_vectors(const DepthwiseTask& t, const Finisher& finish, int64_t row,
                                  int64_t channel) {
  F acc[kVectors];
  LMN_UNROLL
  for (int v = 0; v < kVectors; ++v) acc[v] = zero();
  for (int64_t tap = 0; tap < t.taps; ++tap) {
    const float* x = t.pointers[tap * t.pointer_stride + row] + channel;
    const float* w = t.weights + tap * t.channels + channel;
    LMN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t valid = t.channels - channel - v * kLanes;
      acc[v] = kVectors > 1 ? fma(load(w + v * kLanes), load(x + v * kLanes), acc[v])
                            : fma(load_n(w, valid), load_n(x, valid), acc[v]);
    }
  }
  LMN_UNROLL
  for (int v = 0; v < kVectors; ++v) finish(row, channel + v * kLanes, acc[v]);
}

void depthwise(const DepthwiseTask& t) {
  const Finisher finish{t.bias, t.residual, t.y, t.channels, t.channels, set1(t.low), set1(t.high)};
  for (int64_t row = 0; row < t.rows; ++row) {
    int64_t channel = 0;
    for (; channel + 4 * kLanes <= t.channels; channel += 4 * kLanes)
      depthwise_vectors<4>(t, finish, row, channel);
    for (; channel < t.channels; channel += kLanes) depthwise_vectors<1>(t, finish, row, channel);
  }
}
