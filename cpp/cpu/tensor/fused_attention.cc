// SPDX-License-Identifier: Apache-2.0
//
// Kernels of com.microsoft.Attention and MultiHeadAttention. Heads are shared out: a worker lays
// queries, keys and values of one head out in scratch, projecting them or adding biases, and
// attends.
#include <limits>

#include "cpu/tensor/attend.h"
#include "ops/infer/microsoft_attention.h"

namespace lmn::cpu {
namespace {

using ops::AttentionSizes;
using ops::FusedAttention;
using ops::KeyMask;
using ops::Operands;
using ops::Worker;

struct FusedCall {
  FusedAttention f;
  bool projects = false, causal = false, has_biases = false, has_past = false, has_bias = false;
  int outputs = 1;
  float scale = 1, masked = 0;
  int64_t bias_batch = 0, bias_head = 0;  // strides of attention_bias
};

template <typename T>
struct FusedPolicy {
  using S = Sum<T>;
  static constexpr bool kObserves = false;
  const FusedCall& call;
  const Operands& io;
  int64_t batch, head, first;

  KeyRange range(int64_t row) const {
    const AttentionSizes& a = call.f.a;
    return {0, call.causal ? std::min(a.keys(), a.past + first + row + 1) : a.keys()};
  }
  bool attends(const int32_t* mask, int64_t row, int64_t key) const {
    const AttentionSizes& a = call.f.a;
    switch (call.f.mask) {
      case KeyMask::kNone:
        return true;
      case KeyMask::kLengths:
        return key < mask[batch];
      case KeyMask::kRanges:
        return key < mask[batch] && key >= mask[a.batch + batch];
      case KeyMask::kKeys:
        return mask[batch * a.keys() + key] > 0;
      case KeyMask::kRowsOfKeys:
        return mask[(batch * a.rows + row) * a.keys() + key] > 0;
      case KeyMask::kSquare:
        return mask[(batch * call.f.mask_size + a.past + row) * call.f.mask_size + key] > 0;
    }
    return true;
  }
  bool bias(int64_t row, KeyRange range, S* scores) const {
    const AttentionSizes& a = call.f.a;
    if (call.has_bias) {
      const T* const more = io.input<T>(call.f.bias_input) + batch * call.bias_batch +
                            head * call.bias_head + (first + row) * a.keys();
      for (int64_t k = range.begin; k < range.end; ++k) scores[k] += static_cast<S>(more[k]);
    }
    if (call.f.mask == KeyMask::kNone) return true;
    const int32_t* const mask = io.input<int32_t>(call.f.mask_input);
    for (int64_t k = range.begin; k < range.end; ++k) {
      if (!attends(mask, first + row, k)) scores[k] += static_cast<S>(call.masked);
    }
    return true;
  }
  const S* sink(int64_t) const { return nullptr; }
  void observe(int, int64_t, KeyRange, const S*) const {}
};

// Columns [column, column + dim) of the projection of one sequence's rows, with the bias.
template <typename T>
void project(const FusedCall& call, const Operands& io, int64_t batch, int64_t column, int64_t dim,
             Sum<T>* to, std::byte* scratch) {
  const FusedAttention& f = call.f;
  const T* const bias = call.has_biases ? io.input<T>(2) + column : nullptr;
  blocked_product<Sum<T>>(0, f.a.rows, 0, dim, f.inputs, scratch,
                          RowPacker<T>{io.input<T>(0) + batch * f.a.rows * f.inputs, f.inputs, 1},
                          ColumnPacker<T>{io.input<T>(1) + column, 1, f.row},
                          [&](int64_t row, int64_t first, int64_t count, const Sum<T>* sums) {
                            for (int64_t i = 0; i < count; ++i) {
                              to[row * dim + first + i] =
                                  bias == nullptr ? sums[i]
                                                  : sums[i] + static_cast<Sum<T>>(bias[first + i]);
                            }
                          });
}

// `rows` rows of `dim` elements with a bias.
template <typename T>
void copy_rows(const T* from, int64_t stride, int64_t rows, int64_t dim, const T* bias,
               Sum<T>* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < dim; ++d) {
      Sum<T> value = static_cast<Sum<T>>(from[r * stride + d]);
      if (bias != nullptr) value += static_cast<Sum<T>>(bias[d]);
      to[r * dim + d] = value;
    }
  }
}

