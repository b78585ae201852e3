// SPDX-License-Identifier: Apache-2.0
//
// The products of linear_int-inl.h for many rows, on tile registers (tiles.h): 16 rows of
// activations times the 4 * kLanes bytes of a panel's lanes, a block of 32 columns at a time. The
// integer sums are exact, so they are those of every other kernel, and floats take them in the same
// order: a row has the same bits as in linear_int (DESIGN section 7).
//
// A tile of weights holds, in row k, columns 4k to 4k + 3 of each lane: the layout of panels, so a
// block only has to be unpacked. Activations are tiles where they lie, their rows x_row_bytes
// apart. The products are of bytes; 16-bit activations are multiplied as they are, once by weights
// in the places of their low bytes (unsigned), once in those of their high bytes (signed), with
// zeros between:
//
//     sum = low + 256 * high
//
// A tile product of 16 rows takes the same 16 cycles for rows of 32 bytes and of 64, so the zeros
// cost nothing that splitting the activations would save.
//
// Instructions for a block of q4_0, 16 rows and 16 lanes, as GCC 12 compiles them (no machine with
// AMX has run this: its speed is not measured):
//
//                                                   kQA16   kQA8
//   of all                                            134     92
//   on tiles                                            9      5
//   unpacking, for up to 8 tiles of rows together     102     34
//   the vector kernel for as many rows                718    408

constexpr int64_t kTileRows = 16;
constexpr int64_t kChunkBlocks = 8;  // of a K-quant's super block; 16 KiB of tiles with kQA16
constexpr int64_t kTallRows = 128;   // that share an unpacked block; their sums are 8 KiB

// What the tile registers hold. Rows of a task that do not fill a tile of 16 have tiles of their
// own.
enum TileNumber : int { kLowWeights, kHighWeights, kWholeTiles, kTailTiles = kWholeTiles + 3 };
// From kWholeTiles and from kTailTiles on:
enum TileOfRows : int { kActivations, kLowSums, kHighSums };

// Some blocks of a panel, as tiles and floats.
template <typename Layout, typename Scales>
struct UnpackedBlocks {
  static constexpr int kParts = Scales::kSums;  // of a block: each has its integer sum
  static constexpr int kPlanes =
      Layout::kInputBytes;  // weights; or weights for low, for high bytes
  static constexpr int kWeightRows = 8 * Layout::kInputBytes;  // of a block's tile

  alignas(64) std::byte weights[kChunkBlocks][kPlanes][kWeightRows][4 * kLanes];
  F scale[kChunkBlocks][kParts];
  F min[kChunkBlocks];  // where Scales::kHasMin

  // Blocks [begin, begin + count), of one super block; `p` is the first one's or its super's.
  // Returns where the next ones begin.
  LMN_NOINLINE const std::byte* unpack(const std::byte* p, int64_t count) {
    constexpr int kBlockBytes = Scales::kBytes + 4 * kLanes * Layout::kBits;
    Scales scales;
    if constexpr (Scales::kSuperBytes != 0) {
      scales.load_supers(p);
      p += Scales::kSuperBytes;
    }
    for (int64_t b = 0; b < count; ++b) {
      LMN_UNROLL
      for (int64_t i = 0; i < kBlockBytes; i += 64) prefetch(p + kPrefetchBytes + i);
      scales.load_block(p);
      LMN_UNROLL
      for (int part = 0; part < kParts; ++part) scale[b][part] = scales.scale[part];
      if constexpr (Scales::kHasMin) min[b] = scales.min;
      LMN_UNROLL
      for (int step = 0; step < Layout::kSteps; ++step) {
        typename Layout::Weights w[Layout::kVectors];
        Layout::unpack(p + Scales::kBytes, step, w);
        LMN_UNROLL
        for (int v = 0; v < Layout::kVectors; ++v) {
          put(b, Layout::column(step, v) * Layout::kInputBytes / 4, w[v]);
        }
      }
      p += kBlockBytes;
    }
    return p;
  }

 private:
  LMN_INLINE void put(int64_t b, int row, const typename Layout::Weights& w) {
    static_assert(sizeof w == 4 * kLanes);
    if constexpr (kPlanes == 1) {
      __builtin_memcpy(weights[b][0][row], &w, sizeof w);
    } else {
      typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));
      Halves both;
      __builtin_memcpy(&both, &w, sizeof w);
      const Halves low = both & 255, high = both << 8;
      __builtin_memcpy(weights[b][0][row], &low, sizeof low);
      __builtin_memcpy(weights[b][1][row], &high, sizeof high);
    }
  }
};

