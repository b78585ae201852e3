// SPDX-License-Identifier: Apache-2.0
//
// Types of com.microsoft's attention operators.
#include "ops/infer/microsoft_attention.h"

#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

Status expect_floats(const TensorNode& node, std::initializer_list<int> inputs) {
  for (int i : inputs) {
    LMN_RETURN_IF_ERROR(
        node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
    if (node.has(i) && node.dtype(i) != node.dtype(0)) {
      return node.unsupported("input %d is %s and input 0 is %s; cast one", i,
                              std::string(info(node.dtype(i)).name).c_str(),
                              std::string(info(node.dtype(0)).name).c_str());
    }
  }
  return {};
}

Status read_heads(const TensorNode& node, const char* key, int64_t* heads) {
  *heads = node.integer(key, 0);
  if (*heads >= 1 && *heads <= kMaxHeads) return {};
  return node.fail("%s is %" PRId64 "; it is 1 at least", key, *heads);
}

Status refuse(const TensorNode& node, const char* key) {
  if (node.integer(key, 0) == 0) return {};
  return node.unsupported("%s is %" PRId64 "; only 0 is known", key, node.integer(key, 0));
}

// Which mask operand `i` is.
Status read_mask(const TensorNode& node, int i, FusedAttention* f) {
  f->mask_input = i;
  if (!node.has(i)) return {};
  const Shape& mask = node.shape(i);
  const int64_t batch = f->a.batch, keys = add_sizes(f->a.past, f->a.fresh);
  if (mask.rank == 1) {
    if (mask[0] < 0 || batch < 0 || mask[0] == batch || mask[0] == 3 * batch + 2) {
      f->mask = KeyMask::kLengths;
      return {};
    }
    if (mask[0] == 2 * batch) {
      f->mask = KeyMask::kRanges;
      return {};
    }
  } else if (mask.rank == 2 && !differ(mask[0], batch) && !differ(mask[1], keys)) {
    f->mask = KeyMask::kKeys;
    return {};
  } else if (mask.rank == 3 && !differ(mask[0], batch) && !differ(mask[1], f->a.rows) &&
             !differ(mask[2], keys)) {
    f->mask = KeyMask::kRowsOfKeys;
    return {};
  } else if (mask.rank == 4 && !differ(mask[0], batch) && !differ(mask[1], 1) &&
             !differ(mask[2], mask[3]) && (mask[3] < 0 || keys < 0 || mask[3] >= keys) &&
             (mask[3] < 0 || f->a.rows < 0 || f->a.past < 0 || mask[3] >= f->a.past + f->a.rows)) {
    f->mask = KeyMask::kSquare;
    f->mask_size = mask[3];
    return {};
  }
  return node.fail("the mask has shape %s; there are %" PRId64 " sequences of %" PRId64
                   " keys and %" PRId64 " rows",
                   mask.to_string().c_str(), batch, keys, f->a.rows);
}

Status check_bias(const TensorNode& node, int i, const AttentionSizes& a, int64_t keys) {
  if (!node.has(i)) return {};
  const Shape& bias = node.shape(i);
  if (bias.rank == 4 && (bias[0] == 1 || !differ(bias[0], a.batch)) &&
      (bias[1] == 1 || !differ(bias[1], a.heads)) && !differ(bias[2], a.rows) &&
      !differ(bias[3], keys))
    return {};
  return node.fail("attention_bias has shape %s; it is [%" PRId64 " or 1, %" PRId64
                   " or 1, %" PRId64 ", %" PRId64 "]",
                   bias.to_string().c_str(), a.batch, a.heads, a.rows, keys);
}

// Operands: input, weights, bias, mask, past, attention_bias, past_sequence_length.
Status read_projecting(const TensorNode& node, FusedAttention* f) {
  AttentionSizes& a = f->a;
  const Shape &x = node.shape(0), &w = node.shape(1);
  LMN_RETURN_IF_ERROR(refuse(node, "do_rotary"));
  LMN_RETURN_IF_ERROR(refuse(node, "past_present_share_buffer"));
  if (x.rank != 3 || w.rank != 2 || differ(x[2], w[0])) {
    return node.fail(
        "input has shape %s and weights %s; they are [batch, rows, size] and "
        "[size, columns]",
        x.to_string().c_str(), w.to_string().c_str());
  }
  a.batch = x[0];
  a.rows = a.fresh = x[1];
  f->inputs = w[0] >= 0 ? w[0] : x[2];
  f->row = w[1];
  int64_t query = w[1] < 0 ? kUnknownSize : w[1] / 3, value = query;
  if (const Ints* sizes = node.integers("qkv_hidden_sizes"); sizes != nullptr && !sizes->empty()) {
    if (sizes->size() != 3 || (*sizes)[0] != (*sizes)[1] || (*sizes)[0] < 1 || (*sizes)[2] < 1 ||
        (*sizes)[0] > (int64_t{1} << 40) || (*sizes)[2] > (int64_t{1} << 40) ||
        differ(w[1], 2 * (*sizes)[0] + (*sizes)[2])) {
      return node.fail("qkv_hidden_sizes do not fit weights of shape %s", w.to_string().c_str());
    }
    query = (*sizes)[0];
    value = (*sizes)[2];
  } else if (w[1] >= 0 && w[1] % 3 != 0) {
    return node.fail("weights of shape %s are not for three outputs", w.to_string().c_str());
  }
  if (query >= 0 && (query % a.heads != 0 || value % a.heads != 0)) {
    return node.fail("%" PRId64 " and %" PRId64 " elements do not divide into %" PRId64 " heads",
                     query, value, a.heads);
  }
  a.head_dim = query < 0 ? kUnknownSize : query / a.heads;
  a.value_dim = value < 0 ? kUnknownSize : value / a.heads;
  if (node.has(2) && (node.rank(2) != 1 || differ(node.shape(2)[0], w[1])))
    return node.fail("bias has shape %s and weights %s", node.shape(2).to_string().c_str(),
                     w.to_string().c_str());
  if (node.has(4)) {
    const Shape& past = node.shape(4);
    if (past.rank != 5 || differ(past[0], 2) || differ(past[1], a.batch) ||
        differ(past[2], a.heads) || differ(past[4], a.head_dim) || differ(past[4], a.value_dim)) {
      return node.fail("past has shape %s; it is [2, batch, heads, rows, size of a head]",
                       past.to_string().c_str());
    }
    a.past = past[3];
  }
  f->bias_input = 5;
  return read_mask(node, 3, f);
}

// Operands: query, key, value, bias, mask, attention_bias, past_key, past_value, ...
Status read_projected(const TensorNode& node, FusedAttention* f) {
  AttentionSizes& a = f->a;
  const Shape& q = node.shape(0);
  a.batch = q.rank > 0 ? q[0] : 0;
  a.rows = q.rank > 1 ? q[1] : 0;
  const auto wrong = [&](int i) {
    return node.fail("input %d has shape %s, which does not go with query %s and %" PRId64 " heads",
                     i, node.shape(i).to_string().c_str(), q.to_string().c_str(), a.heads);
  };
  if (q.rank == 5) {
    f->packed_qkv = true;
    if (differ(q[2], a.heads) || differ(q[3], 3) || node.has(1) || node.has(2)) return wrong(0);
    a.fresh = a.rows;
    a.head_dim = a.value_dim = q[4];
  } else {
    if (q.rank != 3 || (q[2] >= 0 && q[2] % a.heads != 0) || !node.has(1)) return wrong(0);
    a.head_dim = q[2] < 0 ? kUnknownSize : q[2] / a.heads;
    const Shape& k = node.shape(1);
    if (differ(k.rank > 0 ? k[0] : -1, a.batch)) return wrong(1);
    if (k.rank == 5) {
      f->packed_kv = true;
      if (differ(k[2], a.heads) || differ(k[3], 2) || differ(k[4], a.head_dim) || node.has(2))
        return wrong(1);
      a.fresh = k[1];
      a.head_dim = a.value_dim = k[4];
    } else {
      if (!node.has(2)) return node.fail("value is missing");
      const Shape& v = node.shape(2);
      if (k.rank != v.rank || (k.rank != 3 && k.rank != 4)) return wrong(1);
      f->keys_are_heads_first = k.rank == 4;
      const int row = k.rank == 4 ? 2 : 1;
      if (differ(v[0], a.batch) || differ(v[row], k[row])) return wrong(2);
      a.fresh = k[row];
      if (k.rank == 4) {
        if (differ(k[1], a.heads) || differ(k[3], a.head_dim)) return wrong(1);
        if (differ(v[1], a.heads)) return wrong(2);
        a.value_dim = v[3];
      } else {
        if (differ(k[2], q[2])) return wrong(1);
        if (v[2] >= 0 && v[2] % a.heads != 0) return wrong(2);
        a.value_dim = v[2] < 0 ? kUnknownSize : v[2] / a.heads;
      }
    }
  }
  if (node.has(3)) {
    const int64_t size =
        a.head_dim < 0 || a.value_dim < 0 ? kUnknownSize : a.heads * (2 * a.head_dim + a.value_dim);
    if (node.rank(3) != 1 || differ(node.shape(3)[0], size)) return wrong(3);
  }
  if (node.has(6) != node.has(7)) return node.fail("past_key and past_value come together");
  if (node.has(6)) {
    for (int i : {6, 7}) {
      const Shape& past = node.shape(i);
      if (past.rank != 4 || differ(past[0], a.batch) || differ(past[1], a.heads) ||
          differ(past[2], node.shape(6)[2]) || differ(past[3], i == 6 ? a.head_dim : a.value_dim))
        return wrong(i);
    }
    a.past = node.shape(6)[2];
  }
  if (node.has(8) || node.has(9))
    return node.unsupported("past_sequence_length and cache_indirection");
  f->bias_input = 5;
  return read_mask(node, 4, f);
}

Status infer_fused(const TensorNode& node, bool projects, TensorTypes outputs) {
  for (TensorType& output : outputs) output.dtype = node.dtype(0);
  if (!node.ranked()) return {};
  FusedAttention f;
  LMN_RETURN_IF_ERROR(read_fused_attention(node, &f));
  const AttentionSizes& a = f.a;
  const int64_t keys = add_sizes(a.past, a.fresh);
  outputs[0].shape = Shape{a.batch, a.rows, a.value_dim < 0 ? kUnknownSize : a.heads * a.value_dim};
  if (projects) {
    if (outputs.size() > 1) {
      if (differ(a.head_dim, a.value_dim))
        return node.unsupported("present of heads whose values are of another size");
      outputs[1].shape = Shape{2, a.batch, a.heads, keys, a.head_dim};
    }
  } else {
    if (outputs.size() > 1) outputs[1].shape = Shape{a.batch, a.heads, keys, a.head_dim};
    if (outputs.size() > 2) outputs[2].shape = Shape{a.batch, a.heads, keys, a.value_dim};
    if (outputs.size() > 3) return node.unsupported("output 3 (products of queries and keys)");
  }
  return check_elements(node, outputs[0].shape);
}

}  // namespace

