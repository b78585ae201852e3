// SPDX-License-Identifier: Apache-2.0
//
// transpose_sse-inl.h in NEON: transposes of 8 rows, for packing.

enum class ByteChange { kNone, kSwapMiddle, kAdd };

// Four dwords at rows[i] + offset, i < 8 -> 4 runs of 8 dwords, `stride` bytes apart.
LMN_INLINE void transpose_dwords(const std::byte* const (&rows)[8], int64_t offset, std::byte* y,
                                 int64_t stride, ByteChange change, int constant) {
  const uint8x16_t swap = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
  const uint8x16_t addend = vdupq_n_u8(static_cast<uint8_t>(constant));
  LMN_UNROLL
  for (int half = 0; half < 2; ++half) {
    uint32x4_t r[4];
    LMN_UNROLL
    for (int i = 0; i < 4; ++i) {
      uint8x16_t v = vld1q_u8(reinterpret_cast<const uint8_t*>(rows[4 * half + i] + offset));
      if (change == ByteChange::kSwapMiddle) v = vqtbl1q_u8(v, swap);
      if (change == ByteChange::kAdd) v = vaddq_u8(v, addend);
      r[i] = vreinterpretq_u32_u8(v);
    }
    const auto put = [&](int run, uint32x4_t a, uint32x4_t b, bool high) {
      const uint64x2_t c = vreinterpretq_u64_u32(a), d = vreinterpretq_u64_u32(b);
      vst1q_u64(reinterpret_cast<uint64_t*>(y + 16 * half + run * stride),
                high ? vzip2q_u64(c, d) : vzip1q_u64(c, d));
    };
    const uint32x4_t a = vzip1q_u32(r[0], r[1]), b = vzip1q_u32(r[2], r[3]);
    const uint32x4_t c = vzip2q_u32(r[0], r[1]), d = vzip2q_u32(r[2], r[3]);
    put(0, a, b, false);
    put(1, a, b, true);
    put(2, c, d, false);
    put(3, c, d, true);
  }
}

// Eight words at rows[i] + offset, i < 8 -> 8 runs of 8 words, `stride` bytes apart.
LMN_INLINE void transpose_words(const std::byte* const (&rows)[8], int64_t offset, std::byte* y,
                                int64_t stride) {
  uint16x8_t r[8];
  LMN_UNROLL
  for (int i = 0; i < 8; ++i) r[i] = vld1q_u16(reinterpret_cast<const uint16_t*>(rows[i] + offset));
  // Words of rows 2i and 2i + 1 side by side, of columns 0..3 and 4..7; then four rows.
  uint32x4_t low[4], high[4];
  LMN_UNROLL
  for (int i = 0; i < 4; ++i) {
    low[i] = vreinterpretq_u32_u16(vzip1q_u16(r[2 * i], r[2 * i + 1]));
    high[i] = vreinterpretq_u32_u16(vzip2q_u16(r[2 * i], r[2 * i + 1]));
  }
  const auto put = [&](int run, uint32x4_t top, uint32x4_t bottom) {
    const uint64x2_t a = vreinterpretq_u64_u32(top), b = vreinterpretq_u64_u32(bottom);
    vst1q_u64(reinterpret_cast<uint64_t*>(y + run * stride), vzip1q_u64(a, b));
    vst1q_u64(reinterpret_cast<uint64_t*>(y + (run + 1) * stride), vzip2q_u64(a, b));
  };
  put(0, vzip1q_u32(low[0], low[1]), vzip1q_u32(low[2], low[3]));
  put(2, vzip2q_u32(low[0], low[1]), vzip2q_u32(low[2], low[3]));
  put(4, vzip1q_u32(high[0], high[1]), vzip1q_u32(high[2], high[3]));
  put(6, vzip2q_u32(high[0], high[1]), vzip2q_u32(high[2], high[3]));
}
