// SPDX-License-Identifier: Apache-2.0
//
// Quantised products of many rows. Some panels at a time are expanded, once for all rows, into the
// worker's scratch: integers as the multiplier takes them, scales as floats. What the tiles of
// linear_int-inl.h do for every few rows (to shift, to mask, to convert) is then done once. A tile
// is two panels by a few rows, so that each broadcast activation serves two products: loads are
// fewer than multiplies. Sums are the same integers, and what is done to them is the same: a row
// has the same bits here as there. For instruction sets that it makes faster: with products that
// add to 32 bits (AVX-512) there is nothing to gain, as these and the float operations fill the
// multipliers either way.
//
// A pair of panels, per block of 32 columns, each item a vector of the first panel and one of the
// second:
//   scales (one or two), the minimum where there is one, then units of 4 bytes a lane: unit j holds
//   columns 4j to 4j + 3 as bytes, or 2j and 2j + 1 as words.
//
// A layout that can be expanded has a type Wide: how units are put, got, multiplied and added up,
// how many rows a tile has, and from how many rows on it is worth while.

template <typename OperandType, int kUnitsPerDot, int kScaleCount, bool kMinimum>
struct WideBlock {
  using Operand = OperandType;
  static constexpr int kScales = kScaleCount;
  static constexpr bool kHasMin = kMinimum;
  static constexpr int kUnits = 8 * Operand::kInputBytes / kScales;  // of one integer sum
  static constexpr int kRun = kUnitsPerDot < kUnits ? kUnitsPerDot : kUnits;
  static constexpr int kWeights = kScales + (kHasMin ? 1 : 0);  // item of unit 0
  static constexpr int kVectorBytes = 4 * kLanes;
  static constexpr int64_t kBytes = 2 * (kWeights + kScales * kUnits) * kVectorBytes;
  // Of an item of one of the panels: scales, the minimum, units.
  static constexpr int64_t at(int item, int panel) { return (2 * item + panel) * kVectorBytes; }
};
template <typename Layout, typename Scales>
using WideBlockOf =
    WideBlock<typename Layout::Wide, Layout::kUnitsPerSum, Scales::kSums, Scales::kHasMin>;

// The largest of all of these: words, and two scales or a scale and a minimum.
constexpr int64_t kMostWideBlockBytes = 2 * (2 + 16) * 4 * kLanes;
// A second-level cache of 512 KiB holds the pairs, and the activations that pass by.
constexpr int64_t kWideBytes = 256 * 1024;

template <typename Layout>
constexpr bool kCanExpand = requires {
  typename Layout::Wide;
};

size_t linear_scratch_bytes(int64_t columns) {
  if (!kCanExpand<Nibbles16>) return 0;
  const int64_t pair = columns / 32 * kMostWideBlockBytes;
  return static_cast<size_t>(pair > kWideBytes ? pair : kWideBytes);
}

template <typename Layout, typename Scales>
void expand_panel(const std::byte* p, int64_t blocks, std::byte* wide, int panel) {
  using Block = WideBlockOf<Layout, Scales>;
  constexpr int kPackedBytes = Scales::kBytes + 4 * kLanes * Layout::kBits;
  const auto put = [&wide, panel](int item, F x) {
    store(reinterpret_cast<float*>(wide + Block::at(item, panel)), x);
  };
  Scales scales;
  for (int64_t b = 0; b < blocks; ++b) {
    if constexpr (Scales::kSuperBytes != 0) {
      if (b % 8 == 0) {
        scales.load_supers(p);
        p += Scales::kSuperBytes;
      }
    }
    scales.load_block(p);
    LMN_UNROLL
    for (int i = 0; i < Scales::kSums; ++i) put(i, scales.scale[i]);
    if constexpr (Scales::kHasMin) put(Scales::kSums, scales.min);
    LMN_UNROLL
    for (int step = 0; step < Layout::kSteps; ++step) {
      typename Layout::Weights w[Layout::kVectors];
      Layout::unpack(p + Scales::kBytes, step, w);
      LMN_UNROLL
      for (int v = 0; v < Layout::kVectors; ++v) {
        const int unit = Layout::column(step, v) * Layout::kInputBytes / 4;
        Block::Operand::put(wide + Block::at(Block::kWeights + unit, panel), w[v]);
      }
    }
    p += kPackedBytes;
    wide += Block::kBytes;
  }
}

