// SPDX-License-Identifier: Apache-2.0
//
// Tiles: the eight tile registers of AMX, and the five instructions that kernels need. A tile is up
// to 16 rows of up to 64 bytes; its shape is set once, when a Tiles is made, and the registers are
// free again when it ends, so that no state stays behind in a caller's thread.
//
// With LMN_EMULATE_TILES the same in plain C++, with the same bits, for tests on machines without
// AMX. It traps where the processor would: on impossible shapes, and on operands that do not fit.
//
// Assembly and not intrinsics: those of GCC 12 take tile numbers as text only, not as template
// arguments, and do not tell the compiler that a load reads memory.
//
// Included within a kernel file's unnamed namespace.

struct TileShape {
  int rows;
  int row_bytes;  // a multiple of 4
};

constexpr int kTiles = 8;
constexpr int kMaxTileRows = 16;
constexpr int kMaxTileRowBytes = 64;

#if !defined(LMN_EMULATE_TILES)

class Tiles {
 public:
  LMN_INLINE explicit Tiles(const TileShape (&shapes)[kTiles]) {
    struct alignas(64) {
      uint8_t palette = 1, first_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    for (int i = 0; i < kTiles; ++i) {
      config.row_bytes[i] = static_cast<uint16_t>(shapes[i].row_bytes);
      config.rows[i] = static_cast<uint8_t>(shapes[i].rows);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  LMN_INLINE ~Tiles() { __asm__ volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // Rows `stride` bytes apart, of any alignment.
  template <int kTile>
  LMN_INLINE void load(const void* rows, int64_t stride) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0"
                     :
                     : "i"(kTile), "r"(rows), "r"(stride)
                     : "memory");
  }
  template <int kTile>
  LMN_INLINE void store(void* rows, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)"
                     :
                     : "i"(kTile), "r"(rows), "r"(stride)
                     : "memory");
  }
  template <int kTile>
  LMN_INLINE void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  // sums[m][n] += a[m][4k + i] * b[k][4n + i] for all k, and i in 0 to 3: bytes, signed or not,
  // into int32.
  template <bool kSignedA, bool kSignedB, int kSums, int kA, int kB>
  LMN_INLINE void multiply() {
    if constexpr (kSignedA && kSignedB) {
      __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
    } else if constexpr (kSignedA) {
      __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
    } else if constexpr (kSignedB) {
      __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
    } else {
      __asm__ volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
    }
  }
};

#else

class Tiles {
 public:
  explicit Tiles(const TileShape (&shapes)[kTiles]) {
    for (int i = 0; i < kTiles; ++i) {
      tiles_[i].shape = shapes[i];
      const auto [rows, row_bytes] = shapes[i];
      require(rows >= 0 && rows <= kMaxTileRows);
      require(row_bytes >= 0 && row_bytes <= kMaxTileRowBytes && row_bytes % 4 == 0);
      require((rows == 0) == (row_bytes == 0));
    }
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  void load(const void* rows, int64_t stride) {
    zero<kTile>();
    Tile& t = tiles_[kTile];
    for (int r = 0; r < t.shape.rows; ++r) {
      __builtin_memcpy(t.bytes[r], static_cast<const std::byte*>(rows) + r * stride,
                       static_cast<size_t>(t.shape.row_bytes));
    }
  }
  template <int kTile>
  void store(void* rows, int64_t stride) {
    const Tile& t = tiles_[kTile];
    require(t.shape.rows != 0);
    for (int r = 0; r < t.shape.rows; ++r) {
      __builtin_memcpy(static_cast<std::byte*>(rows) + r * stride, t.bytes[r],
                       static_cast<size_t>(t.shape.row_bytes));
    }
  }
  template <int kTile>
  void zero() {
    require(tiles_[kTile].shape.rows != 0);
    __builtin_memset(tiles_[kTile].bytes, 0, sizeof tiles_[kTile].bytes);
  }

  template <bool kSignedA, bool kSignedB, int kSums, int kA, int kB>
  void multiply() {
    static_assert(kSums != kA && kSums != kB && kA != kB);
    Tile &sums = tiles_[kSums], &a = tiles_[kA], &b = tiles_[kB];
    require(sums.shape.rows == a.shape.rows && sums.shape.row_bytes == b.shape.row_bytes);
    require(a.shape.row_bytes == 4 * b.shape.rows && a.shape.rows != 0 && b.shape.rows != 0);
    for (int m = 0; m < sums.shape.rows; ++m) {
      uint32_t row[kMaxTileRowBytes / 4];  // unsigned: the processor's sums wrap
      __builtin_memcpy(row, sums.bytes[m], sizeof row);
      for (int k = 0; k < b.shape.rows; ++k) {
        for (int n = 0; n < kMaxTileRowBytes / 4; ++n) {
          int32_t sum = 0;
          for (int i = 0; i < 4; ++i) {
            sum += value<kSignedA>(a.bytes[m][4 * k + i]) * value<kSignedB>(b.bytes[k][4 * n + i]);
          }
          row[n] += static_cast<uint32_t>(sum);
        }
      }
      __builtin_memcpy(sums.bytes[m], row, sizeof row);
    }
  }

 private:
  struct Tile {
    TileShape shape;
    alignas(64) uint8_t bytes[kMaxTileRows][kMaxTileRowBytes] = {};  // 0 past the shape
  };

  template <bool kSigned>
  static int32_t value(uint8_t byte) {
    if constexpr (kSigned) return static_cast<int8_t>(byte);
    return byte;
  }
  static void require(bool holds) {
    if (!holds) __builtin_trap();
  }

  Tile tiles_[kTiles];
};

#endif
