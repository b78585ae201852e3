// SPDX-License-Identifier: Apache-2.0
//
// Sizes of com.microsoft's attention operators, for inference and for kernels.
#pragma once

#include "ops/infer/attention.h"

namespace lmn::ops {

// Who masks keys: nobody, a length for each sequence (and a beginning), or a number for each key.
enum class KeyMask : uint8_t { kNone, kLengths, kRanges, kKeys, kRowsOfKeys, kSquare };

// com.microsoft.Attention (projects its input itself) and MultiHeadAttention.
struct FusedAttention {
  AttentionSizes a;             // kv_heads is heads
  int64_t inputs = 0, row = 0;  // Attention: sizes of the input and of a row of the weights
  bool packed_qkv = false, packed_kv = false, keys_are_heads_first = false;  // MultiHeadAttention
  KeyMask mask = KeyMask::kNone;
  int mask_input = 0, bias_input = 0;  // of attention_bias
  int64_t mask_size = 0;               // kSquare: of a side
};
Status read_fused_attention(const TensorNode& node, FusedAttention* attention);

struct GroupQueryAttention {
  AttentionSizes a;  // past: rows of the past buffers; fresh: rows of the query
  bool packed = false;
  int64_t cache_rows = 0;  // of the outputs
  int64_t rotary_dim = 0;
};
Status read_group_query_attention(const TensorNode& node, GroupQueryAttention* attention);

Status read_microsoft_rotary(const TensorNode& node, RotarySizes* sizes);

}  // namespace lmn::ops