template <typename Block, int kRows>
LMN_INLINE void wide_tile(const std::byte* p, int64_t blocks, const std::byte* x,
                          int64_t x_row_bytes, F (&out)[2][kRows]) {
  using Operand = typename Block::Operand;
  RowPointers<kRows> q(x, x_row_bytes);
  RowPointers<kRows> xs(x + blocks * 32 * Operand::kInputBytes, x_row_bytes);
  const int64_t sums = blocks * 4;
  F acc[2][kRows];
  LMN_UNROLL
  for (int r = 0; r < kRows; ++r) acc[0][r] = acc[1][r] = zero();
  for (int64_t b = 0; b < blocks; ++b) {
    const auto item = [p](int i, int panel) {
      return load(reinterpret_cast<const float*>(p + Block::at(i, panel)));
    };
    if constexpr (Block::kHasMin) {
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const F x_sum = load1(reinterpret_cast<const float*>(xs.at(r, 0) + sums));
        LMN_UNROLL
        for (int i = 0; i < 2; ++i) acc[i][r] = fma(item(Block::kScales, i), x_sum, acc[i][r]);
      }
    }
    LMN_UNROLL
    for (int part = 0; part < Block::kScales; ++part) {
      I sum[2][kRows];
      LMN_UNROLL
      for (int run = 0; run < Block::kUnits; run += Block::kRun) {
        I partial[2][kRows];
        LMN_UNROLL
        for (int u = 0; u < Block::kRun; ++u) {
          const int unit = part * Block::kUnits + run + u;
          I w[2];
          LMN_UNROLL
          for (int i = 0; i < 2; ++i) w[i] = Operand::get(p + Block::at(Block::kWeights + unit, i));
          LMN_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const I v = broadcast4(q.at(r, 4 * unit));
            LMN_UNROLL
            for (int i = 0; i < 2; ++i)
              partial[i][r] =
                  u == 0 ? Operand::first(w[i], v) : Operand::dot(partial[i][r], w[i], v);
          }
        }
        LMN_UNROLL
        for (int r = 0; r < kRows; ++r) {
          LMN_UNROLL
          for (int i = 0; i < 2; ++i) {
            const I finished = Operand::finish(partial[i][r]);
            sum[i][r] = run == 0 ? finished : Operand::add(sum[i][r], finished);
          }
        }
      }
      LMN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const F x_scale = load1(reinterpret_cast<const float*>(xs.at(r, 0)));
        LMN_UNROLL
        for (int i = 0; i < 2; ++i)
          acc[i][r] = fma(mul(item(part, i), x_scale), to_float(sum[i][r]), acc[i][r]);
      }
    }
    p += Block::kBytes;
    q.advance(32 * Operand::kInputBytes);
    xs.advance(4);
  }
  LMN_UNROLL
  for (int i = 0; i < 2; ++i) {
    LMN_UNROLL
    for (int r = 0; r < kRows; ++r) out[i][r] = acc[i][r];
  }
}

// Expanded pairs of panels, the first of them panels `first` and first + 1; and the packed bytes of
// the group after this one, which are fetched meanwhile: to expand them takes no time to hide the
// memory's behind.
struct WideGroup {
  int64_t first, pairs;
  const std::byte* next;
  int64_t next_bytes;  // of a pair
};

// A group for kRows = rows rows from `row` on, where rows is in [1, kRows].
template <typename Block, int kRows = Block::Operand::kWideRows>
void wide_rows(const LinearTask& t, const WideGroup& g, int64_t row, int64_t rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return wide_rows<Block, kRows - 1>(t, g, row, rows);
  }
  const int64_t blocks = t.columns / 32;
  const int64_t fetch_begin = g.next_bytes * row / t.rows / 64 * 64;
  const int64_t fetch_end = g.next_bytes * (row + rows) / t.rows / 64 * 64;
  F sums[2][kRows];
  for (int64_t i = 0; i < g.pairs; ++i) {
    for (int64_t at = fetch_begin; at < fetch_end; at += 64)
      prefetch(g.next + i * g.next_bytes + at);
    wide_tile<Block, kRows>(t.scratch + i * blocks * Block::kBytes, blocks,
                            t.x + row * t.x_row_bytes, t.x_row_bytes, sums);
    const int64_t panel = g.first + 2 * i;
    if (t.gated) {
      write_gated(t, row, kRows, panel / 2 * kLanes, sums[0], sums[1], 1);
    } else {
      write_outputs(t, row, kRows, panel * kLanes, sums[0], 1);
      if (panel + 1 < t.panel_end) write_outputs(t, row, kRows, (panel + 1) * kLanes, sums[1], 1);
    }
  }
}

template <typename Layout, ScaleKind kKind, int kZero>
void linear_wide(const LinearTask& t) {
  using Scales = BlockScales<kKind, kZero>;
  using Block = WideBlockOf<Layout, Scales>;
  const int64_t blocks = t.columns / 32, pair_bytes = blocks * Block::kBytes;
  const int64_t panel_size = panel_bytes(t.source, t.columns, kLanes);
  const int64_t most = pair_bytes < kWideBytes ? kWideBytes / pair_bytes : 1;
  for (int64_t begin = t.panel_begin; begin < t.panel_end; begin += 2 * most) {
    const int64_t left = (t.panel_end - begin + 1) / 2, pairs = left < most ? left : most;
    for (int64_t i = 0; i < 2 * pairs; ++i) {
      // A last panel without a second goes in twice, and is written once.
      const int64_t panel = begin + i < t.panel_end ? begin + i : t.panel_end - 1;
      expand_panel<Layout, Scales>(t.panels + panel * panel_size, blocks,
                                   t.scratch + i / 2 * pair_bytes, static_cast<int>(i % 2));
    }
    const WideGroup group{begin, pairs, t.panels + (begin + 2 * pairs) * panel_size,
                          2 * panel_size};
    constexpr int64_t kTile = Block::Operand::kWideRows;
    for (int64_t row = 0; row < t.rows;) {
      const int64_t tiles = (t.rows - row + kTile - 1) / kTile;
      const int64_t rows = (t.rows - row + tiles - 1) / tiles;  // evenly: 9 rows are 3, 3 and 3
      wide_rows<Block>(t, group, row, rows);
      row += rows;
    }
  }
}
