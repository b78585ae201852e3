// SPDX-License-Identifier: Apache-2.0
//
// The kernel of each quantised weight type: one line for each. By how many rows there are it is
// that of linear_row-inl.h, linear_int-inl.h or linear_wide-inl.h, which give the same bits; in a
// set for tiles (tile_kernels-inl.h) that of linear_tiles-inl.h, and again the same.

template <typename Layout, ScaleKind kKind, int kZero>
LMN_INLINE void linear_quantized_type(const LinearTask& t) {
#if defined(LMN_TILES)
  linear_tiles<Layout, BlockScales<kKind, kZero>>(t);
#else
  if (t.rows == 1) return linear_row<Layout, kKind, kZero>(t);
  if constexpr (kCanExpand<Layout>) {
    if (t.rows >= Layout::Wide::kManyRows && t.scratch != nullptr)
      return linear_wide<Layout, kKind, kZero>(t);
  }
  linear_int<Layout, kKind, kZero>(t);
#endif
}

// Zero points are folded into the minimum where the
// layout gives unsigned integers; Bytes16 and Sixes16 give signed ones.
void linear_quantized(const LinearTask& t) {
  if (t.input_type == DType::kQA8) {
    switch (t.source) {
      case DType::kQ4_0:
        return linear_quantized_type<Nibbles8, ScaleKind::kHalf, 8>(t);
      case DType::kQ4_1:
        return linear_quantized_type<Nibbles8, ScaleKind::kHalfMin, 0>(t);
      case DType::kQ4_K:
        return linear_quantized_type<Nibbles8, ScaleKind::kSuper, 0>(t);
#if LMN_BYTE_DOT >= LMN_SHORT_BYTES
      case DType::kQ5_0:
        return linear_quantized_type<Fives8, ScaleKind::kHalf, 16>(t);
      case DType::kQ5_1:
        return linear_quantized_type<Fives8, ScaleKind::kHalfMin, 0>(t);
      case DType::kQ5_K:
        return linear_quantized_type<Fives8, ScaleKind::kSuper, 0>(t);
#endif
#if LMN_BYTE_DOT >= LMN_UNSIGNED_BYTES
      case DType::kQ8_0:
        return linear_quantized_type<Bytes8, ScaleKind::kHalf, kByteZero>(t);
#endif
      default:
        return;
    }
  }
  switch (t.source) {
    case DType::kQ4_0:
      return linear_quantized_type<Nibbles16, ScaleKind::kHalf, 8>(t);
    case DType::kQ4_1:
      return linear_quantized_type<Nibbles16, ScaleKind::kHalfMin, 0>(t);
    case DType::kQ4_K:
      return linear_quantized_type<Nibbles16, ScaleKind::kSuper, 0>(t);
    case DType::kQ8_0:
      return linear_quantized_type<Bytes16, ScaleKind::kHalf, 0>(t);
    case DType::kQ5_0:
      return linear_quantized_type<Fives16, ScaleKind::kHalf, 16>(t);
    case DType::kQ5_1:
      return linear_quantized_type<Fives16, ScaleKind::kHalfMin, 0>(t);
    case DType::kQ5_K:
      return linear_quantized_type<Fives16, ScaleKind::kSuper, 0>(t);
    case DType::kQ6_K:
      return linear_quantized_type<Sixes16, ScaleKind::kSuper16, 0>(t);
    default:
      return;
  }
}
