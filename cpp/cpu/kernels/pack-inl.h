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

// The 6-bit scale and minimum of sub-block j (0..7) of Q4_K and Q5_K, from their 12 packed bytes.
LMN_INLINE void k_scale_min(const std::byte* s, int j, int* scale, int* min) {
  if (j < 4) {
    *scale = byte_at(s, j) & 63;
    *min = byte_at(s, j + 4) & 63;
  } else {
    *scale = (byte_at(s, j + 4) & 15) | (byte_at(s, j - 4) >> 6) << 4;
    *min = (byte_at(s, j + 4) >> 4) | (byte_at(s, j) >> 6) << 4;
  }
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

// The eight bits of a byte as eight bytes that are 0 or 1. Each byte of the product keeps its own
// bit; adding 127 moves it to the top, without a carry into the next byte.
LMN_INLINE uint64_t spread_bits(uint64_t byte) {
  const uint64_t own = byte * bytes8(1) & 0x8040201008040201u;
  return (own + bytes8(0x7F)) >> 7 & bytes8(1);
}

// Where the canonical integers of block b of a row are: in the file, or made in `y` (32 bytes).
template <DType kType>
LMN_INLINE const std::byte* canonical(const std::byte* row, int64_t b, std::byte* y) {
  constexpr FileBlock kFile = file_block(kType);
  const std::byte* p = row + b * 32 / kFile.columns * kFile.bytes;
  const int j = static_cast<int>(b % 8);  // sub-block of a K-quant
  const auto put = [y](int i, uint64_t value) { __builtin_memcpy(y + i, &value, sizeof value); };
  if constexpr (kType == DType::kQ8_0) return p + 2;
  if constexpr (kType == DType::kQ4_0) return p + 2;
  if constexpr (kType == DType::kQ4_1) return p + 4;
  if constexpr (kType == DType::kQ5_0 || kType == DType::kQ5_1) {
    const std::byte* high = p + (kType == DType::kQ5_0 ? 2 : 4);
    for (int i = 0; i < 32; i += 8) {
      const uint64_t nibbles = read<uint64_t>(high + 4 + i % 16) >> (i < 16 ? 0 : 4) & bytes8(15);
      const uint64_t fifth = spread_bits(static_cast<uint64_t>(byte_at(high, i / 8)));
      // q - 16 of a q below 16 is its nibble under four ones, and of the others the nibble alone.
      put(i, nibbles | (kType == DType::kQ5_0 ? (fifth ^ bytes8(1)) * 0xF0 : fifth << 4));
    }
  }
  if constexpr (kType == DType::kQ4_K) {
    const std::byte* q = p + 16 + j / 2 * 32;
    for (int i = 0; i < 16; i += 8) {
      const uint64_t low = read<uint64_t>(q + i), high = read<uint64_t>(q + i + 16);
      put(i, j % 2 == 0 ? (low & bytes8(15)) | (high & bytes8(15)) << 4
                        : (low >> 4 & bytes8(15)) | (high & bytes8(0xF0)));
    }
  }
  if constexpr (kType == DType::kQ5_K) {
    const std::byte* q = p + 48 + j / 2 * 32;
    for (int i = 0; i < 32; i += 8) {
      const uint64_t nibbles = read<uint64_t>(q + i) >> (j % 2 * 4) & bytes8(15);
      put(i, nibbles | (read<uint64_t>(p + 16 + i) >> j & bytes8(1)) << 4);
    }
  }
  if constexpr (kType == DType::kQ6_K) {
    const int half = j / 4,
              group = j % 4;  // groups 0, 1: low nibbles of 64 bytes; 2, 3: their high nibbles
    const std::byte* low = p + half * 64 + group % 2 * 32;
    const std::byte* high = p + 128 + half * 32;
    for (int i = 0; i < 32; i += 8) {
      const uint64_t nibbles = read<uint64_t>(low + i) >> (group / 2 * 4) & bytes8(15);
      const uint64_t q = nibbles | (read<uint64_t>(high + i) >> (2 * group) & bytes8(3)) << 4;
      // q - 32 of a q below 32 is q under three ones, and of the others q without its top bit.
      put(i, (q & bytes8(31)) | (~q >> 5 & bytes8(1)) * 0xE0);
    }
  }
  return y;
}

// Bytes of one lane in a scale plane and in a super plane.
constexpr int64_t scale_width(ScaleKind kind) {
  return kind == ScaleKind::kSuper || kind == ScaleKind::kSuper16 ? 1 : 2;
}

// Scales and supers of block b of one row to one lane of a panel.
template <DType kType>
LMN_INLINE void pack_scales(const std::byte* row, int64_t b, std::byte* panel, int64_t lane) {
  constexpr FileBlock kFile = file_block(kType);
  constexpr ScaleKind kKind = weight_kind(kType).scales;
  const std::byte* p = row + b * 32 / kFile.columns * kFile.bytes;
  std::byte* s = panel + block_offset(kType, kLanes, b) + lane * scale_width(kKind);
  [[maybe_unused]] std::byte* d = panel + super_offset(kType, kLanes, b) + lane * 2;
  if constexpr (kKind == ScaleKind::kHalf) __builtin_memcpy(s, p, 2);
  if constexpr (kKind == ScaleKind::kHalfMin) {
    __builtin_memcpy(s, p, 2);
    __builtin_memcpy(s + 2 * kLanes, p + 2, 2);
  }
  if constexpr (kKind == ScaleKind::kSuper) {
    int scale, min;
    k_scale_min(p + 4, static_cast<int>(b % 8), &scale, &min);
    s[0] = static_cast<std::byte>(scale);
    s[kLanes] = static_cast<std::byte>(min);
    const uint16_t negated = read<uint16_t>(p + 2) ^ 0x8000u;
    __builtin_memcpy(d, p, 2);
    __builtin_memcpy(d + 2 * kLanes, &negated, 2);
  }
  if constexpr (kKind == ScaleKind::kSuper16) {
    s[0] = p[192 + b % 8 * 2];
    s[kLanes] = p[193 + b % 8 * 2];
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

template <DType kType>
void pack_quantized(const PackTask& t) {
  constexpr FileBlock kFile = file_block(kType);
  constexpr int64_t kScaleBytes = kLanes * scale_bytes(weight_kind(kType).scales);
  const bool wide = t.input_type == DType::kQA16;
  for (int64_t lane = 0; lane < kLanes; lane += 8) {
    const EightRows rows(t, lane, t.columns / kFile.columns * kFile.bytes);
    for (int64_t b = 0; b < t.columns / 32; ++b) {
      std::byte made[8][32];
      const std::byte* q[8];
      for (int i = 0; i < 8; ++i) q[i] = canonical<kType>(rows.p[i], b, made[i]);
      std::byte* y = t.panel + block_offset(kType, kLanes, b) + kScaleBytes +
                     lane * unit_width(kType, t.input_type);
      if constexpr (weight_kind(kType).bits == 4) {
        transpose_dwords(q, 0, y, 4 * kLanes, wide ? ByteChange::kSwapMiddle : ByteChange::kNone,
                         0);
      } else if (wide) {
        transpose_words(q, 0, y, 2 * kLanes);
        transpose_words(q, 16, y + 16 * kLanes, 2 * kLanes);
      } else {
        transpose_dwords(q, 0, y, 4 * kLanes, ByteChange::kAdd, byte_zero(kType));
        transpose_dwords(q, 16, y + 16 * kLanes, 4 * kLanes, ByteChange::kAdd, byte_zero(kType));
      }
      for (int64_t i = 0; i < 8; ++i) pack_scales<kType>(rows.p[i], b, t.panel, lane + i);
    }
  }
}

// Float weights: [columns][kFloatLanes].
template <typename T>
void pack_float(const PackTask& t) {
  constexpr int64_t kSize = sizeof(T), kChunk = 16 / kSize;  // columns in 16 bytes
  for (int64_t lane = 0; lane < kFloatLanes; lane += 8) {
    const EightRows rows(t, lane, t.columns * kSize);
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
LMN_INLINE int integer_at(const UnpackTask& t, const std::byte* block, int64_t k) {
  const int64_t width = unit_width(t.source, t.input_type);
  if (weight_kind(t.source).bits == 4) {
    int64_t i = k % 4;
    if (t.input_type == DType::kQA16 && (i == 1 || i == 2)) i = 3 - i;
    const int pair = byte_at(block, k % 16 / 4 * width * kLanes + t.lane * width + i);
    return (k < 16 ? pair & 15 : pair >> 4) - weight_kind(t.source).zero;
  }
  const std::byte q = block[k / width * width * kLanes + t.lane * width + k % width];
  if (t.input_type == DType::kQA16 || LMN_BYTE_DOT == LMN_SIGNED_BYTES)
    return static_cast<int8_t>(q);
  return static_cast<uint8_t>(q) - byte_zero(t.source);
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
    for (int64_t k = 0; k < 32; ++k) {
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
