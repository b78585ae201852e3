// SPDX-License-Identifier: Apache-2.0
//
// File rows to panels (panel_layout.h), and one output channel back. Source bytes may have any
// alignment. Eight rows at a time are brought to one canonical form per block (16 bytes of nibble
// pairs k and 16 + k, or 32 bytes) and transposed.

template <typename T>
LMN_INLINE T read(const std::byte* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}
LMN_INLINE int byte_at(const std::byte* p, int64_t i) { return static_cast<uint8_t>(p[i]); }

// The 6-bit scales and minimums of the eight sub-blocks of Q4_K and Q5_K, from their 12 packed
// bytes: four bytes at a time in a general register.
struct ScalesMins {
  uint8_t scale[8], min[8];
};
LMN_INLINE ScalesMins k_scales_mins(const std::byte* s) {
  constexpr uint32_t k6 = 0x3F3F3F3F, k4 = 0x0F0F0F0F, k2 = 0x03030303;
  const uint32_t a = read<uint32_t>(s), b = read<uint32_t>(s + 4), c = read<uint32_t>(s + 8);
  const uint32_t scales[2] = {a & k6, (c & k4) | (a >> 6 & k2) << 4};
  const uint32_t mins[2] = {b & k6, (c >> 4 & k4) | (b >> 6 & k2) << 4};
  ScalesMins y;
  __builtin_memcpy(y.scale, scales, sizeof scales);
  __builtin_memcpy(y.min, mins, sizeof mins);
  return y;
}

// Bytes of a file block and the columns it holds.
struct FileBlock {
  int64_t columns, bytes;
};
constexpr FileBlock file_block(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return {32, 34};
    case DType::kQ4_0:
      return {32, 18};
    case DType::kQ4_1:
      return {32, 20};
    case DType::kQ5_0:
      return {32, 22};
    case DType::kQ5_1:
      return {32, 24};
    case DType::kQ4_K:
      return {256, 144};
    case DType::kQ5_K:
      return {256, 176};
    case DType::kQ6_K:
      return {256, 210};
    case DType::kF32:
      return {1, 4};
    default:
      return {1, 2};
  }
}

// Eight bytes at a time in a general register, the same in every byte.
constexpr uint64_t bytes8(uint64_t byte) { return byte * 0x0101010101010101u; }

// The same dword of four rows.
typedef uint32_t DwordVector __attribute__((vector_size(16)));

// Swaps bits a and b (a > b) of the index of every bit of each dword: bit i moves to where i's bits
// a and b have changed places.
template <int kA, int kB>
LMN_INLINE DwordVector swap_index_bits(DwordVector x) {
  constexpr uint32_t kMask = [] {
    uint32_t mask = 0;  // indices with bit b set and bit a not
    for (int i = 0; i < 32; ++i)
      mask |= (i >> kB & 1) == 1 && (i >> kA & 1) == 0 ? uint32_t{1} << i : 0;
    return mask;
  }();
  constexpr int kDistance = (1 << kA) - (1 << kB);
  const DwordVector differ = (x >> kDistance ^ x) & kMask;
  return x ^ differ ^ differ << kDistance;
}

// Sixteen bytes, for shifts and masks that are the same in each. What a shift carries from one byte
// into its neighbour, a mask takes away.
typedef uint64_t ByteVector __attribute__((vector_size(16)));
LMN_INLINE ByteVector all16(uint64_t byte) { return ByteVector{bytes8(byte), bytes8(byte)}; }

// One block of one row. Nibbles: byte i of 16 has k = i in its low four bits and 16 + i in its high
// ones (q6_k: bytes 0 to 7 have k = i and 8 + i, bytes 8 to 15 k = 8 + i and 16 + i). 8-bit: 32
// bytes. `high`: bit k is the fifth bit of k; in K-quants, the high bits as panel_layout.h has
// them, one dword a unit, before the middle bytes are swapped.
struct Canonical {
  const std::byte* q;  // in the file, or made in `made`
  uint32_t high[2];
  std::byte made[16];
};

