// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights times quantised activations. Lanes are output channels: per block of 32 columns
// the products are summed exactly in integers, then one float accumulator per output takes, in this
// order,
//     acc = minimum * x_sum + acc;   acc = (w_scale * x_scale) * float(sum) + acc
// block after block. A tile below is a panel by up to 8 rows, and no operation mixes rows, so that
// a row has the same bits in every tile (DESIGN section 7); it has them in linear_row-inl.h, for
// one row, and in linear_wide-inl.h, for many, too, which do the same operations.

// What the bytes of 8-bit weights are offset by for kQA8; for kQA16 they are signed.
constexpr int kByteZero = LMN_BYTE_DOT == LMN_SIGNED_BYTES ? 0 : 128;

// Scales of one block: kSums integer sums per block (2 where a scale covers 16 columns), each with
// a scale, and the minimum with the zero point of the stored integers folded in: -zero * scale.
template <ScaleKind kKind, int kZero>
struct BlockScales {
  static constexpr int kSums = kKind == ScaleKind::kSuper16 ? 2 : 1;
  static constexpr bool kHasMin =
      kKind == ScaleKind::kHalfMin || kKind == ScaleKind::kSuper || kZero != 0;
  static constexpr int kSuperBytes = kLanes * super_bytes(kKind);
  static constexpr int kBytes = kLanes * scale_bytes(kKind);
  F super[2] = {zero(), zero()};  // d and -dmin of K-quants
  F scale[kSums];
  F min;

  LMN_INLINE void load_supers(const std::byte* p) {
    if constexpr (kSuperBytes != 0) super[0] = load_half(p);
    if constexpr (kKind == ScaleKind::kSuper) super[1] = load_half(p + 2 * kLanes);
  }
  LMN_INLINE void load_block(const std::byte* p) {
    if constexpr (kKind == ScaleKind::kHalf) {
      scale[0] = load_half(p);
      if constexpr (kHasMin) min = mul(scale[0], set1(-float{kZero}));
    } else if constexpr (kKind == ScaleKind::kHalfMin) {
      scale[0] = load_half(p);
      min = load_half(p + 2 * kLanes);
    } else if constexpr (kKind == ScaleKind::kSuper) {
      scale[0] = mul(super[0], load_u8(p));
      min = mul(super[1], load_u8(p + kLanes));
    } else {
      static_assert(kKind == ScaleKind::kSuper16 && kZero == 0);
      scale[0] = mul(super[0], load_s8(p));
      scale[1] = mul(super[0], load_s8(p + kLanes));
    }
  }
};

// Bytes ahead in the stream that are asked for: 150 ns of a busy memory at 20 GB/s are 3 KB.
constexpr int64_t kPrefetchBytes = 4096;

// The integer sums of part kPart of kParts of a block, for every row. A layout may bring its own
// way: integer sums are exact, so their order is free.
template <typename Layout, int kPart, int kParts, int kRows>
LMN_INLINE void block_sums(const std::byte* quants, const RowPointers<kRows>& q, I (&sum)[kRows]) {
  if constexpr (requires { Layout::kBringsSums; }) {
    Layout::template sums<kPart, kParts>(quants, q, sum);
  } else {
    constexpr int kSteps = Layout::kSteps / kParts;
    constexpr int kMost = Layout::kUnitsPerSum / Layout::kVectors;
    constexpr int kRun = kMost < kSteps ? kMost : kSteps;  // steps that dot() adds up
    LMN_UNROLL
    for (int run = 0; run < kSteps; run += kRun) {
      I partial[kRows];
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) partial[r] = zero_int();
      LMN_UNROLL
      for (int i = 0; i < kRun; ++i) {
        const int step = kPart * kSteps + run + i;
        typename Layout::Weights w[Layout::kVectors];
        Layout::unpack(quants, step, w);
        LMN_UNROLL
        for (int r = 0; r < kRows; ++r) {
          LMN_UNROLL
          for (int v = 0; v < Layout::kVectors; ++v) {
            const auto x = broadcast4(q.at(r, Layout::column(step, v) * Layout::kInputBytes));
            partial[r] = Layout::dot(partial[r], w[v], x);
          }
        }
      }
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const I finished = Layout::finish(partial[r]);
        if constexpr (kRun == kSteps) {
          sum[r] = finished;
        } else {
          sum[r] = run == 0 ? finished : Layout::add(sum[r], finished);
        }
      }
    }
  }
}

