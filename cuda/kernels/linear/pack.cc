// SPDX-License-Identifier: Apache-2.0
//
// File rows to packed_layout.h, on the host. Source bytes may have any alignment. A block is
// brought to 32 integers, one a byte, then scattered by words of four columns.
#include <algorithm>
#include <cstring>

#include "core/float16.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/linear/packed_layout.h"
#include "ops/validate.h"

namespace lmn::cuda {
namespace {

template <typename T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <typename T>
void write(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}
uint8_t byte_at(const std::byte* p, int i) { return static_cast<uint8_t>(p[i]); }

// 32 integers of a block as packed_layout.h stores them, in the low bits of their bytes, and what
// scales them: bytes of `scales` (f16 d and m; a K-quant's scale and minimum).
struct Block {
  uint8_t q[kBlock];
  uint8_t scales[4];
};

void nibbles(const std::byte* p, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = byte_at(p, i) & 15;
    q[i + 16] = byte_at(p, i) >> 4;
  }
}
void fifth_bits(uint32_t bits, uint8_t* q) {
  for (int i = 0; i < kBlock; ++i) q[i] = static_cast<uint8_t>(q[i] | (bits >> i & 1) << 4);
}
// From offset to two's complement: the same bits but the highest.
void flip(uint8_t bit, uint8_t* q) {
  for (int i = 0; i < kBlock; ++i) q[i] ^= bit;
}

// Scale and minimum of block j of a K-quant, from its 12 bytes of both.
void k_scale_min(const std::byte* s, int j, uint8_t* y) {
  if (j < 4) {
    y[0] = byte_at(s, j) & 63;
    y[1] = byte_at(s, j + 4) & 63;
  } else {
    y[0] = static_cast<uint8_t>((byte_at(s, j + 4) & 15) | byte_at(s, j - 4) >> 6 << 4);
    y[1] = static_cast<uint8_t>(byte_at(s, j + 4) >> 4 | byte_at(s, j) >> 6 << 4);
  }
}

// Block `b` of a row in the file.
void read_block(DType type, const std::byte* row, int64_t b, Block* y) {
  const DTypeInfo& file = info(type);
  const std::byte* p = row + b * kBlock / file.block_elements * file.block_bytes;
  const int j = static_cast<int>(b % 8);  // of a K-quant's eight
  if (!weight_format(type).is_super) std::memcpy(y->scales, p, 4);
  switch (type) {
    case DType::kQ4_0:
      nibbles(p + 2, y->q);
      return flip(8, y->q);
    case DType::kQ4_1:
      return nibbles(p + 4, y->q);
    case DType::kQ5_0:
      nibbles(p + 6, y->q);
      fifth_bits(read<uint32_t>(p + 2), y->q);
      return flip(16, y->q);
    case DType::kQ5_1:
      nibbles(p + 8, y->q);
      return fifth_bits(read<uint32_t>(p + 4), y->q);
    case DType::kQ4_K:
    case DType::kQ5_K: {
      k_scale_min(p + 4, j, y->scales);
      const bool fifth = type == DType::kQ5_K;
      const std::byte* q = p + (fifth ? 48 : 16) + j / 2 * 32;
      for (int i = 0; i < kBlock; ++i) {
        y->q[i] = byte_at(q, i) >> (j % 2 * 4) & 15;
        if (fifth) y->q[i] = static_cast<uint8_t>(y->q[i] | (byte_at(p + 16, i) >> j & 1) << 4);
      }
      return;
    }
    case DType::kQ6_K: {
      const std::byte* low = p + j / 4 * 64 + j % 2 * 32;
      const std::byte* high = p + 128 + j / 4 * 32;
      for (int i = 0; i < kBlock; ++i) {
        y->q[i] = static_cast<uint8_t>((byte_at(low, i) >> (j % 4 / 2 * 4) & 15) |
                                       (byte_at(high, i) >> (j % 4 * 2) & 3) << 4);
      }
      std::memcpy(y->scales, p + 192 + j * 2, 2);
      return flip(32, y->q);
    }
    default:
      std::memcpy(y->q, p + 2, kBlock);
  }
}

void or_word(std::byte* at, uint32_t bits) { write(at, read<uint32_t>(at) | bits); }

// Block `slot` of a step whose quants are `blocks` many.
void scatter(const WeightFormat& f, const Block& block, int channel, int slot, int blocks,
             std::byte* step) {
  const int g = channel % 8, c = channel / 8;
  std::byte* quants = step + slot * f.quant_bytes();
  std::byte* high = step + blocks * f.quant_bytes();
  for (int t = 0; t < 4; ++t) {
    const int at = (4 * g + t) * 16;
    uint32_t half[2];
    std::memcpy(&half[0], block.q + 4 * t, 4);
    std::memcpy(&half[1], block.q + 16 + 4 * t, 4);
    if (f.bits == 8) {
      for (int h = 0; h < 2; ++h) write(quants + h * 512 + at + c * 4, half[h]);
      continue;
    }
    write(quants + at + c * 4, (half[0] & 0x0F0F0F0Fu) | (half[1] & 0x0F0F0F0Fu) << 4);
    for (int h = 0; h < 2; ++h) {
      const uint32_t upper = half[h] >> 4 & 0x03030303u;
      if (f.bits == 5) or_word(high + at + slot * 4, (upper & 0x01010101u) << (2 * c + h));
      if (f.bits == 6)
        or_word(high + slot / 2 * 512 + at + slot % 2 * 8 + c / 2 * 4,
                upper << (c % 2 * 4 + h * 2));
    }
  }
  std::byte* scales = high + f.high_bytes() + channel * f.scale_words() * 4;
  if (f.has_min) {
    std::memcpy(scales + slot * 4, block.scales, 4);
  } else if (f.is_super && !f.is_signed) {
    std::memcpy(scales + slot, block.scales, 1);
    std::memcpy(scales + 4 + slot, block.scales + 1, 1);
  } else {
    std::memcpy(scales + slot * 2, block.scales, 2);
  }
}

void pack_quantized(DType type, const std::byte* row, int64_t columns, int channel,
                    std::byte* panel) {
  const WeightFormat f = weight_format(type);
  const int64_t count = columns / kBlock;
  for (int64_t b = 0; b < count; ++b) {
    const int64_t step = b / kStepBlocks;
    Block block;
    read_block(type, row, b, &block);
    scatter(f, block, channel, static_cast<int>(b % kStepBlocks),
            static_cast<int>(std::min<int64_t>(kStepBlocks, count - step * kStepBlocks)),
            panel + step_offset(f, step));
  }
  if (!f.is_super) return;
  for (int64_t split = 0; split < columns / kSplit; ++split) {
    const std::byte* p = row + split * info(type).block_bytes;
    std::byte* at = panel + step_offset(f, 2 * split) + 2 * f.step_bytes() +
                    (channel % 8 * 4 + channel / 8) * 4;
    if (type == DType::kQ6_K) {
      write(at, f16_to_f32(read<uint16_t>(p + 208)));
    } else {
      std::memcpy(at, p, 4);
    }
  }
}

void pack_halves(const std::byte* row, int64_t columns, int channel, std::byte* panel) {
  const int m = channel / 16, g = channel % 8, upper = channel / 8 % 2;
  for (int64_t k = 0; k < columns; ++k) {
    const int64_t in_chunk = k % 16, t = in_chunk % 8 / 2, word = upper + in_chunk / 8 * 2;
    std::memcpy(panel + (k / 16 * 2 + m) * 512 + (4 * g + t) * 16 + word * 4 + k % 2 * 2,
                row + k * 2, 2);
  }
}

void pack_row(DType type, const std::byte* row, int64_t columns, int channel, std::byte* panel) {
  if (type == DType::kF32) {
    for (int64_t k = 0; k < columns; ++k)
      std::memcpy(panel + (k * kPanel + channel) * 4, row + k * 4, 4);
  } else if (is_block_quantized(type)) {
    pack_quantized(type, row, columns, channel, panel);
  } else {
    pack_halves(row, columns, channel, panel);
  }
}

int64_t panels_of(int64_t rows) { return (rows + kPanel - 1) / kPanel; }
int64_t align(int64_t bytes) { return (bytes + kSegmentAlign - 1) / kSegmentAlign * kSegmentAlign; }

// The first panel or segment that begins at `target` or behind it, in bytes.
int64_t boundary(const ops::PackedMatrix& matrix, int64_t target) {
  for (const ops::PackedSegment& s : matrix.segments) {
    if (target <= s.offset) return s.offset;
    const int64_t panel = panel_bytes(s.source, matrix.columns);
    const int64_t in_segment = (target - s.offset + panel - 1) / panel * panel;
    if (in_segment < s.bytes) return s.offset + in_segment;
  }
  return matrix.bytes;
}

}  // namespace

