// SPDX-License-Identifier: Apache-2.0
//
// Kernel of ONNX's Attention. Blocks of query rows of one head are shared out.
#include "ops/infer/attention.h"

#include "cpu/tensor/attend.h"

namespace lmn::cpu {
namespace {

using ops::AttentionSizes;
using ops::HeadView;
using ops::Operands;
using ops::Worker;

struct Mask {
  bool present = false;
  DType dtype = DType::kF32;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0, keys = 0;
};

Mask make_mask(const ops::TensorNode& node, int input) {
  Mask mask;
  if (!node.has(input)) return mask;
  const Shape& shape = node.shape(input);
  mask.present = true;
  mask.dtype = node.dtype(input);
  mask.keys = shape.last();
  int64_t stride = mask.keys;
  int64_t* const strides[] = {&mask.row_stride, &mask.head_stride, &mask.batch_stride};
  for (int i = 1; i < shape.rank; ++i) {
    const int64_t size = shape[shape.rank - 1 - i];
    if (size != 1) *strides[i - 1] = stride;
    stride *= size;
  }
  return mask;
}

struct Call {
  AttentionSizes a;
  Mask mask;
  bool causal = false, has_lengths = false;
  int64_t left = -1, right = -1, observed = -1;
  float scale = 1, softcap = 0;
};

template <typename T, bool kWithObserver>
struct Policy {
  using S = Sum<T>;
  static constexpr bool kObserves = kWithObserver;
  const Call& call;
  const Operands& io;
  int64_t batch, head, first;  // row
  int64_t length, offset;      // valid keys; position of row 0 among the keys
  T* products;                 // of row 0, or null

  KeyRange range(int64_t row) const {
    const int64_t at = offset + first + row;
    KeyRange range{0, length};
    if (call.causal) range.end = std::min(range.end, at + 1);
    if (call.right >= 0 && call.right < length)
      range.end = std::min(range.end, at + call.right + 1);
    if (call.left >= 0 && call.left < at) range.begin = at - call.left;
    range.end = std::max<int64_t>(range.end, 0);
    return range;
  }
  template <typename M>
  bool add(const M* mask, KeyRange range, S* scores) const {
    constexpr S kNone = -std::numeric_limits<S>::infinity();
    bool any = false;
    const int64_t end = std::min(range.end, call.mask.keys);
    for (int64_t k = range.begin; k < end; ++k) {
      const S value = static_cast<S>(mask[k]);
      any = any || value != kNone;
      scores[k] = value == kNone ? kNone : scores[k] + value;
    }
    for (int64_t k = std::max(range.begin, call.mask.keys); k < range.end; ++k) scores[k] = kNone;
    return any;
  }
  bool bias(int64_t row, KeyRange range, S* scores) const {
    if (range.begin >= range.end) return false;
    if (!call.mask.present) return true;
    const Mask& m = call.mask;
    const int64_t at = batch * m.batch_stride + head * m.head_stride + (first + row) * m.row_stride;
    switch (m.dtype) {
      case DType::kBool: {
        const uint8_t* const mask = io.input<uint8_t>(3) + at;
        bool any = false;
        for (int64_t k = range.begin; k < range.end; ++k) {
          const bool attends = k < m.keys && mask[k] != 0;
          any = any || attends;
          if (!attends) scores[k] = -std::numeric_limits<S>::infinity();
        }
        return any;
      }
      case DType::kF64:
        return add(io.input<double>(3) + at, range, scores);
      case DType::kF16:
        return add(io.input<Half>(3) + at, range, scores);
      case DType::kBF16:
        return add(io.input<BFloat>(3) + at, range, scores);
      default:
        return add(io.input<float>(3) + at, range, scores);
    }
  }
  const S* sink(int64_t) const { return nullptr; }
  void observe(int stage, int64_t row, KeyRange range, const S* scores) const {
    if (stage != call.observed) return;
    const int64_t keys = call.a.keys();
    T* const to = products + row * keys;
    for (int64_t k = 0; k < keys; ++k) {
      const bool inside = k >= range.begin && k < range.end;
      const S outside = stage == 2 ? -std::numeric_limits<S>::infinity() : S{};
      to[k] = static_cast<T>(inside || stage < 2 ? scores[k] : outside);
    }
  }
};

// A worker's share of past and new rows, put together as [batch, heads, past + fresh, dim].
template <typename T>
void concatenate(const T* past, const T* fresh, const HeadView& view, const AttentionSizes& a,
                 int64_t dim, T* to, const Worker& worker) {
  const auto [begin, end] = ops::share_of(a.batch * a.kv_heads * a.keys(), worker);
  for (int64_t at = begin; at < end; ++at) {
    const int64_t row = at % a.keys(), head = at / a.keys();
    const T* const from = row < a.past ? past + (head * a.past + row) * dim
                                       : fresh + head / a.kv_heads * view.batch_stride +
                                             head % a.kv_heads * view.head_stride +
                                             (row - a.past) * view.row_stride;
    std::copy_n(from, dim, to + at * dim);
  }
}

template <typename T, bool kObserves>
void run_attention(const Call& call, const Operands& io, const Worker& worker) {
  using S = Sum<T>;
  const AttentionSizes& a = call.a;
  const AttendScratch<S> scratch(worker.scratch, a.keys(), a.head_dim, a.value_dim);
  const int64_t blocks = (a.rows + kQueryRows - 1) / kQueryRows;
  T* const y = io.output<T>(0);
  const T* const past_k = a.past > 0 ? io.input<T>(4) : nullptr;
  const T* const past_v = a.past > 0 ? io.input<T>(5) : nullptr;
  const auto [begin, end] = ops::share_of(a.batch * a.heads * blocks, worker);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % blocks * kQueryRows, head = unit / blocks % a.heads;
    const int64_t batch = unit / blocks / a.heads, rows = std::min(kQueryRows, a.rows - first);
    const int64_t kv_head = head / (a.heads / a.kv_heads), at = batch * a.kv_heads + kv_head;
    HeadCache<T> cache;
    cache.head_dim = a.head_dim;
    cache.value_dim = a.value_dim;
    cache.parts[0] = {past_k + at * a.past * a.head_dim, past_v + at * a.past * a.value_dim,
                      a.head_dim, a.value_dim, a.past};
    cache.parts[1] = {io.input<T>(1) + batch * a.k.batch_stride + kv_head * a.k.head_stride,
                      io.input<T>(2) + batch * a.v.batch_stride + kv_head * a.v.head_stride,
                      a.k.row_stride, a.v.row_stride, a.fresh};
    int64_t length = a.keys(), offset = a.past;
    if (call.has_lengths) {
      const int64_t given = io.input<int64_t>(6)[batch];
      if (given < 0 || given > length) io.fail("Attention: nonpad_kv_seqlen is out of range");
      length = std::clamp<int64_t>(given, 0, length);
      offset = length - a.rows;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const T* const q = io.input<T>(0) + batch * a.q.batch_stride + head * a.q.head_stride +
                         (first + r) * a.q.row_stride;
      for (int64_t d = 0; d < a.head_dim; ++d)
        scratch.queries[r * a.head_dim + d] = static_cast<S>(q[d]) * static_cast<S>(call.scale);
    }
    T* products = nullptr;
    if (kObserves)
      products = io.output<T>(3) + ((batch * a.heads + head) * a.rows + first) * a.keys();
    const Policy<T, kObserves> policy{call, io, batch, head, first, length, offset, products};
    attend(cache, rows, static_cast<S>(call.softcap), policy, scratch);
    for (int64_t r = 0; r < rows && y != nullptr; ++r) {
      T* const to =
          y + batch * a.y.batch_stride + head * a.y.head_stride + (first + r) * a.y.row_stride;
      for (int64_t d = 0; d < a.value_dim; ++d)
        to[d] = static_cast<T>(scratch.outputs[r * a.value_dim + d]);
    }
  }
}

}  // namespace

