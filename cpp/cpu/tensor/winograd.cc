// SPDX-License-Identifier: Apache-2.0
#include "cpu/tensor/winograd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/panel_layout.h"
#include "cpu/tensor/vector_math.h"

#if defined(__x86_64__)
#define LMN_AVX2 [[gnu::target("avx2")]]
#else
#define LMN_AVX2
#endif
#define LMN_LOOP_BODY inline __attribute__((always_inline))

namespace lmn::cpu {
namespace {

constexpr int64_t kWinogradMatrices = 16;
// Output channels whose sums are kept at a time.
constexpr int64_t kSumChannels = 32;

// B^T d B of the 16 values d of a tile, for each channel; results are `step` apart.
LMN_LOOP_BODY void transform_input(const float* const (&d)[4][4], int64_t channels, float* to,
                                   int64_t step) {
  LMN_VECTOR_LOOP
  for (int64_t c = 0; c < channels; ++c) {
    float t[4][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float d0 = d[0][j][c], d1 = d[1][j][c], d2 = d[2][j][c], d3 = d[3][j][c];
      t[0][j] = d0 - d2;
      t[1][j] = d1 + d2;
      t[2][j] = d2 - d1;
      t[3][j] = d1 - d3;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      float* const row = to + 4 * i * step + c;
      row[0] = t[i][0] - t[i][2];
      row[step] = t[i][1] + t[i][2];
      row[2 * step] = t[i][2] - t[i][1];
      row[3 * step] = t[i][1] - t[i][3];
    }
  }
}
void transform_input_any(const float* const (&d)[4][4], int64_t channels, float* to, int64_t step) {
  transform_input(d, channels, to, step);
}
LMN_AVX2 void transform_input_wide(const float* const (&d)[4][4], int64_t channels, float* to,
                                   int64_t step) {
  transform_input(d, channels, to, step);
}

// A^T m A of the 16 sums m of a tile, `step` apart, for each channel; bias, residual, limits.
struct OutputRows {
  const float* bias;         // of the first channel
  const float* residual[4];  // of the four positions
  float* y[4];
  float low, high;
};
LMN_LOOP_BODY void transform_output(const float* m, int64_t step, int64_t channels,
                                    const OutputRows& out) {
  float *const y0 = out.y[0], *const y1 = out.y[1], *const y2 = out.y[2], *const y3 = out.y[3];
  const float *const r0 = out.residual[0], *const r1 = out.residual[1];
  const float *const r2 = out.residual[2], *const r3 = out.residual[3];
  const float* const bias = out.bias;
  const float low = out.low, high = out.high;
  LMN_VECTOR_LOOP
  for (int64_t c = 0; c < channels; ++c) {
    float s[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float m0 = m[j * step + c], m1 = m[(4 + j) * step + c];
      const float m2 = m[(8 + j) * step + c], m3 = m[(12 + j) * step + c];
      s[0][j] = m0 + m1 + m2;
      s[1][j] = m1 - m2 - m3;
    }
    const float b = bias[c];
    y0[c] = vector_math::clamp(s[0][0] + s[0][1] + s[0][2] + b + r0[c], low, high);
    y1[c] = vector_math::clamp(s[0][1] - s[0][2] - s[0][3] + b + r1[c], low, high);
    y2[c] = vector_math::clamp(s[1][0] + s[1][1] + s[1][2] + b + r2[c], low, high);
    y3[c] = vector_math::clamp(s[1][1] - s[1][2] - s[1][3] + b + r3[c], low, high);
  }
}
void transform_output_any(const float* m, int64_t step, int64_t channels, const OutputRows& out) {
  transform_output(m, step, channels, out);
}
LMN_AVX2 void transform_output_wide(const float* m, int64_t step, int64_t channels,
                                    const OutputRows& out) {
  transform_output(m, step, channels, out);
}

}  // namespace

bool suits_winograd(const ops::Convolution& c, const float* weights) {
  const ops::Windows& w = c.windows;
  constexpr int64_t kLeastPositions = 144, kLeastChannels = 16;
  if (w.rank != 2 || c.groups != 1 || c.channels < kLeastChannels || c.outputs < kLeastChannels)
    return false;
  for (size_t i = 0; i < 2; ++i) {
    if (w.kernel[i] != 3 || w.stride[i] != 1 || w.dilation[i] != 1 || w.out[i] < 4) return false;
  }
  if (w.outputs() < kLeastPositions) return false;
  // A fraction of the precision of a float. What is typical is told from square roots, so that the
  // large ones do not say it; trained weights are within a hundred times that, those of which nine
  // in ten were pruned within some hundred.
  constexpr double kMostOverTypical = 4096;
  const int64_t count = c.outputs * c.channels * 9;
  double sum = 0, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double size = std::abs(static_cast<double>(weights[i]));
    sum += std::sqrt(size);
    most = std::max(most, size);
  }
  const double mean = sum / static_cast<double>(count);
  return std::isfinite(sum) && most <= kMostOverTypical * mean * mean;
}