// The integer sums of a block of up to kTileRows rows.
template <typename Blocks>
struct TileSums {
  alignas(64) int32_t sums[Blocks::kParts][Blocks::kPlanes][kTileRows][kLanes];

  // Multiplies block b of the weights and the rows at `x`, on tiles kFirst and so on.
  template <int kFirst>
  LMN_INLINE void multiply(Tiles& tiles, const Blocks& blocks, int64_t b, const std::byte* x,
                           int64_t x_row_bytes) {
    LMN_UNROLL
    for (int part = 0; part < Blocks::kParts; ++part) {
      constexpr int kRows = Blocks::kWeightRows / Blocks::kParts;
      constexpr bool kWords = Blocks::kPlanes == 2;
      tiles.load<kFirst + kActivations>(x + part * 4 * kRows, x_row_bytes);
      tiles.load<kLowWeights>(blocks.weights[b][0][part * kRows], 4 * kLanes);
      tiles.zero<kFirst + kLowSums>();
      // Bytes of kQA8 have unsigned weights; with kQA16 it is the low bytes that are unsigned.
      tiles.multiply<!kWords, kWords, kFirst + kLowSums, kFirst + kActivations, kLowWeights>();
      tiles.store<kFirst + kLowSums>(sums[part][0], 4 * kLanes);
      if constexpr (kWords) {
        tiles.load<kHighWeights>(blocks.weights[b][1][part * kRows], 4 * kLanes);
        tiles.zero<kFirst + kHighSums>();
        tiles.multiply<true, true, kFirst + kHighSums, kFirst + kActivations, kHighWeights>();
        tiles.store<kFirst + kHighSums>(sums[part][1], 4 * kLanes);
      }
    }
  }

  LMN_INLINE F of(int part, int64_t row) const {
    typedef int32_t Sums __attribute__((vector_size(4 * kLanes)));
    Sums sum;
    __builtin_memcpy(&sum, sums[part][0][row], sizeof sum);
    if constexpr (Blocks::kPlanes == 2) {
      Sums high;
      __builtin_memcpy(&high, sums[part][1][row], sizeof high);
      sum += high * 256;
    }
    I lanes;
    static_assert(sizeof lanes == sizeof sum);
    __builtin_memcpy(&lanes, &sum, sizeof sum);
    return to_float(lanes);
  }
};

// acc = minimum * x_sum + acc, then acc = (w_scale * x_scale) * sum + acc for each part: the steps
// of panel_tile. `x_scale` is that of the row and the block; its sum lies sum_offset bytes behind.
template <typename Scales, typename Blocks>
LMN_INLINE F take_block(F acc, const Blocks& blocks, int64_t b, const TileSums<Blocks>& sums,
                        int64_t row, const std::byte* x_scale, int64_t sum_offset) {
  if constexpr (Scales::kHasMin) {
    acc = fma(blocks.min[b], load1(reinterpret_cast<const float*>(x_scale + sum_offset)), acc);
  }
  const F scale = load1(reinterpret_cast<const float*>(x_scale));
  LMN_UNROLL
  for (int part = 0; part < Blocks::kParts; ++part) {
    acc = fma(mul(blocks.scale[b][part], scale), sums.of(part, row), acc);
  }
  return acc;
}

// Where the activations of a tile's rows begin: of some block, and its scale.
struct TileInput {
  const std::byte* x;
  const std::byte* x_scale;
  int64_t x_row_bytes;
  int64_t sum_offset;  // from a scale to its sum
};

// Takes `count` blocks into the accumulators of kTileRows rows.
template <typename Layout, typename Scales>
LMN_NOINLINE void take_whole_tile(Tiles& tiles, const UnpackedBlocks<Layout, Scales>& blocks,
                                  int64_t count, const TileInput& in, F* acc) {
  TileSums<UnpackedBlocks<Layout, Scales>> sums;
  RowPointers<kTileRows> x_scale(in.x_scale, in.x_row_bytes);
  F a[kTileRows];  // registers
  LMN_UNROLL
  for (int r = 0; r < kTileRows; ++r) a[r] = acc[r];
  for (int64_t b = 0; b < count; ++b) {
    sums.template multiply<kWholeTiles>(tiles, blocks, b, in.x + b * 32 * Layout::kInputBytes,
                                        in.x_row_bytes);
    LMN_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      a[r] = take_block<Scales>(a[r], blocks, b, sums, r, x_scale.at(r, 0), in.sum_offset);
    }
    x_scale.advance(4);
  }
  LMN_UNROLL
  for (int r = 0; r < kTileRows; ++r) acc[r] = a[r];
}

