// SPDX-License-Identifier: Apache-2.0
//
// Types of ONNX's attention operators of tensor_ops/products.def.
#include "ops/infer/attention.h"

#include <cinttypes>
#include <limits>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"
#include "ops/infer/spatial.h"

namespace lmn::ops {
namespace {

Status same_type(const TensorNode& node, int i) {
  if (!node.has(i) || node.dtype(i) == node.dtype(0)) return {};
  return node.unsupported("input %d is %s and input 0 is %s; cast one", i,
                          std::string(info(node.dtype(i)).name).c_str(),
                          std::string(info(node.dtype(0)).name).c_str());
}

}  // namespace

Status read_attention(const TensorNode& node, AttentionSizes* sizes) {
  AttentionSizes a;
  const Shape &q = node.shape(0), &k = node.shape(1), &v = node.shape(2);
  if (q.rank != k.rank || q.rank != v.rank || (q.rank != 3 && q.rank != 4)) {
    return node.fail("Q, K and V have shapes %s, %s and %s; all are of rank 3, or of rank 4",
                     q.to_string().c_str(), k.to_string().c_str(), v.to_string().c_str());
  }
  const bool flat = q.rank == 3;
  a.batch = q[0];
  if (flat) {
    a.heads = node.integer("q_num_heads", 0);
    a.kv_heads = node.integer("kv_num_heads", 0);
    if (a.heads < 1 || a.kv_heads < 1 || a.heads > kMaxHeads || a.kv_heads > kMaxHeads) {
      return node.fail("q_num_heads is %" PRId64 " and kv_num_heads %" PRId64
                       "; both are needed for inputs of rank 3",
                       a.heads, a.kv_heads);
    }
    if ((q[2] >= 0 && q[2] % a.heads != 0) || (k[2] >= 0 && k[2] % a.kv_heads != 0) ||
        (v[2] >= 0 && v[2] % a.kv_heads != 0)) {
      return node.fail(
          "Q, K and V of shapes %s, %s and %s do not divide into %" PRId64 " and %" PRId64 " heads",
          q.to_string().c_str(), k.to_string().c_str(), v.to_string().c_str(), a.heads, a.kv_heads);
    }
    a.head_dim = q[2] >= 0 ? q[2] / a.heads : k[2] >= 0 ? k[2] / a.kv_heads : kUnknownSize;
    a.value_dim = v[2] >= 0 ? v[2] / a.kv_heads : kUnknownSize;
    if (q[2] >= 0 && k[2] >= 0 && q[2] / a.heads != k[2] / a.kv_heads)
      return node.fail("heads of Q and K differ in size: %s and %s", q.to_string().c_str(),
                       k.to_string().c_str());
    a.rows = q[1];
    a.fresh = k[1];
  } else {
    a.heads = q[1];
    a.kv_heads = k[1] >= 0 ? k[1] : v[1];
    a.rows = q[2];
    a.fresh = k[2];
    a.head_dim = q[3] >= 0 ? q[3] : k[3];
    a.value_dim = v[3];
    if (differ(q[3], k[3]) || differ(k[1], v[1]))
      return node.fail("heads of Q, K and V differ: %s, %s and %s", q.to_string().c_str(),
                       k.to_string().c_str(), v.to_string().c_str());
  }
  const int row = flat ? 1 : 2;
  if (differ(k[row], v[row]) || differ(k[0], v[0]) || differ(q[0], k[0])) {
    return node.fail("Q, K and V of shapes %s, %s and %s differ in batch or length",
                     q.to_string().c_str(), k.to_string().c_str(), v.to_string().c_str());
  }
  if (a.heads >= 0 && a.kv_heads >= 0 &&
      (a.kv_heads == 0 ? a.heads != 0 : a.heads % a.kv_heads != 0)) {
    return node.fail("%" PRId64 " heads of queries are not a multiple of %" PRId64 " of keys",
                     a.heads, a.kv_heads);
  }
  if (node.has(4) != node.has(5)) return node.fail("past_key and past_value come together");
  if (node.has(4)) {
    const Shape &past = node.shape(4), &values = node.shape(5);
    if (past.rank != 4 || values.rank != 4 || differ(past[0], a.batch) ||
        differ(past[1], a.kv_heads) || differ(past[3], a.head_dim) || differ(values[0], past[0]) ||
        differ(values[1], past[1]) || differ(values[2], past[2]) ||
        differ(values[3], a.value_dim)) {
      return node.fail("past_key and past_value have shapes %s and %s; K and V %s and %s",
                       past.to_string().c_str(), values.to_string().c_str(), k.to_string().c_str(),
                       v.to_string().c_str());
    }
    a.past = past[2];
  }
  a.q = flat ? rows_first(a.heads, a.rows, a.head_dim) : heads_first(a.heads, a.rows, a.head_dim);
  a.k = flat ? rows_first(a.kv_heads, a.fresh, a.head_dim)
             : heads_first(a.kv_heads, a.fresh, a.head_dim);
  a.v = flat ? rows_first(a.kv_heads, a.fresh, a.value_dim)
             : heads_first(a.kv_heads, a.fresh, a.value_dim);
  a.y = flat ? rows_first(a.heads, a.rows, a.value_dim) : heads_first(a.heads, a.rows, a.value_dim);
  *sizes = a;
  return {};
}

Status infer_Attention(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 7));
  for (int i : {0, 1, 2, 4, 5}) {
    LMN_RETURN_IF_ERROR(expect_float(node, i));
    LMN_RETURN_IF_ERROR(same_type(node, i));
  }
  LMN_RETURN_IF_ERROR(
      node.expect_dtype(3, {DType::kBool, DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(6, {DType::kI64}));
  for (TensorType& output : outputs) output.dtype = node.dtype(0);
  const int64_t mode = node.integer("qk_matmul_output_mode", 0);
  const int64_t left = node.integer("left_window_size", -1);
  const int64_t right = node.integer("right_window_size", -1);
  if (mode < 0 || mode > 3)
    return node.fail("qk_matmul_output_mode is %" PRId64 "; it is between 0 and 3", mode);
  if (left < -1 || right < -1)
    return node.fail("window sizes are %" PRId64 " and %" PRId64 "; they are -1 at least", left,
                     right);
  if (node.integer("softmax_precision", 0) != 0) {
    DType precision = DType::kF32;
    LMN_RETURN_IF_ERROR(dtype_of_onnx(node, node.integer("softmax_precision", 0), &precision));
    if (precision != DType::kF32 && precision != DType::kF64 && precision != DType::kF16 &&
        precision != DType::kBF16)
      return node.fail("softmax_precision is not a float type");
  }
  if (!node.ranked()) return {};
  AttentionSizes a;
  LMN_RETURN_IF_ERROR(read_attention(node, &a));
  const int64_t keys = add_sizes(a.past, a.fresh);
  if (node.has(3)) {
    const Shape& mask = node.shape(3);
    const std::array<int64_t, 4> full{a.batch, a.heads, a.rows, keys};
    bool fits = mask.rank >= 1 && mask.rank <= 4;
    for (int i = 0; fits && i < mask.rank; ++i) {
      const int64_t want = full[static_cast<size_t>(4 - mask.rank + i)];
      fits = i + 1 == mask.rank ? mask[i] < 0 || want < 0 || mask[i] <= want
                                : mask[i] == 1 || !differ(mask[i], want);
    }
    if (!fits) {
      return node.fail("attn_mask of shape %s does not broadcast to [%" PRId64 ", %" PRId64
                       ", %" PRId64 ", %" PRId64 "]",
                       mask.to_string().c_str(), a.batch, a.heads, a.rows, keys);
    }
  }
  if (node.has(6)) {
    if (node.has(4)) return node.fail("nonpad_kv_seqlen does not go with past_key");
    if (node.rank(6) != 1 || differ(node.shape(6)[0], a.batch))
      return node.fail("nonpad_kv_seqlen has shape %s; it is one number for each of %" PRId64
                       " sequences",
                       node.shape(6).to_string().c_str(), a.batch);
  }
  if (node.rank(0) == 4) {
    outputs[0].shape = Shape{a.batch, a.heads, a.rows, a.value_dim};
  } else {
    outputs[0].shape =
        Shape{a.batch, a.rows, a.value_dim < 0 ? kUnknownSize : a.heads * a.value_dim};
  }
  LMN_RETURN_IF_ERROR(check_elements(node, outputs[0].shape));
  if (outputs.size() > 1) outputs[1].shape = Shape{a.batch, a.kv_heads, keys, a.head_dim};
  if (outputs.size() > 2) outputs[2].shape = Shape{a.batch, a.kv_heads, keys, a.value_dim};
  if (outputs.size() > 3) {
    outputs[3].shape = Shape{a.batch, a.heads, a.rows, keys};
    LMN_RETURN_IF_ERROR(check_elements(node, outputs[3].shape));
  }
  return {};
}

// Operands: x, cos, sin, positions.
Status read_rotary(const TensorNode& node, RotarySizes* sizes) {
  RotarySizes r;
  const Shape &x = node.shape(0), &cosine = node.shape(1), &sine = node.shape(2);
  if (x.rank != 3 && x.rank != 4)
    return node.fail("x has shape %s; it is of rank 3 or 4", x.to_string().c_str());
  r.batch = x[0];
  if (x.rank == 4) {
    r.heads = x[1];
    r.rows = x[2];
    r.dim = x[3];
    r.view = heads_first(r.heads, r.rows, r.dim);
  } else {
    r.heads = node.integer("num_heads", 0);
    if (r.heads < 1 || r.heads > kMaxHeads || (x[2] >= 0 && x[2] % r.heads != 0)) {
      return node.fail("num_heads is %" PRId64 "; it divides the last dimension of x of shape %s",
                       r.heads, x.to_string().c_str());
    }
    r.rows = x[1];
    r.dim = x[2] < 0 ? kUnknownSize : x[2] / r.heads;
    r.view = rows_first(r.heads, r.rows, r.dim);
  }
  r.rotary_dim = node.integer("rotary_embedding_dim", 0);
  if (r.rotary_dim == 0) r.rotary_dim = r.dim;
  if (node.integer("rotary_embedding_dim", 0) < 0 ||
      (r.rotary_dim >= 0 && (r.rotary_dim % 2 != 0 || (r.dim >= 0 && r.rotary_dim > r.dim)))) {
    return node.fail("rotary_embedding_dim is %" PRId64 " of heads of %" PRId64
                     "; it is even and not more",
                     r.rotary_dim, r.dim);
  }
  r.has_positions = node.has(3);
  const int rank = r.has_positions ? 2 : 3;
  bool fits = cosine.rank == rank && sine.rank == rank;
  for (int i = 0; fits && i < rank; ++i) fits = !differ(cosine[i], sine[i]);
  fits = fits && !differ(cosine.last(), r.rotary_dim < 0 ? kUnknownSize : r.rotary_dim / 2);
  if (fits && !r.has_positions) fits = !differ(cosine[0], r.batch) && !differ(cosine[1], r.rows);
  if (!fits) {
    return node.fail("the caches have shapes %s and %s; x has shape %s and %" PRId64
                     " elements of a head are rotated",
                     cosine.to_string().c_str(), sine.to_string().c_str(), x.to_string().c_str(),
                     r.rotary_dim);
  }
  if (r.has_positions) {
    const Shape& positions = node.shape(3);
    if (positions.rank != 2 || differ(positions[0], r.batch) || differ(positions[1], r.rows))
      return node.fail("position_ids have shape %s; x has shape %s", positions.to_string().c_str(),
                       x.to_string().c_str());
  }
  *sizes = r;
  return {};
}

Status infer_RotaryEmbedding(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 4));
  for (int i = 0; i < 3; ++i) {
    LMN_RETURN_IF_ERROR(expect_float(node, i));
    LMN_RETURN_IF_ERROR(same_type(node, i));
  }
  LMN_RETURN_IF_ERROR(node.expect_dtype(3, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  RotarySizes r;
  LMN_RETURN_IF_ERROR(read_rotary(node, &r));
  return same_as_input(node, outputs);
}

// Operands: query, key, value, past_state, decay, beta.
Status read_linear_attention(const TensorNode& node, LinearAttentionSizes* sizes) {
  LinearAttentionSizes l;
  const std::string_view rule = node.text("update_rule", "gated_delta");
  l.gated = rule == "gated" || rule == "gated_delta";
  l.delta = rule == "delta" || rule == "gated_delta";
  if (!l.gated && !l.delta && rule != "linear") {
    return node.fail("update_rule is '%.40s'; it is linear, gated, delta or gated_delta",
                     std::string(rule).c_str());
  }
  if (node.has(4) != l.gated || node.has(5) != l.delta) {
    return node.fail("update_rule '%s' needs %s decay and %s beta", std::string(rule).c_str(),
                     l.gated ? "a" : "no", l.delta ? "a" : "no");
  }
  l.heads = node.integer("q_num_heads", 0);
  l.kv_heads = node.integer("kv_num_heads", 0);
  if (l.heads < 1 || l.kv_heads < 1 || l.heads > kMaxHeads || l.heads % l.kv_heads != 0) {
    return node.fail("q_num_heads is %" PRId64 " and kv_num_heads %" PRId64
                     "; the first is a multiple of the second",
                     l.heads, l.kv_heads);
  }
  const Shape &q = node.shape(0), &k = node.shape(1), &v = node.shape(2);
  if (q.rank != 3 || k.rank != 3 || v.rank != 3 || differ(q[0], k[0]) || differ(q[0], v[0]) ||
      differ(q[1], k[1]) || differ(q[1], v[1]) || (q[2] >= 0 && q[2] % l.heads != 0) ||
      (k[2] >= 0 && k[2] % l.kv_heads != 0) || (v[2] >= 0 && v[2] % l.kv_heads != 0) ||
      (q[2] >= 0 && k[2] >= 0 && q[2] / l.heads != k[2] / l.kv_heads)) {
    return node.fail(
        "query, key and value of shapes %s, %s and %s are not [batch, steps, heads "
        "times size] for %" PRId64 " and %" PRId64 " heads",
        q.to_string().c_str(), k.to_string().c_str(), v.to_string().c_str(), l.heads, l.kv_heads);
  }
  l.batch = q[0];
  l.steps = q[1];
  l.key_dim = q[2] >= 0 ? q[2] / l.heads : k[2] >= 0 ? k[2] / l.kv_heads : kUnknownSize;
  l.value_dim = v[2] >= 0 ? v[2] / l.kv_heads : kUnknownSize;
  if (node.has(3)) {
    const Shape& s = node.shape(3);
    if (s.rank != 4 || differ(s[0], l.batch) || differ(s[1], l.kv_heads) ||
        differ(s[2], l.key_dim) || differ(s[3], l.value_dim)) {
      return node.fail("past_state has shape %s; it is [batch, kv heads, key size, value size]",
                       s.to_string().c_str());
    }
  }
  const auto check = [&](int i, const char* what, int64_t other) -> Status {
    if (!node.has(i)) return {};
    const Shape& s = node.shape(i);
    if (s.rank == 3 && !differ(s[0], l.batch) && !differ(s[1], l.steps) &&
        (!differ(s[2], l.kv_heads) || !differ(s[2], other)))
      return {};
    return node.fail("%s has shape %s; the query has %s and there are %" PRId64 " kv heads", what,
                     s.to_string().c_str(), q.to_string().c_str(), l.kv_heads);
  };
  LMN_RETURN_IF_ERROR(check(4, "decay", l.key_dim < 0 ? kUnknownSize : l.kv_heads * l.key_dim));
  LMN_RETURN_IF_ERROR(check(5, "beta", 1));
  *sizes = l;
  return {};
}

Status infer_LinearAttention(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 6));
  for (int i = 0; i < 6; ++i) {
    LMN_RETURN_IF_ERROR(expect_float(node, i));
    if (i != 3) LMN_RETURN_IF_ERROR(same_type(node, i));
  }
  outputs[0].dtype = node.dtype(0);
  if (outputs.size() > 1) outputs[1].dtype = node.has(3) ? node.dtype(3) : node.dtype(0);
  if (!node.ranked()) return {};
  LinearAttentionSizes l;
  LMN_RETURN_IF_ERROR(read_linear_attention(node, &l));
  outputs[0].shape =
      Shape{l.batch, l.steps, l.value_dim < 0 ? kUnknownSize : l.heads * l.value_dim};
  if (outputs.size() > 1) outputs[1].shape = Shape{l.batch, l.kv_heads, l.key_dim, l.value_dim};
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
