// SPDX-License-Identifier: Apache-2.0
//
// Sizes of attention operators, for inference and for kernels.
#pragma once

#include "ops/tensor_op.h"

namespace lmn::ops {

// [batch, heads, rows, dim] or [batch, rows, heads x dim]; strides in elements, the last is 1.
struct HeadView {
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
};

struct AttentionSizes {
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t rows = 0;             // of queries
  int64_t past = 0, fresh = 0;  // keys
  int64_t head_dim = 0, value_dim = 0;
  HeadView q, k, v, y;
  int64_t keys() const { return past + fresh; }
};

inline HeadView heads_first(int64_t heads, int64_t rows, int64_t dim) {
  return {heads * rows * dim, rows * dim, dim};
}
inline HeadView rows_first(int64_t heads, int64_t rows, int64_t dim) {
  return {heads * rows * dim, dim, heads * dim};
}

// Of ONNX's Attention. Sizes may be unknown.
Status read_attention(const TensorNode& node, AttentionSizes* sizes);

struct RotarySizes {
  int64_t batch = 0, rows = 0, heads = 0, dim = 0, rotary_dim = 0;
  HeadView view;
  bool has_positions = false;
};
Status read_rotary(const TensorNode& node, RotarySizes* sizes);

struct LinearAttentionSizes {
  int64_t batch = 0, steps = 0, heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  bool gated = false, delta = false;
};
Status read_linear_attention(const TensorNode& node, LinearAttentionSizes* sizes);

}  // namespace lmn::ops