Status read_fused_attention(const TensorNode& node, FusedAttention* attention) {
  FusedAttention f;
  LMN_RETURN_IF_ERROR(read_heads(node, "num_heads", &f.a.heads));
  f.a.kv_heads = f.a.heads;
  if (node.op() == TensorOp::kMicrosoftAttention) {
    LMN_RETURN_IF_ERROR(read_projecting(node, &f));
  } else {
    LMN_RETURN_IF_ERROR(read_projected(node, &f));
  }
  LMN_RETURN_IF_ERROR(check_bias(node, f.bias_input, f.a, add_sizes(f.a.past, f.a.fresh)));
  f.a.y = rows_first(f.a.heads, f.a.rows, f.a.value_dim);
  *attention = f;
  return {};
}

Status infer_MicrosoftAttention(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 6));
  LMN_RETURN_IF_ERROR(expect_floats(node, {0, 1, 2, 4, 5}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(3, {DType::kI32}));
  return infer_fused(node, true, outputs);
}

Status infer_MultiHeadAttention(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 10));
  LMN_RETURN_IF_ERROR(expect_floats(node, {0, 1, 2, 3, 5, 6, 7}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(4, {DType::kI32}));
  return infer_fused(node, false, outputs);
}

// Operands: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache,
// sin_cache, position_ids, attention_bias, head_sink.
Status read_group_query_attention(const TensorNode& node, GroupQueryAttention* attention) {
  GroupQueryAttention g;
  AttentionSizes& a = g.a;
  LMN_RETURN_IF_ERROR(read_heads(node, "num_heads", &a.heads));
  LMN_RETURN_IF_ERROR(read_heads(node, "kv_num_heads", &a.kv_heads));
  LMN_RETURN_IF_ERROR(refuse(node, "qk_output"));
  LMN_RETURN_IF_ERROR(refuse(node, "kv_cache_bit_width"));
  for (const char* key : {"k_quant_type", "v_quant_type"}) {
    if (node.text(key, "NONE") != "NONE") return node.unsupported("a quantised cache (%s)", key);
  }
  const Shape& q = node.shape(0);
  g.packed = !node.has(1);
  if (a.heads % a.kv_heads != 0 || node.has(1) != node.has(2) || q.rank != 3) {
    return node.fail("query has shape %s for %" PRId64 " heads and %" PRId64 " of keys",
                     q.to_string().c_str(), a.heads, a.kv_heads);
  }
  const int64_t wide = g.packed ? a.heads + 2 * a.kv_heads : a.heads;
  if (q[2] >= 0 && q[2] % wide != 0)
    return node.fail("query has shape %s, whose rows are not %" PRId64 " heads",
                     q.to_string().c_str(), wide);
  a.batch = q[0];
  a.rows = a.fresh = q[1];
  a.head_dim = a.value_dim = q[2] < 0 ? kUnknownSize : q[2] / wide;
  for (int i : {1, 2}) {
    if (!node.has(i)) continue;
    const Shape& k = node.shape(i);
    if (k.rank != 3 || differ(k[0], a.batch) || differ(k[1], a.rows) ||
        differ(k[2], a.head_dim < 0 ? kUnknownSize : a.head_dim * a.kv_heads)) {
      return node.fail("input %d has shape %s and query %s", i, k.to_string().c_str(),
                       q.to_string().c_str());
    }
  }
  if (node.has(3) != node.has(4)) return node.fail("past_key and past_value come together");
  for (int i : {3, 4}) {
    if (!node.has(i)) continue;
    const Shape& past = node.shape(i);
    if (past.rank != 4 || differ(past[0], a.batch) || differ(past[1], a.kv_heads) ||
        differ(past[2], node.shape(3)[2]) || differ(past[3], a.head_dim)) {
      return node.fail("input %d has shape %s; it is [batch, kv heads, rows, size of a head]", i,
                       past.to_string().c_str());
    }
    a.past = past[2];
  }
  if (node.type(5).is_known() && a.batch >= 0 && node.shape(5).elements() != a.batch)
    return node.fail("seqlens_k has shape %s for %" PRId64 " sequences",
                     node.shape(5).to_string().c_str(), a.batch);
  if (node.type(6).is_known() && node.shape(6).elements() != 1)
    return node.fail("total_sequence_length has shape %s", node.shape(6).to_string().c_str());
  g.cache_rows = kUnknownSize;
  if (node.knows(6) && node.type(6).is_known() && a.past >= 0) {
    const int64_t total = *node.data<int32_t>(6);
    if (total < 0) return node.fail("total_sequence_length is %" PRId64, total);
    g.cache_rows = std::max(a.past, total);
  }
  if (node.integer("do_rotary", 0) != 0) {
    if (!node.has(7) || !node.has(8) || node.rank(7) != 2 || node.rank(8) != 2 ||
        differ(node.shape(7)[0], node.shape(8)[0]) || differ(node.shape(7)[1], node.shape(8)[1]))
      return node.fail("do_rotary needs cos_cache and sin_cache of one shape");
    const int64_t half = node.shape(7)[1];
    if (half >= 0 && a.head_dim >= 0 && (half > a.head_dim || 2 * half > a.head_dim))
      return node.fail("cos_cache has shape %s and heads are of %" PRId64,
                       node.shape(7).to_string().c_str(), a.head_dim);
    g.rotary_dim = half < 0 ? kUnknownSize : 2 * half;
  }
  if (node.has(9) &&
      (node.rank(9) != 2 || differ(node.shape(9)[0], a.batch) || differ(node.shape(9)[1], a.rows)))
    return node.fail("position_ids have shape %s and query %s", node.shape(9).to_string().c_str(),
                     q.to_string().c_str());
  if (node.has(10)) {
    const Shape& bias = node.shape(10);
    if (bias.rank != 4 || (bias[0] != 1 && differ(bias[0], a.batch)) ||
        (bias[1] != 1 && differ(bias[1], a.heads)) || differ(bias[2], a.rows))
      return node.fail("attention_bias has shape %s and query %s", bias.to_string().c_str(),
                       q.to_string().c_str());
  }
  if (node.has(11) && (node.rank(11) != 1 || differ(node.shape(11)[0], a.heads)))
    return node.fail("head_sink has shape %s for %" PRId64 " heads",
                     node.shape(11).to_string().c_str(), a.heads);
  *attention = g;
  return {};
}

