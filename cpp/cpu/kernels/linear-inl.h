// SPDX-License-Identifier: Apache-2.0
//
// What the integer and the float products share: tiling, row addressing and epilogues.
//
// Order of loops: a group of panels that fits in part of a second-level cache, then row tiles, then the panels of the
// group. So weights are read from memory once, and a tile's activations stay in the first level while a group passes.

// Bytes of weights in a group: a quarter of the 1 MiB (512 KiB on older chips: half) of a second-level cache.
constexpr int64_t kGroupBytes = 256 * 1024;

LMN_INLINE int64_t panel_group(int64_t panel_size) {  // even, so that gate and up stay together
  const int64_t panels = kGroupBytes / panel_size / 8 * 8;
  return panels < 8 ? 8 : panels;
}

// Rows of the next tile: `left` rows are shared out evenly over as few tiles as possible (9 rows are 5 and 4, not 8 and 1).
LMN_INLINE int64_t tile_rows(int64_t left, int64_t most) {
  const int64_t tiles = (left + most - 1) / most;
  return (left + tiles - 1) / tiles;
}

// Rows of a tile, three to a base pointer: x86 addresses base, base + stride and base + 2 stride without arithmetic.
template <int kRows>
struct RowPointers {
  static constexpr int kBases = (kRows + 2) / 3;
  const std::byte* base[kBases];
  int64_t stride;

  LMN_INLINE RowPointers(const std::byte* first, int64_t row_stride) : stride(row_stride) {
    LMN_UNROLL
    for (int i = 0; i < kBases; ++i) base[i] = first + 3 * i * row_stride;
  }
  LMN_INLINE const std::byte* at(int row, int64_t offset) const { return base[row / 3] + row % 3 * stride + offset; }
  LMN_INLINE void advance(int64_t bytes) {
    LMN_UNROLL
    for (int i = 0; i < kBases; ++i) base[i] += bytes;
  }
};

// One vector of outputs of one row, or of a gate and its up panel: bias, activation, residual.
LMN_INLINE void write_outputs(const LinearTask& t, int64_t row, int64_t channel, F value) {
  const int64_t valid = t.channels - channel;
  const int64_t at = row * t.y_stride + channel;
  if (valid >= kLanes) {
    if (t.bias != nullptr) value = add(value, load(t.bias + channel));
    if (t.residual != nullptr) value = add(value, load(t.residual + at));
    store(t.y + at, value);
  } else if (valid > 0) {
    if (t.bias != nullptr) value = add(value, load_n(t.bias + channel, valid));
    if (t.residual != nullptr) value = add(value, load_n(t.residual + at, valid));
    store_n(t.y + at, value, valid);
  }
}
LMN_INLINE void write_gated(const LinearTask& t, int64_t row, int64_t channel, F gate, F up) {
  const int64_t valid = t.channels - channel;
  if (valid <= 0) return;
  const int64_t at = row * t.y_stride + channel;
  if (t.bias != nullptr) gate = add(gate, load_n(t.bias + channel, valid));
  if (t.bias_up != nullptr) up = add(up, load_n(t.bias_up + channel, valid));
  F value = mul(silu(gate), up);
  if (t.residual != nullptr) value = add(value, load_n(t.residual + at, valid));
  store_n(t.y + at, value, valid);
}