// G g G^T
WinogradWeights pack_winograd(const float* w, int64_t outputs, int64_t channels,
                              const IsaKernels& isa) {
  const int64_t lanes = isa.float_lanes;
  WinogradWeights packed;
  packed.panel_size = panel_bytes(DType::kF32, channels, lanes);
  packed.panels = (outputs + lanes - 1) / lanes;
  constexpr size_t kAlignment = 64;
  packed.memory.resize(static_cast<size_t>(kWinogradMatrices * packed.panels * packed.panel_size) +
                       kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(packed.memory.data());
  std::byte* const data = packed.memory.data() + (kAlignment - address % kAlignment) % kAlignment;
  packed.data = data;
  const auto matrix = static_cast<size_t>(lanes * channels);
  std::vector<float> rows(kWinogradMatrices * matrix);  // of one panel, [matrix][lane][channel]
  for (int64_t panel = 0; panel < packed.panels; ++panel) {
    const int64_t first = panel * lanes, valid = std::min(lanes, outputs - first);
    for (int64_t i = 0; i < valid * channels; ++i) {
      const float* const g = w + (first * channels + i) * 9;
      double t[4][3];
      for (int j = 0; j < 3; ++j) {
        const double a = g[j], b = g[3 + j], c = g[6 + j];
        t[0][j] = a;
        t[1][j] = (a + b + c) / 2;
        t[2][j] = (a - b + c) / 2;
        t[3][j] = c;
      }
      for (size_t r = 0; r < 4; ++r) {
        const double a = t[r][0], b = t[r][1], c = t[r][2];
        float* const to = rows.data() + 4 * r * matrix + i;
        to[0] = static_cast<float>(a);
        to[matrix] = static_cast<float>((a + b + c) / 2);
        to[2 * matrix] = static_cast<float>((a - b + c) / 2);
        to[3 * matrix] = static_cast<float>(c);
      }
    }
    for (int64_t m = 0; m < kWinogradMatrices; ++m) {
      isa.pack({DType::kF32, DType::kF32, channels,
                reinterpret_cast<const std::byte*>(rows.data() + static_cast<size_t>(m) * matrix),
                valid, data + (m * packed.panels + panel) * packed.panel_size});
    }
  }
  return packed;
}

struct Winograd::Tile {
  int64_t image, row, column;  // of its first output
};

Winograd::Winograd(const ops::Convolution& convolution, const WinogradWeights& weights,
                   const IsaKernels& isa)
    : c_(convolution),
      weights_(weights),
      kernels_(isa.convolution),
      lanes_(isa.float_lanes),
      tiles_down_((convolution.windows.out[0] + 1) / 2),
      tiles_across_((convolution.windows.out[1] + 1) / 2),
      // Their values are to stay in a second-level cache.
      block_(std::clamp<int64_t>(4608 / convolution.channels, 28, 96)),
      wide_(has_wide_rows(isa)) {}

size_t Winograd::scratch_bytes() const {
  const int64_t floats =
      kWinogradMatrices * block_ * (c_.channels + kSumChannels) + 3 * kSumChannels;
  return static_cast<size_t>(floats) * sizeof(float) +
         static_cast<size_t>(block_) * sizeof(const float*) + 64;
}

Winograd::Tile Winograd::tile_at(int64_t index) const {
  const int64_t column = index % tiles_across_, row = index / tiles_across_;
  return {row / tiles_down_, row % tiles_down_ * 2, column * 2};
}

void Winograd::transform_inputs(const float* x, const float* zeros, int64_t first, int64_t count,
                                float* to) const {
  const ops::Windows& w = c_.windows;
  for (int64_t i = 0; i < count; ++i) {
    const Tile tile = tile_at(first + i);
    const float* d[4][4];
    for (int64_t r = 0; r < 4; ++r) {
      const int64_t row = tile.row - w.pad_begin[0] + r;
      for (int64_t s = 0; s < 4; ++s) {
        const int64_t column = tile.column - w.pad_begin[1] + s;
        const bool inside = row >= 0 && row < w.in[0] && column >= 0 && column < w.in[1];
        const int64_t at = (tile.image * w.in[0] + row) * w.in[1] + column;
        d[r][s] = inside ? x + at * c_.channels : zeros;
      }
    }
    float* const v = to + i * c_.channels;
    const auto transform = wide_ ? transform_input_wide : transform_input_any;
    transform(d, c_.channels, v, block_ * c_.channels);
  }
}

// spare: kSumChannels zeros, and room for as many outputs outside of the image.
void Winograd::transform_outputs(const float* sums, int64_t first, int64_t count, int64_t channel,
                                 int64_t channels, const IndirectTask& ending, RowFunction apply,
                                 float* spare) const {
  const ops::Windows& w = c_.windows;
  const float* const zeros = spare;
  OutputRows out{};
  out.bias = ending.bias == nullptr ? zeros : ending.bias + channel;
  out.low = ending.low;
  out.high = ending.high;
  for (int64_t i = 0; i < count; ++i) {
    const Tile tile = tile_at(first + i);
    for (int64_t p = 0; p < 4; ++p) {
      const int64_t row = tile.row + p / 2, column = tile.column + p % 2;
      const bool inside = row < w.out[0] && column < w.out[1];
      const int64_t at = ((tile.image * w.out[0] + row) * w.out[1] + column) * c_.outputs + channel;
      out.y[p] = inside ? ending.y + at : spare + kSumChannels;
      out.residual[p] = inside && ending.residual != nullptr ? ending.residual + at : zeros;
    }
    const auto transform = wide_ ? transform_output_wide : transform_output_any;
    transform(sums + i * kSumChannels, block_ * kSumChannels, channels, out);
    for (float* y : out.y) {
      if (apply != nullptr) apply(y, y, channels);
    }
  }
}

void Winograd::run(const float* x, const float* zeros, const IndirectTask& ending,
                   RowFunction apply, const ops::Worker& worker) const {
  const int64_t tiles = c_.batch * tiles_down_ * tiles_across_;
  const auto [begin, end] = ops::share_of(tiles, worker);
  if (begin >= end) return;
  float* const values = reinterpret_cast<float*>(worker.scratch);
  float* const sums = values + kWinogradMatrices * block_ * c_.channels;
  float* const spare = sums + kWinogradMatrices * block_ * kSumChannels;
  const float** const rows = reinterpret_cast<const float**>(spare + 3 * kSumChannels);
  std::fill_n(spare, kSumChannels, 0.0f);
  for (int64_t i = 0; i < block_; ++i) rows[i] = values + i * c_.channels;
  IndirectTask t{};
  t.panel_bytes = weights_.panel_size;
  t.segments = 1;
  t.length = c_.channels;
  t.pointers = rows;
  t.pointer_stride = block_;
  t.y_stride = kSumChannels;
  t.low = -std::numeric_limits<float>::infinity();
  t.high = std::numeric_limits<float>::infinity();
  const int64_t blocks = (end - begin + block_ - 1) / block_;
  const int64_t panels_at_once = kSumChannels / lanes_;
  for (int64_t b = 0; b < blocks; ++b) {  // evenly
    const int64_t first = begin + (end - begin) * b / blocks;
    const int64_t count = begin + (end - begin) * (b + 1) / blocks - first;
    transform_inputs(x, zeros, first, count, values);
    t.rows = count;
    for (int64_t panel = 0; panel < weights_.panels; panel += panels_at_once) {
      const int64_t channel = panel * lanes_;
      t.channels = std::min(kSumChannels, c_.outputs - channel);
      t.panel_end = std::min(panels_at_once, weights_.panels - panel);
      for (int64_t m = 0; m < kWinogradMatrices; ++m) {
        t.panels = weights_.data + (m * weights_.panels + panel) * weights_.panel_size;
        t.offset = m * block_ * c_.channels;
        t.y = sums + m * block_ * kSumChannels;
        kernels_.linear(t);
      }
      transform_outputs(sums, first, count, channel, t.channels, ending, apply, spare);
    }
  }
}

}  // namespace lmn::cpu