Status infer_GroupQueryAttention(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 12));
  for (int i : {5, 6}) {
    if (!node.has(i)) return node.fail("input %d is missing", i);
    LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kI32}));
  }
  LMN_RETURN_IF_ERROR(expect_floats(node, {0, 1, 2, 3, 4, 7, 8, 10, 11}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(9, {DType::kI64}));
  for (TensorType& output : outputs) output.dtype = node.dtype(0);
  if (!node.ranked()) return {};
  GroupQueryAttention g;
  LMN_RETURN_IF_ERROR(read_group_query_attention(node, &g));
  const AttentionSizes& a = g.a;
  outputs[0].shape = Shape{a.batch, a.rows, a.head_dim < 0 ? kUnknownSize : a.heads * a.head_dim};
  for (size_t i = 1; i < outputs.size(); ++i) {
    if (i > 2) return node.unsupported("output 3 (products of queries and keys)");
    outputs[i].shape = Shape{a.batch, a.kv_heads, g.cache_rows, a.head_dim};
    LMN_RETURN_IF_ERROR(check_elements(node, outputs[i].shape));
  }
  return check_elements(node, outputs[0].shape);
}

// Operands: x, positions (one, or [batch, rows]), cos_cache, sin_cache.
Status read_microsoft_rotary(const TensorNode& node, RotarySizes* sizes) {
  RotarySizes r;
  LMN_RETURN_IF_ERROR(refuse(node, "is_packed_batching"));
  const Shape &x = node.shape(0), &positions = node.shape(1), &cosine = node.shape(2);
  const int64_t rotary = node.integer("rotary_embedding_dim", 0);
  if (rotary < 0 || rotary % 2 != 0 || rotary > (int64_t{1} << 31))
    return node.fail("rotary_embedding_dim is %" PRId64, rotary);
  r.batch = x.rank > 0 ? x[0] : 0;
  if (x.rank == 4) {
    r.heads = x[1];
    r.rows = x[2];
    r.dim = x[3];
    r.view = heads_first(r.heads, r.rows, r.dim);
  } else if (x.rank == 3) {
    r.rows = x[1];
    r.heads = node.integer("num_heads", 0);
    if (r.heads == 0 && cosine.rank == 2) {  // then heads are as long as the caches say
      r.dim = cosine[1] < 0 ? kUnknownSize : 2 * cosine[1];
      r.heads = r.dim < 0 || x[2] < 0 ? kUnknownSize : r.dim == 0 ? 0 : x[2] / r.dim;
    } else {
      if (r.heads < 1 || r.heads > kMaxHeads) return node.fail("num_heads is %" PRId64, r.heads);
      r.dim = x[2] < 0 ? kUnknownSize : x[2] / r.heads;
    }
    if (x[2] >= 0 && r.heads >= 0 && r.dim >= 0 && x[2] != r.heads * r.dim)
      return node.fail("x of shape %s does not divide into heads of %" PRId64,
                       x.to_string().c_str(), r.dim);
    r.view = rows_first(r.heads, r.rows, r.dim);
  } else {
    return node.fail("x has shape %s; it is of rank 3 or 4", x.to_string().c_str());
  }
  r.rotary_dim = rotary != 0 ? rotary : r.dim;
  if (cosine.rank != 2 || node.rank(3) != 2 || differ(cosine[0], node.shape(3)[0]) ||
      differ(cosine[1], node.shape(3)[1]) ||
      (r.rotary_dim >= 0 && (r.rotary_dim % 2 != 0 || differ(cosine[1], r.rotary_dim / 2))) ||
      (r.dim >= 0 && r.rotary_dim > r.dim)) {
    return node.fail("the caches have shapes %s and %s; %" PRId64 " of %" PRId64
                     " elements of a head are rotated",
                     cosine.to_string().c_str(), node.shape(3).to_string().c_str(), r.rotary_dim,
                     r.dim);
  }
  r.has_positions = positions.rank == 2;
  if (positions.rank > 2 || (positions.rank == 1 && differ(positions[0], 1)) ||
      (r.has_positions && (differ(positions[0], r.batch) || differ(positions[1], r.rows)))) {
    return node.fail("position_ids have shape %s and x %s", positions.to_string().c_str(),
                     x.to_string().c_str());
  }
  *sizes = r;
  return {};
}

Status infer_MicrosoftRotaryEmbedding(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(4, 4));
  LMN_RETURN_IF_ERROR(expect_floats(node, {0, 2, 3}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  RotarySizes r;
  LMN_RETURN_IF_ERROR(read_microsoft_rotary(node, &r));
  return same_as_input(node, outputs);
}

}  // namespace lmn::ops
