// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights times quantised activations. Lanes are output channels: per block of 32 columns the products are
// summed exactly in integers, then one float accumulator per output takes, in this order,
//     acc = minimum * x_sum + acc;   acc = (w_scale * x_scale) * float(sum) + acc
// block after block. The code below is the only one for any number of rows: a tile is a panel by up to kMaxTileRows rows, and
// no operation mixes rows, so that a row has the same bits in every tile (DESIGN section 7).

// Scales of one block: kSums integer sums per block (2 where a scale covers 16 columns), each with a scale, and the
// minimum with the zero point of the stored integers folded in: -zero * scale.
template <ScaleKind kKind, int kZero>
struct BlockScales {
  static constexpr int kSums = kKind == ScaleKind::kSuper16 ? 2 : 1;
  static constexpr bool kHasMin = kKind == ScaleKind::kHalfMin || kKind == ScaleKind::kSuper || kZero != 0;
  F scale[kSums];
  F min;

  LMN_INLINE void load_block(const std::byte* scales, const std::byte* supers, int64_t block) {
    const std::byte* s = scales + block * kLanes * scale_bytes(kKind);
    const std::byte* d = supers + block / 8 * kLanes * super_bytes(kKind);
    if constexpr (kKind == ScaleKind::kHalf) {
      scale[0] = load_half(s);
      if constexpr (kHasMin) min = mul(scale[0], set1(-float{kZero}));
    } else if constexpr (kKind == ScaleKind::kHalfMin) {
      scale[0] = load_half(s);
      min = load_half(s + 2 * kLanes);
    } else if constexpr (kKind == ScaleKind::kSuper) {
      scale[0] = mul(load_half(d), load_u8(s));
      min = mul(load_half(d + 2 * kLanes), load_u8(s + kLanes));
    } else {
      static_assert(kKind == ScaleKind::kSuper16 && kZero == 0);
      const F super = load_half(d);
      scale[0] = mul(super, load_s8(s));
      scale[1] = mul(super, load_s8(s + kLanes));
    }
  }
};

// Bytes ahead of the panel being read that are asked for: about 100 ns at 15 GB/s, rounded up.
constexpr int64_t kPrefetchBytes = 2048;

template <typename Layout, typename Scales, int kRows>
LMN_INLINE void panel_tile(const std::byte* panel, const PanelLayout& layout, int64_t blocks, const std::byte* x,
                           int64_t x_row_bytes, F (&acc)[kRows]) {
  constexpr int kBlockBytes = Layout::kSteps * Layout::kStepBytes;
  constexpr int kStepsPerSum = Layout::kSteps / Scales::kSums;
  constexpr int64_t kReadBytes = kBlockBytes + 4 * kLanes;  // of a block with its scales, at most
  const int64_t columns = blocks * 32;
  RowPointers<kRows> q(x, x_row_bytes);
  RowPointers<kRows> xs(x + columns * Layout::kInputBytes, x_row_bytes);
  const int64_t sums = blocks * 4;
  const std::byte* weights = panel;
  const std::byte* ahead = panel + kPrefetchBytes;
  const int64_t ahead_step = layout.bytes / blocks;
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = zero();
  for (int64_t b = 0; b < blocks; ++b) {
    LMN_UNROLL
    for (int64_t i = 0; i < kReadBytes; i += 64) prefetch(ahead + i);
    ahead += ahead_step;
    Scales scales;
    scales.load_block(panel + layout.scales, panel + layout.supers, b);
    if constexpr (Scales::kHasMin) {
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        acc[r] = fma(scales.min, load1(reinterpret_cast<const float*>(xs.at(r, 0) + sums)), acc[r]);
      }
    }
    LMN_UNROLL
    for (int part = 0; part < Scales::kSums; ++part) {
      I sum[kRows];
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) sum[r] = zero_int();
      LMN_UNROLL
      for (int step = part * kStepsPerSum; step < (part + 1) * kStepsPerSum; ++step) {
        typename Layout::Weights w[Layout::kVectors];
        Layout::unpack(weights + step * Layout::kStepBytes, w);
        LMN_UNROLL
        for (int r = 0; r < kRows; ++r) {
          LMN_UNROLL
          for (int v = 0; v < Layout::kVectors; ++v) {
            sum[r] = Layout::dot(sum[r], w[v], broadcast4(q.at(r, Layout::column(step, v) * Layout::kInputBytes)));
          }
        }
      }
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const F scale = mul(scales.scale[part], load1(reinterpret_cast<const float*>(xs.at(r, 0))));
        acc[r] = fma(scale, to_float(Layout::finish(sum[r])), acc[r]);
      }
    }
    weights += kBlockBytes;
    q.advance(32 * Layout::kInputBytes);
    xs.advance(4);
  }
}