template <DType kType>
LMN_INLINE void canonical(const std::byte* row, int64_t b, Canonical* y) {
  constexpr FileBlock kFile = file_block(kType);
  const std::byte* p = row + b * 32 / kFile.columns * kFile.bytes;
  const int j = static_cast<int>(b % 8);  // sub-block of a K-quant
  const auto put = [y](int i, auto value) { __builtin_memcpy(y->made + i, &value, sizeof value); };
  y->q = y->made;
  if constexpr (kType == DType::kQ8_0 || kType == DType::kQ4_0) y->q = p + 2;
  if constexpr (kType == DType::kQ4_1) y->q = p + 4;
  if constexpr (kType == DType::kQ5_0 || kType == DType::kQ5_1) {
    const std::byte* high = p + (kType == DType::kQ5_0 ? 2 : 4);
    y->high[0] = read<uint32_t>(high);
    y->q = high + 4;
  }
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    const std::byte* q = p + (kType == DType::kQ4_K ? 16 : 48) + j / 2 * 32;
    const ByteVector low = read<ByteVector>(q), high = read<ByteVector>(q + 16);
    put(0, j % 2 == 0 ? (low & all16(15)) | (high & all16(15)) << 4
                      : (low >> 4 & all16(15)) | (high & all16(0xF0)));
  }
  if constexpr (kType == DType::kQ5_K) {
    const ByteVector first = read<ByteVector>(p + 16) >> j & all16(1);
    const ByteVector both = first | (read<ByteVector>(p + 32) >> j & all16(1)) << 1;
    const uint64_t x = both[0] | both[1] << 4;
    y->high[0] = static_cast<uint32_t>(x | x >> 32 << 2);
  }
  if constexpr (kType == DType::kQ6_K) {
    const int half = j / 4,
              group = j % 4;  // groups 0, 1: low nibbles of 64 bytes; 2, 3: their high nibbles
    const std::byte* low = p + half * 64 + group % 2 * 32;
    const std::byte* high = p + 128 + half * 32;
    for (int i = 0; i < 2; ++i) {
      const ByteVector pairs = read<ByteVector>(high + 16 * i) >> 2 * group & all16(3);
      const uint64_t x = pairs[0] | pairs[1] << 2;
      y->high[i] = static_cast<uint32_t>(x | x >> 32 << 4);
    }
    const auto nibbles = [&](int i) {
      return read<uint64_t>(low + i) >> (group / 2 * 4) & bytes8(15);
    };
    put(0, nibbles(0) | nibbles(8) << 4);
    put(8, nibbles(16) | nibbles(24) << 4);
  }
}

// The high bits of eight rows' blocks to their lanes of the units behind the nibbles.
template <DType kType>
LMN_INLINE void pack_high_bits(const Canonical (&c)[8], bool wide, std::byte* unit) {
  constexpr int kUnits = weight_kind(kType).bits - 4;  // none, one or two
  LMN_UNROLL
  for (int u = 0; u < kUnits; ++u) {
    LMN_UNROLL
    for (int i = 0; i < 8; i += 4) {
      DwordVector x = {c[i].high[u], c[i + 1].high[u], c[i + 2].high[u], c[i + 3].high[u]};
      if constexpr (kType == DType::kQ5_0 || kType == DType::kQ5_1) {  // of k, (h, j, j, i, i)
        x = swap_index_bits<4, 0>(x);                                  // (i0, j1, j0, i1, h)
        x = swap_index_bits<4, 1>(x);                                  // (i1, j1, j0, i0, h)
        x = swap_index_bits<3, 1>(x);                                  // (i1, i0, j0, j1, h)
        x = swap_index_bits<2, 1>(x);                                  // (i1, i0, j1, j0, h)
      }
      if (wide) x = swap_index_bits<4, 3>(x);  // the middle bytes
      __builtin_memcpy(unit + 4 * (kLanes * u + i), &x, sizeof x);
    }
  }
}