template <typename Layout, typename Scales, int kRows>
LMN_INLINE void panel_tile(const std::byte* p, int64_t blocks, const std::byte* x,
                           int64_t x_row_bytes, F (&out)[kRows]) {
  constexpr int kBlockBytes = Scales::kBytes + 4 * kLanes * Layout::kBits;
  RowPointers<kRows> q(x, x_row_bytes);
  RowPointers<kRows> xs(x + blocks * 32 * Layout::kInputBytes, x_row_bytes);
  const int64_t sums = blocks * 4;
  F acc[kRows];  // registers, where they suffice; `out` is memory, as the caller indexes it with
                 // variables
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = zero();
  Scales scales;
  for (int64_t b = 0; b < blocks; ++b) {
    LMN_UNROLL
    for (int64_t i = 0; i < kBlockBytes; i += 64) prefetch(p + kPrefetchBytes + i);
    if constexpr (Scales::kSuperBytes != 0) {
      if (b % 8 == 0) {
        scales.load_supers(p);
        p += Scales::kSuperBytes;
      }
    }
    scales.load_block(p);
    if constexpr (Scales::kHasMin) {
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        acc[r] = fma(scales.min, load1(reinterpret_cast<const float*>(xs.at(r, 0) + sums)), acc[r]);
      }
    }
    LMN_UNROLL
    for (int part = 0; part < Scales::kSums; ++part) {
      I sum[kRows];
      if (part == 0) block_sums<Layout, 0, Scales::kSums>(p + Scales::kBytes, q, sum);
      if constexpr (Scales::kSums == 2) {
        if (part == 1) block_sums<Layout, 1, Scales::kSums>(p + Scales::kBytes, q, sum);
      }
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const F scale = mul(scales.scale[part], load1(reinterpret_cast<const float*>(xs.at(r, 0))));
        acc[r] = fma(scale, to_float(sum[r]), acc[r]);
      }
    }
    p += kBlockBytes;
    q.advance(32 * Layout::kInputBytes);
    xs.advance(4);
  }
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) out[r] = acc[r];
}

// Panels [begin, end) for kRows rows from `row` on.
template <typename Layout, typename Scales, int kRows>
void panels_by_rows(const LinearTask& t, int64_t panel_size, int64_t row, int64_t begin,
                    int64_t end) {
  const std::byte* x = t.x + row * t.x_row_bytes;
  F sums[2][kRows];  // of a panel, or of a gate and its up panel
  for (int64_t p = begin; p < end; ++p) {
    const int64_t second = t.gated ? p % 2 : 0;
    panel_tile<Layout, Scales, kRows>(t.panels + p * panel_size, t.columns / 32, x, t.x_row_bytes,
                                      sums[second]);
    if (!t.gated) write_outputs(t, row, kRows, p * kLanes, sums[0], 1);
    if (second == 1) write_gated(t, row, kRows, p / 2 * kLanes, sums[0], sums[1], 1);
  }
}

// Rows of the next tile when `left`, more than one, are left. Tiles are 2, 3, 4 or 8 rows high:
// others would double the code and gain a few per cent at 5 to 7 rows. Up to 11 rows are shared out
// evenly (9 are 3, 3 and 3, not 8 and 1).
LMN_INLINE int64_t tile_rows(int64_t left) {
  if (left == 8 || left >= 12) return kTallTile ? 8 : 4;
  constexpr int8_t kNext[] = {0, 0, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4};
  return kNext[left];
}

template <typename Layout, ScaleKind kKind, int kZero>
void linear_int(const LinearTask& t) {
  const int64_t panel_size = panel_bytes(t.source, t.columns, kLanes);
  const int64_t group = panel_group(panel_size);
  for (int64_t begin = t.panel_begin; begin < t.panel_end; begin += group) {
    const int64_t end = begin + group < t.panel_end ? begin + group : t.panel_end;
    for (int64_t row = 0; row < t.rows;) {
      const int64_t rows = tile_rows(t.rows - row);
      using Scales = BlockScales<kKind, kZero>;
      switch (rows) {
        case 2:
          panels_by_rows<Layout, Scales, 2>(t, panel_size, row, begin, end);
          break;
        case 3:
          panels_by_rows<Layout, Scales, 3>(t, panel_size, row, begin, end);
          break;
        case 4:
          panels_by_rows<Layout, Scales, 4>(t, panel_size, row, begin, end);
          break;
        default:
          panels_by_rows<Layout, Scales, kTallTile ? 8 : 4>(t, panel_size, row, begin, end);
          break;
      }
      row += rows;
    }
  }
}
