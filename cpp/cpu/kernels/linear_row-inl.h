// SPDX-License-Identifier: Apache-2.0
//
// One row times quantised weights: the product of decoding one sequence, which is to be limited by
// the memory and not by its instructions. Two panels are read at a time, so that an activation is
// loaded once for both; and a layout may have its own way for one row, RowSums, which reads the row
// in a form prepared once for all panels. Integer sums are exact, so their order is free; floats
// are added in panel_tile's order, and have its bits.

// Columns up to which a row is prepared, on the stack; wider ones are used as they are.
constexpr int64_t kMostRowColumns = 16384;

// The integer sums of a part of a block of several panels. This way is every layout's: the row is
// used as it is.
template <typename Layout>
struct PlainRow {
  static constexpr bool kPrepares = false;
  static constexpr int64_t kBlockBytes = 32 * Layout::kInputBytes;
  template <int kPart, int kParts, int kPanels>
  static LMN_INLINE void sums(const std::byte* const (&quants)[kPanels], const std::byte* x,
                              I (&sum)[kPanels]) {
    LMN_UNROLL
    for (int i = 0; i < kPanels; ++i) {
      I one[1];
      block_sums<Layout, kPart, kParts>(quants[i], RowPointers<1>(x, 0), one);
      sum[i] = one[0];
    }
  }
};
template <typename Layout>
struct RowSums : PlainRow<Layout> {};
#if defined(LMN_ROW_VEC)
#include LMN_ROW_VEC
#endif

// Two panels, `second` bytes apart (none, where there is but one), times a row.
template <typename Layout, typename Row, typename Scales>
LMN_INLINE void row_tile(const std::byte* p, int64_t second, int64_t blocks, const std::byte* x,
                         const std::byte* xs, F (&out)[2]) {
  constexpr int kBlockBytes = Scales::kBytes + 4 * kLanes * Layout::kBits;
  constexpr int64_t kAhead = kPrefetchBytes / kBlockBytes;
  F acc[2] = {zero(), zero()};
  Scales scales[2];
  for (int64_t b = 0; b < blocks; ++b) {
    // What comes behind a panel is the other one; what is wanted after both, behind both.
    const std::byte* ahead = p + kPrefetchBytes + (b + kAhead < blocks ? 0 : second);
    LMN_UNROLL
    for (int64_t i = 0; i < kBlockBytes; i += 64) {
      prefetch(ahead + i);
      prefetch(ahead + second + i);
    }
    if constexpr (Scales::kSuperBytes != 0) {
      if (b % 8 == 0) {
        scales[0].load_supers(p);
        scales[1].load_supers(p + second);
        p += Scales::kSuperBytes;
      }
    }
    LMN_UNROLL
    for (int i = 0; i < 2; ++i) scales[i].load_block(p + i * second);
    if constexpr (Scales::kHasMin) {
      const F x_sum = load1(reinterpret_cast<const float*>(xs + blocks * 4));
      LMN_UNROLL
      for (int i = 0; i < 2; ++i) acc[i] = fma(scales[i].min, x_sum, acc[i]);
    }
    const std::byte* const quants[2] = {p + Scales::kBytes, p + second + Scales::kBytes};
    const F x_scale = load1(reinterpret_cast<const float*>(xs));
    LMN_UNROLL
    for (int part = 0; part < Scales::kSums; ++part) {
      I sum[2];
      if (part == 0) Row::template sums<0, Scales::kSums>(quants, x, sum);
      if constexpr (Scales::kSums == 2) {
        if (part == 1) Row::template sums<1, Scales::kSums>(quants, x, sum);
      }
      LMN_UNROLL
      for (int i = 0; i < 2; ++i)
        acc[i] = fma(mul(scales[i].scale[part], x_scale), to_float(sum[i]), acc[i]);
    }
    p += kBlockBytes;
    x += Row::kBlockBytes;
    xs += 4;
  }
  out[0] = acc[0];
  out[1] = acc[1];
}

template <typename Layout, typename Row, ScaleKind kKind, int kZero>
void linear_row_as(const LinearTask& t) {
  const int64_t panel_size = panel_bytes(t.source, t.columns, kLanes), blocks = t.columns / 32;
  const std::byte *x = t.x, *xs = t.x + t.columns * Layout::kInputBytes;
  alignas(64) std::byte prepared[Row::kPrepares ? kMostRowColumns / 32 * Row::kBlockBytes : 1];
  if constexpr (Row::kPrepares) {
    Row::prepare(x, blocks, prepared);
    x = prepared;
  }
  for (int64_t p = t.panel_begin; p < t.panel_end; p += 2) {
    const bool two = p + 1 < t.panel_end;
    F sums[2];
    row_tile<Layout, Row, BlockScales<kKind, kZero>>(t.panels + p * panel_size,
                                                     two ? panel_size : 0, blocks, x, xs, sums);
    if (t.gated) {
      write_gated(t, 0, 1, p / 2 * kLanes, &sums[0], &sums[1], 1);
    } else {
      write_outputs(t, 0, 1, p * kLanes, &sums[0], 1);
      if (two) write_outputs(t, 0, 1, (p + 1) * kLanes, &sums[1], 1);
    }
  }
}

template <typename Layout, ScaleKind kKind, int kZero>
void linear_row(const LinearTask& t) {
  if (RowSums<Layout>::kPrepares && t.columns > kMostRowColumns)
    return linear_row_as<Layout, PlainRow<Layout>, kKind, kZero>(t);
  linear_row_as<Layout, RowSums<Layout>, kKind, kZero>(t);
}