// Bytes of one lane in a scale plane and in a super plane.
constexpr int64_t scale_width(ScaleKind kind) {
  return kind == ScaleKind::kSuper || kind == ScaleKind::kSuper16 ? 1 : 2;
}

// Scales and supers of one row to one lane of a panel: of block b, or in K-quants of the eight
// blocks from b on.
template <DType kType>
LMN_INLINE void pack_scales(const std::byte* row, int64_t b, std::byte* panel, int64_t lane) {
  constexpr FileBlock kFile = file_block(kType);
  constexpr ScaleKind kKind = weight_kind(kType).scales;
  const std::byte* p = row + b * 32 / kFile.columns * kFile.bytes;
  constexpr int64_t kBlockStride = block_offset(kType, kLanes, 1) - block_offset(kType, kLanes, 0);
  std::byte* s = panel + block_offset(kType, kLanes, b) + lane * scale_width(kKind);
  [[maybe_unused]] std::byte* d = panel + super_offset(kType, kLanes, b) + lane * 2;
  if constexpr (kKind == ScaleKind::kHalf) __builtin_memcpy(s, p, 2);
  if constexpr (kKind == ScaleKind::kHalfMin) {
    __builtin_memcpy(s, p, 2);
    __builtin_memcpy(s + 2 * kLanes, p + 2, 2);
  }
  if constexpr (kKind == ScaleKind::kSuper) {
    const ScalesMins all = k_scales_mins(p + 4);
    for (int64_t j = 0; j < 8; ++j, s += kBlockStride) {
      s[0] = std::byte{all.scale[j]};
      s[kLanes] = std::byte{all.min[j]};
    }
    const uint16_t negated = read<uint16_t>(p + 2) ^ 0x8000u;
    __builtin_memcpy(d, p, 2);
    __builtin_memcpy(d + 2 * kLanes, &negated, 2);
  }
  if constexpr (kKind == ScaleKind::kSuper16) {
    for (int64_t j = 0; j < 8; ++j, s += kBlockStride) {
      s[0] = p[192 + 2 * j];
      s[kLanes] = p[193 + 2 * j];
    }
    __builtin_memcpy(d, p + 208, 2);
  }
}

// Bytes of a lane in one unit of quants.
constexpr int64_t unit_width(DType type, DType input_type) {
  return weight_kind(type).bits == 8 && input_type == DType::kQA16 ? 2 : 4;
}

// Rows of the eight lanes from `lane` on. Lanes past the end of the tensor repeat its last row:
// their outputs are never written, and finite.
struct EightRows {
  const std::byte* p[8];
  LMN_INLINE EightRows(const PackTask& t, int64_t lane, int64_t row_bytes) {
    for (int64_t i = 0; i < 8; ++i)
      p[i] = t.rows + (lane + i < t.valid ? lane + i : t.valid - 1) * row_bytes;
  }
};

// Fetches the rows of the panel after this one while this one is packed: they lie behind each
// other, but eight short rows at a time are no stream that the processor sees. Where no such panel
// follows, other bytes are fetched: of whatever lies there, and none past the mapping.
class NextPanel {
 public:
  LMN_INLINE explicit NextPanel(const std::byte* begin) : p_(begin) {}
  template <int64_t kBytes>
  LMN_INLINE void fetch() {
    LMN_UNROLL
    for (int64_t i = 0; i < kBytes; i += 64) prefetch(p_ + i);
    p_ += kBytes;
  }

 private:
  const std::byte* p_;
};