// Panels [begin, end) for kRows rows from `row` on.
template <typename Layout, typename Scales, int kRows>
void panels_by_rows(const LinearTask& t, const PanelLayout& layout, int64_t row, int64_t begin, int64_t end) {
  const std::byte* x = t.x + row * t.x_row_bytes;
  F gate[kRows];
  for (int r = 0; r < kRows; ++r) gate[r] = zero();
  for (int64_t p = begin; p < end; ++p) {
    F acc[kRows];
    panel_tile<Layout, Scales, kRows>(t.panels + p * layout.bytes, layout, t.columns / 32, x, t.x_row_bytes, acc);
    if (!t.gated) {
      for (int r = 0; r < kRows; ++r) write_outputs(t, row + r, p * kLanes, acc[r]);
    } else if (p % 2 == 0) {
      for (int r = 0; r < kRows; ++r) gate[r] = acc[r];
    } else {
      for (int r = 0; r < kRows; ++r) write_gated(t, row + r, p / 2 * kLanes, gate[r], acc[r]);
    }
  }
}

// Calls panels_by_rows with kRows = rows, which is in [1, kRows].
template <typename Layout, typename Scales, int kRows>
void panels_by_any_rows(const LinearTask& t, const PanelLayout& layout, int64_t rows, int64_t row, int64_t begin,
                        int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return panels_by_any_rows<Layout, Scales, kRows - 1>(t, layout, rows, row, begin, end);
  }
  panels_by_rows<Layout, Scales, kRows>(t, layout, row, begin, end);
}

template <typename Layout, ScaleKind kKind, int kZero>
void linear_int(const LinearTask& t) {
  const PanelLayout layout = panel_layout(t.source, t.columns, kLanes);
  const int64_t group = panel_group(layout.bytes);
  for (int64_t begin = t.panel_begin; begin < t.panel_end; begin += group) {
    const int64_t end = begin + group < t.panel_end ? begin + group : t.panel_end;
    for (int64_t row = 0; row < t.rows;) {
      const int64_t rows = tile_rows(t.rows - row, kMaxTileRows);
      panels_by_any_rows<Layout, BlockScales<kKind, kZero>, kMaxTileRows>(t, layout, rows, row, begin, end);
      row += rows;
    }
  }
}

// The kernel of a weight type: one line for each. Zero points are folded into the minimum where the stored integers are
// unsigned; Bytes16 stores q - zero, signed, and has none.
void linear_quantized(const LinearTask& t) {
  if (t.input_type == DType::kQA8) {
    switch (t.source) {
      case DType::kQ4_0: return linear_int<Nibbles8, ScaleKind::kHalf, 8>(t);
      case DType::kQ4_1: return linear_int<Nibbles8, ScaleKind::kHalfMin, 0>(t);
      case DType::kQ4_K: return linear_int<Nibbles8, ScaleKind::kSuper, 0>(t);
#if LMN_BYTE_DOT
      case DType::kQ8_0: return linear_int<Bytes8, ScaleKind::kHalf, 128>(t);
      case DType::kQ5_0: return linear_int<Bytes8, ScaleKind::kHalf, 16>(t);
      case DType::kQ5_1: return linear_int<Bytes8, ScaleKind::kHalfMin, 0>(t);
      case DType::kQ5_K: return linear_int<Bytes8, ScaleKind::kSuper, 0>(t);
#endif
      default: return;
    }
  }
  switch (t.source) {
    case DType::kQ4_0: return linear_int<Nibbles16, ScaleKind::kHalf, 8>(t);
    case DType::kQ4_1: return linear_int<Nibbles16, ScaleKind::kHalfMin, 0>(t);
    case DType::kQ4_K: return linear_int<Nibbles16, ScaleKind::kSuper, 0>(t);
    case DType::kQ8_0:
    case DType::kQ5_0: return linear_int<Bytes16, ScaleKind::kHalf, 0>(t);
    case DType::kQ5_1: return linear_int<Bytes16, ScaleKind::kHalfMin, 0>(t);
    case DType::kQ5_K: return linear_int<Bytes16, ScaleKind::kSuper, 0>(t);
    case DType::kQ6_K: return linear_int<Bytes16, ScaleKind::kSuper16, 0>(t);
    default: return;
  }
}
