// SPDX-License-Identifier: Apache-2.0
//
// What the integer and the float products share: tiling, row addressing and epilogues.
//
// Order of loops: a group of panels that fits in part of a second-level cache, then row tiles, then
// the panels of the group. So weights are read from memory once, and a tile's activations stay in
// the first level while a group passes.

// Bytes of weights in a group: a quarter of the 1 MiB (512 KiB on older chips: half) of a
// second-level cache.
constexpr int64_t kGroupBytes = 256 * 1024;

LMN_INLINE int64_t panel_group(int64_t panel_size) {  // even, so that gate and up stay together
  const int64_t panels = kGroupBytes / panel_size / 8 * 8;
  return panels < 8 ? 8 : panels;
}

// Rows of a tile, three to a base pointer: x86 addresses base, base + stride and base + 2 stride
// without arithmetic.
template <int kRows>
struct RowPointers {
  static constexpr int kBases = (kRows + 2) / 3;
  const std::byte* base[kBases];
  int64_t stride;

  LMN_INLINE RowPointers(const std::byte* first, int64_t row_stride) : stride(row_stride) {
    LMN_UNROLL
    for (int i = 0; i < kBases; ++i) base[i] = first + 3 * i * row_stride;
  }
  LMN_INLINE const std::byte* at(int row, int64_t offset) const {
    return base[row / 3] + row % 3 * stride + offset;
  }
  LMN_INLINE void advance(int64_t bytes) {
    LMN_UNROLL
    for (int i = 0; i < kBases; ++i) base[i] += bytes;
  }
};

// write_outputs with an activation in between.
LMN_NOINLINE void write_activated(const LinearTask& t, int64_t row, int64_t rows, int64_t channel,
                                  const F* values, int64_t stride) {
  const int64_t valid = t.channels - channel;
  const F bias = t.bias == nullptr ? zero() : load_n(t.bias + channel, valid);
  with_activation(t.activation, [&](auto tag) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = (row + r) * t.y_stride + channel;
      F value = values[r * stride];
      if (t.bias != nullptr) value = add(value, bias);
      value = tag.apply(value);
      if (t.residual != nullptr) value = add(value, load_n(t.residual + at, valid));
      store_n(t.y + at, value, valid);
    }
  });
}

// Writes one vector of outputs for each of `rows` rows, `stride` vectors apart: bias and residual
// added. A function of its own, so that it exists once.
LMN_NOINLINE void write_outputs(const LinearTask& t, int64_t row, int64_t rows, int64_t channel,
                                const F* values, int64_t stride) {
  const int64_t valid = t.channels - channel;
  if (valid <= 0) return;
  if (t.activation != FloatActivation::kNone)
    return write_activated(t, row, rows, channel, values, stride);
  const F bias = t.bias == nullptr ? zero() : load_n(t.bias + channel, valid);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * t.y_stride + channel;
    F value = values[r * stride];
    if (t.bias != nullptr) value = add(value, bias);
    if (t.residual != nullptr) value = add(value, load_n(t.residual + at, valid));
    store_n(t.y + at, value, valid);
  }
}

// The same for a gate panel and its up panel: silu(gate) * up.
LMN_NOINLINE void write_gated(const LinearTask& t, int64_t row, int64_t rows, int64_t channel,
                              const F* gates, const F* ups, int64_t stride) {
  const int64_t valid = t.channels - channel;
  if (valid <= 0) return;
  const F gate_bias = t.bias == nullptr ? zero() : load_n(t.bias + channel, valid);
  const F up_bias = t.bias == nullptr ? zero() : load_n(t.bias_up + channel, valid);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * t.y_stride + channel;
    F gate = gates[r * stride], up = ups[r * stride];
    if (t.bias != nullptr) {
      gate = add(gate, gate_bias);
      up = add(up, up_bias);
    }
    F value = mul(silu(gate), up);
    if (t.residual != nullptr) value = add(value, load_n(t.residual + at, valid));
    store_n(t.y + at, value, valid);
  }
}