template <DType kType>
void pack_quantized(const PackTask& t) {
  constexpr FileBlock kFile = file_block(kType);
  constexpr int64_t kScaleBytes = kLanes * scale_bytes(weight_kind(kType).scales);
  const bool wide = t.input_type == DType::kQA16;
  const int64_t row_bytes = t.columns / kFile.columns * kFile.bytes;
  NextPanel next(t.rows + kLanes * row_bytes);
  for (int64_t lane = 0; lane < kLanes; lane += 8) {
    const EightRows rows(t, lane, row_bytes);
    for (int64_t b = 0; b < t.columns / 32; ++b) {
      next.fetch<8 * kFile.bytes * 32 / kFile.columns>();
      Canonical blocks[8];
      const std::byte* q[8];
      for (int i = 0; i < 8; ++i) {
        canonical<kType>(rows.p[i], b, &blocks[i]);
        q[i] = blocks[i].q;
      }
      std::byte* y = t.panel + block_offset(kType, kLanes, b) + kScaleBytes +
                     lane * unit_width(kType, t.input_type);
      if constexpr (weight_kind(kType).bits < 8) {
        transpose_dwords(q, 0, y, 4 * kLanes, wide ? ByteChange::kSwapMiddle : ByteChange::kNone,
                         0);
        pack_high_bits<kType>(blocks, wide, y + 16 * kLanes);
      } else if (wide) {
        transpose_words(q, 0, y, 2 * kLanes);
        transpose_words(q, 16, y + 16 * kLanes, 2 * kLanes);
      } else {
        transpose_dwords(q, 0, y, 4 * kLanes, ByteChange::kAdd, kByteZero);
        transpose_dwords(q, 16, y + 16 * kLanes, 4 * kLanes, ByteChange::kAdd, kByteZero);
      }
      if (b % (kFile.columns / 32) == 0) {
        for (int64_t i = 0; i < 8; ++i) pack_scales<kType>(rows.p[i], b, t.panel, lane + i);
      }
    }
  }
}

// Float weights: [columns][kFloatLanes].
template <typename T>
void pack_float(const PackTask& t) {
  constexpr int64_t kSize = sizeof(T), kChunk = 16 / kSize;  // columns in 16 bytes
  for (int64_t lane = 0; lane < kFloatLanes; lane += 8) {
    const EightRows rows(t, lane, t.row_bytes == 0 ? t.columns * kSize : t.row_bytes);
    int64_t k = 0;
    for (; k + kChunk <= t.columns; k += kChunk) {
      std::byte* y = t.panel + (k * kFloatLanes + lane) * kSize;
      if constexpr (kSize == 4) {
        transpose_dwords(rows.p, k * kSize, y, kFloatLanes * kSize, ByteChange::kNone, 0);
      } else {
        transpose_words(rows.p, k * kSize, y, kFloatLanes * kSize);
      }
    }
    for (; k < t.columns; ++k) {
      for (int64_t i = 0; i < 8; ++i) {
        __builtin_memcpy(t.panel + (k * kFloatLanes + lane + i) * kSize, rows.p[i] + k * kSize,
                         sizeof(T));
      }
    }
  }
}

void pack_panel(const PackTask& t) {
  switch (t.source) {
    case DType::kF32:
      return pack_float<uint32_t>(t);
    case DType::kF16:
    case DType::kBF16:
      return pack_float<uint16_t>(t);
    case DType::kQ8_0:
      return pack_quantized<DType::kQ8_0>(t);
    case DType::kQ4_0:
      return pack_quantized<DType::kQ4_0>(t);
    case DType::kQ4_1:
      return pack_quantized<DType::kQ4_1>(t);
    case DType::kQ5_0:
      return pack_quantized<DType::kQ5_0>(t);
    case DType::kQ5_1:
      return pack_quantized<DType::kQ5_1>(t);
    case DType::kQ4_K:
      return pack_quantized<DType::kQ4_K>(t);
    case DType::kQ5_K:
      return pack_quantized<DType::kQ5_K>(t);
    case DType::kQ6_K:
      return pack_quantized<DType::kQ6_K>(t);
    default:
      return;
  }
}