Status bind_Attention(const Binding& b) {
  Call call;
  const ops::TensorNode& node = b.node;
  LMN_RETURN_IF_ERROR(read_attention(node, &call.a));
  call.mask = make_mask(node, 3);
  call.causal = node.integer("is_causal", 0) != 0;
  call.has_lengths = node.has(6);
  call.left = node.integer("left_window_size", -1);
  call.right = node.integer("right_window_size", -1);
  call.softcap = node.number("softcap", 0);
  call.scale = node.number("scale", 0);
  if (call.scale == 0) call.scale = 1.0f / std::sqrt(static_cast<float>(call.a.head_dim));
  call.observed = node.integer("qk_matmul_output_mode", 0);
  const int outputs = node.outputs();
  return with_float(node, node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes =
        attend_scratch_bytes<Sum<T>>(call.a.keys(), call.a.head_dim, call.a.value_dim);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const AttentionSizes& a = call.a;
      T* const keys = outputs > 1 ? io.output<T>(1) : nullptr;
      T* const values = outputs > 2 ? io.output<T>(2) : nullptr;
      const bool has_past = a.past > 0;
      if (keys != nullptr) {
        concatenate(has_past ? io.input<T>(4) : nullptr, io.input<T>(1), a.k, a, a.head_dim, keys,
                    worker);
      }
      if (values != nullptr) {
        concatenate(has_past ? io.input<T>(5) : nullptr, io.input<T>(2), a.v, a, a.value_dim,
                    values, worker);
      }
      if (outputs > 3 && io.output<T>(3) != nullptr) {
        run_attention<T, true>(call, io, worker);
      } else if (io.output<T>(0) != nullptr) {
        run_attention<T, false>(call, io, worker);
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