Result<ops::PackedMatrix> plan_pack(const ops::PackRequest& request) {
  LMN_RETURN_IF_ERROR(ops::validate(request));
  ops::PackedMatrix m;
  m.columns = request.pieces[0].shape[1];
  m.input_type = request.input_type;
  m.interleaved = request.interleaved;
  const int64_t halves = m.interleaved ? 2 : 1;  // the second piece shares the first's segment
  for (const TensorView& piece : request.pieces) {
    const int64_t rows = piece.shape[0] * halves;
    const int64_t bytes = panels_of(piece.shape[0]) * halves * panel_bytes(piece.dtype, m.columns);
    m.segments.push_back({piece.dtype, m.rows, rows, m.bytes, bytes});
    m.rows += rows;
    m.bytes = align(m.bytes + bytes);
    if (m.interleaved) break;
  }
  return m;
}

ops::PackedRange packed_range(const ops::PackedMatrix& matrix, const ops::Worker& worker) {
  const auto target = [&](int part) { return matrix.bytes / worker.parts * part; };
  return {
      worker.part == 0 ? 0 : boundary(matrix, target(worker.part)),
      worker.part + 1 == worker.parts ? matrix.bytes : boundary(matrix, target(worker.part + 1))};
}

void pack(const ops::PackRequest& request, const ops::PackedMatrix& matrix, std::byte* data,
          const ops::Worker& worker) {
  const ops::PackedRange range = packed_range(matrix, worker);
  if (range.begin >= range.end) return;
  std::memset(data + range.begin, 0, static_cast<size_t>(range.end - range.begin));
  for (size_t i = 0; i < matrix.segments.size(); ++i) {
    const ops::PackedSegment& s = matrix.segments[i];
    const int64_t bytes = panel_bytes(s.source, matrix.columns);
    const int64_t row_size = row_bytes(s.source, matrix.columns);
    const int64_t first = std::max<int64_t>(0, range.begin - s.offset + bytes - 1) / bytes;
    for (int64_t p = first; p < s.bytes / bytes && s.offset + p * bytes < range.end; ++p) {
      const TensorView& piece = request.pieces[matrix.interleaved ? static_cast<size_t>(p % 2) : i];
      const int64_t row = (matrix.interleaved ? p / 2 : p) * kPanel;
      for (int channel = 0; channel < std::min<int64_t>(kPanel, piece.shape[0] - row); ++channel) {
        pack_row(s.source, piece.data + (row + channel) * row_size, matrix.columns, channel,
                 data + s.offset + p * bytes);
      }
    }
  }
}

}  // namespace lmn::cuda