// First lane of one vector, of half-precision or of small integers, as a float.
LMN_INLINE float half_at(const std::byte* p) {
  float lanes[kLanes];
  std::byte padded[2 * kLanes] = {p[0], p[1]};
  store(lanes, load_half(padded));
  return lanes[0];
}

// The integer of column k (of a block) in one lane, zero point removed.
LMN_INLINE int integer_at(const UnpackTask& t, const std::byte* block, int k) {
  const WeightKind kind = weight_kind(t.source);
  const bool wide = t.input_type == DType::kQA16;
  if (kind.bits == 8) {
    const int64_t width = wide ? 2 : 4;
    const std::byte q = block[k / width * width * kLanes + t.lane * width + k % width];
    if (wide || LMN_BYTE_DOT == LMN_SIGNED_BYTES) return static_cast<int8_t>(q);
    return static_cast<uint8_t>(q) - kByteZero;
  }
  const std::byte* lane = block + 4 * t.lane;
  const auto unit = [&](int i) { return lane + 4 * kLanes * i; };
  // Column i of four, of unit j, in the low or the high nibbles.
  const int i = k % 4, byte = wide && (i == 1 || i == 2) ? 3 - i : i;
  const int j = kind.bits == 6 ? k / 16 * 2 + k % 8 / 4 : k % 16 / 4;
  const int high = kind.bits == 6 ? k % 16 / 8 : k / 16;
  int q = byte_at(unit(j), byte) >> (4 * high) & 15;
  if (kind.bits == 5) q |= (byte_at(unit(4), byte) >> (2 * j + high) & 1) << 4;
  if (kind.bits == 6) q |= (byte_at(unit(4 + j / 2), byte) >> (4 * (j % 2) + 2 * high) & 3) << 4;
  return q - kind.zero;
}

void unpack_quantized(const UnpackTask& t) {
  const WeightKind kind = weight_kind(t.source);
  for (int64_t b = 0; b < t.columns / 32; ++b) {
    const std::byte* block = t.panel + block_offset(t.source, kLanes, b);
    const std::byte* s = block + t.lane * scale_width(kind.scales);
    const std::byte* d = t.panel + super_offset(t.source, kLanes, b) + t.lane * 2;
    float scale[2], min = 0;
    if (kind.scales == ScaleKind::kSuper) {
      scale[0] = scale[1] = half_at(d) * static_cast<float>(byte_at(s, 0));
      min = half_at(d + 2 * kLanes) * static_cast<float>(byte_at(s, kLanes));
    } else if (kind.scales == ScaleKind::kSuper16) {
      for (int i = 0; i < 2; ++i)
        scale[i] = half_at(d) * static_cast<float>(read<int8_t>(s + i * kLanes));
    } else {
      scale[0] = scale[1] = half_at(s);
      if (kind.scales == ScaleKind::kHalfMin) min = half_at(s + 2 * kLanes);
    }
    const std::byte* quants = block + kLanes * scale_bytes(kind.scales);
    for (int k = 0; k < 32; ++k) {
      t.y[b * 32 + k] = scale[k / 16] * static_cast<float>(integer_at(t, quants, k)) + min;
    }
  }
}

void unpack_row(const UnpackTask& t) {
  if (weight_kind(t.source).scales != ScaleKind::kNone) return unpack_quantized(t);
  for (int64_t k = 0; k < t.columns; ++k) {
    const int64_t at = k * kFloatLanes + t.lane;
    if (t.source == DType::kF32) {
      t.y[k] = read<float>(t.panel + 4 * at);
    } else if (t.source == DType::kF16) {
      t.y[k] = half_at(t.panel + 2 * at);
    } else {
      const uint32_t bits = static_cast<uint32_t>(read<uint16_t>(t.panel + 2 * at)) << 16;
      __builtin_memcpy(t.y + k, &bits, sizeof bits);
    }
  }
}