// The same for the rows of the smaller tile.
template <typename Layout, typename Scales>
LMN_NOINLINE void take_tail_tile(Tiles& tiles, const UnpackedBlocks<Layout, Scales>& blocks,
                                 int64_t count, const TileInput& in, int64_t rows, F* acc) {
  TileSums<UnpackedBlocks<Layout, Scales>> sums;
  for (int64_t b = 0; b < count; ++b) {
    sums.template multiply<kTailTiles>(tiles, blocks, b, in.x + b * 32 * Layout::kInputBytes,
                                       in.x_row_bytes);
    for (int64_t r = 0; r < rows; ++r) {
      acc[r] = take_block<Scales>(acc[r], blocks, b, sums, r,
                                  in.x_scale + r * in.x_row_bytes + 4 * b, in.sum_offset);
    }
  }
}

// One panel for `rows` rows from `row` on, kTallRows at most.
template <typename Layout, typename Scales>
void tile_panel(Tiles& tiles, const LinearTask& t, const std::byte* panel, int64_t row,
                int64_t rows, F* acc) {
  const int64_t blocks = t.columns / 32;
  for (int64_t r = 0; r < rows; ++r) acc[r] = zero();
  UnpackedBlocks<Layout, Scales> unpacked;
  for (int64_t b = 0; b < blocks; b += kChunkBlocks) {
    const int64_t count = blocks - b < kChunkBlocks ? blocks - b : kChunkBlocks;
    panel = unpacked.unpack(panel, count);
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const std::byte* x = t.x + (row + r) * t.x_row_bytes;
      const TileInput in = {x + b * 32 * Layout::kInputBytes,
                            x + t.columns * Layout::kInputBytes + 4 * b, t.x_row_bytes, 4 * blocks};
      if (rows - r >= kTileRows) {
        take_whole_tile(tiles, unpacked, count, in, acc + r);
      } else {
        take_tail_tile(tiles, unpacked, count, in, rows - r, acc + r);
      }
    }
  }
}

template <typename Layout, typename Scales>
void linear_tiles(const LinearTask& t) {
  const auto tile = [](int64_t rows, int row_bytes) {
    return rows == 0 ? TileShape{} : TileShape{static_cast<int>(rows), row_bytes};
  };
  constexpr int kWeightRows = 8 * Layout::kInputBytes / Scales::kSums, kRowBytes = 4 * kLanes;
  const int64_t tail = t.rows % kTileRows;
  const TileShape weights = tile(kWeightRows, kRowBytes), sums = tile(kTileRows, kRowBytes);
  const TileShape tail_sums = tile(tail, kRowBytes);
  Tiles tiles({weights, weights, tile(kTileRows, 4 * kWeightRows), sums, sums,
               tile(tail, 4 * kWeightRows), tail_sums, tail_sums});

  // Rows are shared out evenly, in whole tiles.
  const int64_t passes = (t.rows + kTallRows - 1) / kTallRows;
  const int64_t tall = ((t.rows + passes - 1) / passes + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t panel_size = panel_bytes(t.source, t.columns, kLanes);
  const int64_t group = panel_group(panel_size);
  F acc[2][kTallRows];  // of a panel, or of a gate and its up panel
  for (int64_t begin = t.panel_begin; begin < t.panel_end; begin += group) {
    const int64_t end = begin + group < t.panel_end ? begin + group : t.panel_end;
    for (int64_t row = 0; row < t.rows; row += tall) {
      const int64_t rows = t.rows - row < tall ? t.rows - row : tall;
      for (int64_t p = begin; p < end; ++p) {
        const int64_t second = t.gated ? p % 2 : 0;
        tile_panel<Layout, Scales>(tiles, t, t.panels + p * panel_size, row, rows, acc[second]);
        if (!t.gated) write_outputs(t, row, rows, p * kLanes, acc[0], 1);
        if (second == 1) write_gated(t, row, rows, p / 2 * kLanes, acc[0], acc[1], 1);
      }
    }
  }
}