template <typename T>
void lay_out(const FusedCall& call, const Operands& io, int64_t batch, int64_t head, Sum<T>* q,
             Sum<T>* k, Sum<T>* v, std::byte* scratch) {
  const FusedAttention& f = call.f;
  const AttentionSizes& a = f.a;
  const int64_t dim = a.head_dim, value_dim = a.value_dim;
  if (call.projects) {
    project<T>(call, io, batch, head * dim, dim, q, scratch);
    project<T>(call, io, batch, (a.heads + head) * dim, dim, k, scratch);
    project<T>(call, io, batch, 2 * a.heads * dim + head * value_dim, value_dim, v, scratch);
    return;
  }
  const T *bias_q = nullptr, *bias_k = nullptr, *bias_v = nullptr;
  if (call.has_biases) {
    bias_q = io.input<T>(3) + head * dim;
    bias_k = bias_q + a.heads * dim;
    bias_v = io.input<T>(3) + 2 * a.heads * dim + head * value_dim;
  }
  if (f.packed_qkv) {  // [batch, rows, heads, 3, dim]
    const int64_t row = a.heads * 3 * dim;
    const T* const from = io.input<T>(0) + batch * a.rows * row + head * 3 * dim;
    copy_rows(from, row, a.rows, dim, bias_q, q);
    copy_rows(from + dim, row, a.rows, dim, bias_k, k);
    copy_rows(from + 2 * dim, row, a.rows, dim, bias_v, v);
    return;
  }
  copy_rows(io.input<T>(0) + batch * a.rows * a.heads * dim + head * dim, a.heads * dim, a.rows,
            dim, bias_q, q);
  if (f.packed_kv) {  // [batch, rows, heads, 2, dim]
    const int64_t row = a.heads * 2 * dim;
    const T* const from = io.input<T>(1) + batch * a.fresh * row + head * 2 * dim;
    copy_rows(from, row, a.fresh, dim, bias_k, k);
    copy_rows(from + dim, row, a.fresh, dim, bias_v, v);
  } else if (f.keys_are_heads_first) {
    const int64_t at = (batch * a.heads + head) * a.fresh;
    copy_rows(io.input<T>(1) + at * dim, dim, a.fresh, dim, bias_k, k);
    copy_rows(io.input<T>(2) + at * value_dim, value_dim, a.fresh, value_dim, bias_v, v);
  } else {
    copy_rows(io.input<T>(1) + batch * a.fresh * a.heads * dim + head * dim, a.heads * dim, a.fresh,
              dim, bias_k, k);
    copy_rows(io.input<T>(2) + batch * a.fresh * a.heads * value_dim + head * value_dim,
              a.heads * value_dim, a.fresh, value_dim, bias_v, v);
  }
}

template <typename T>
void run(const FusedCall& call, const Operands& io, const Worker& worker) {
  using S = Sum<T>;
  const AttentionSizes& a = call.f.a;
  const int64_t dim = a.head_dim, value_dim = a.value_dim, keys = a.keys();
  S* const q = reinterpret_cast<S*>(worker.scratch + product_scratch_bytes<S>());
  S* const k = q + a.rows * dim;
  S* const v = k + keys * dim;
  const AttendScratch<S> scratch(reinterpret_cast<std::byte*>(v + keys * value_dim), keys, dim,
                                 value_dim);
  const int64_t heads = a.batch * a.heads;
  // Keys and values of the past, and what becomes of both.
  const T *past_k = nullptr, *past_v = nullptr;
  T *present_k = nullptr, *present_v = nullptr;
  if (call.projects) {
    if (call.has_past) past_k = io.input<T>(4);
    if (call.has_past) past_v = past_k + heads * a.past * dim;
    if (call.outputs > 1) present_k = io.output<T>(1);
    if (present_k != nullptr) present_v = present_k + heads * keys * dim;
  } else {
    if (call.has_past) past_k = io.input<T>(6);
    if (call.has_past) past_v = io.input<T>(7);
    if (call.outputs > 1) present_k = io.output<T>(1);
    if (call.outputs > 2) present_v = io.output<T>(2);
  }
  const auto store = [](const S* from, int64_t count, T* to) {
    for (int64_t i = 0; to != nullptr && i < count; ++i) to[i] = static_cast<T>(from[i]);
  };
  const auto [begin, end] = ops::share_of(heads, worker);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t batch = unit / a.heads, head = unit % a.heads;
    if (past_k != nullptr) {
      copy_rows<T>(past_k + unit * a.past * dim, dim, a.past, dim, nullptr, k);
      copy_rows<T>(past_v + unit * a.past * value_dim, value_dim, a.past, value_dim, nullptr, v);
    }
    lay_out<T>(call, io, batch, head, q, k + a.past * dim, v + a.past * value_dim, worker.scratch);
    if (present_k != nullptr) store(k, keys * dim, present_k + unit * keys * dim);
    if (present_v != nullptr) store(v, keys * value_dim, present_v + unit * keys * value_dim);
    T* const y = io.output<T>(0);
    if (y == nullptr) continue;
    HeadCache<S> cache;
    cache.head_dim = dim;
    cache.value_dim = value_dim;
    cache.parts[1] = {k, v, dim, value_dim, keys};
    for (int64_t first = 0; first < a.rows; first += kQueryRows) {
      const int64_t rows = std::min(kQueryRows, a.rows - first);
      for (int64_t i = 0; i < rows * dim; ++i)
        scratch.queries[i] = q[first * dim + i] * static_cast<S>(call.scale);
      attend(cache, rows, S{}, FusedPolicy<T>{call, io, batch, head, first}, scratch);
      for (int64_t r = 0; r < rows; ++r) {
        store(scratch.outputs + r * value_dim, value_dim,
              y + batch * a.y.batch_stride + head * a.y.head_stride + (first + r) * a.y.row_stride);
      }
    }
  }
}

Status bind_fused(const Binding& b, bool projects) {
  const ops::TensorNode& node = b.node;
  FusedCall call;
  call.projects = projects;
  LMN_RETURN_IF_ERROR(read_fused_attention(node, &call.f));
  const AttentionSizes& a = call.f.a;
  call.causal = node.integer("unidirectional", 0) != 0;
  call.has_biases = node.has(projects ? 2 : 3);
  call.has_past = node.has(projects ? 4 : 6) && a.past > 0;
  call.has_bias = node.has(call.f.bias_input);
  call.outputs = node.outputs();
  call.scale = node.number("scale", 0);
  if (call.scale == 0) call.scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  call.masked = node.number("mask_filter_value", -10000.0f);
  if (call.has_bias) {
    const Shape& bias = node.shape(call.f.bias_input);
    if (bias[1] != 1) call.bias_head = a.rows * a.keys();
    if (bias[0] != 1) call.bias_batch = bias[1] * a.rows * a.keys();
  }
  return with_float(node, node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = product_scratch_bytes<Sum<T>>() +
                             attend_scratch_bytes<Sum<T>>(a.keys(), a.head_dim, a.value_dim) +
                             sizeof(Sum<T>) * static_cast<size_t>((a.rows + a.keys()) * a.head_dim +
                                                                  a.keys() * a.value_dim);
    b.kernel.set([call](const Operands& io, const Worker& worker) { run<T>(call, io, worker); });
    return {};
  });
}

}  // namespace

Status bind_MicrosoftAttention(const Binding& b) { return bind_fused(b, true); }
Status bind_MultiHeadAttention(const Binding& b) { return bind_fused(b, false); }

}  // namespace lmn::cpu
