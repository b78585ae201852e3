// SPDX-License-Identifier: Apache-2.0
//
// Kernels of com.microsoft.GroupQueryAttention and RotaryEmbedding. Heads of keys are shared out:
// a worker writes the cache of one head, the new keys rotated, and attends with all its queries.
#include <limits>

#include "cpu/tensor/attend.h"
#include "cpu/tensor/rotate.h"
#include "ops/infer/microsoft_attention.h"

namespace lmn::cpu {
namespace {

using ops::AttentionSizes;
using ops::GroupQueryAttention;
using ops::Operands;
using ops::Worker;

struct GroupedCall {
  GroupQueryAttention g;
  int64_t window = -1, bias_batch = 0, bias_head = 0, bias_keys = 0, positions = 0;
  bool interleaved = false, has_positions = false, has_bias = false, has_sink = false;
  bool smooth = false, rotates = false;
  int outputs = 1;
  float scale = 1, softcap = 0;
};

template <typename T>
struct GroupedPolicy {
  using S = Sum<T>;
  static constexpr bool kObserves = false;
  const GroupedCall& call;
  const T* biases;   // of the first row, or null
  int64_t position;  // of the first row
  const S* sink_;    // or null

  KeyRange range(int64_t row) const {
    const int64_t at = position + row;
    return {call.window > 0 && at >= call.window ? at - call.window + 1 : 0, at + 1};
  }
  bool bias(int64_t row, KeyRange range, S* scores) const {
    if (biases == nullptr) return true;
    const T* const more = biases + row * call.bias_keys;
    for (int64_t k = range.begin; k < std::min(range.end, call.bias_keys); ++k)
      scores[k] += static_cast<S>(more[k]);
    return true;
  }
  const S* sink(int64_t) const { return sink_; }
  void observe(int, int64_t, KeyRange, const S*) const {}
};

template <typename T>
class GroupedRunner {
 public:
  using S = Sum<T>;

  GroupedRunner(const GroupedCall& call, const Operands& io, const Worker& worker)
      : call_(call),
        a_(call.g.a),
        io_(io),
        scratch_(worker.scratch, call.g.cache_rows, a_.head_dim, a_.head_dim) {
    row_ = reinterpret_cast<T*>(
        worker.scratch + attend_scratch_bytes<S>(call.g.cache_rows, a_.head_dim, a_.head_dim));
    keys_ = row_ + a_.head_dim;
    values_ = keys_ + call.g.cache_rows * a_.head_dim;
  }

  static size_t scratch_bytes(const GroupedCall& call) {
    const int64_t dim = call.g.a.head_dim;
    return attend_scratch_bytes<S>(call.g.cache_rows, dim, dim) +
           sizeof(T) * static_cast<size_t>((2 * call.g.cache_rows + 1) * dim);
  }

  void run(int64_t batch, int64_t kv_head) {
    const int64_t dim = a_.head_dim, cache_rows = call_.g.cache_rows;
    const int64_t unit = batch * a_.kv_heads + kv_head;
    T* keys = call_.outputs > 1 ? io_.output<T>(1) : nullptr;
    T* values = call_.outputs > 2 ? io_.output<T>(2) : nullptr;
    keys = keys == nullptr ? keys_ : keys + unit * cache_rows * dim;
    values = values == nullptr ? values_ : values + unit * cache_rows * dim;
    // A first prompt has no past, whatever the lengths of its (padded) sequences are.
    const int64_t length = int64_t{io_.input<int32_t>(5)[batch]} + 1;
    int64_t past = io_.input<int32_t>(6)[0] == a_.rows ? 0 : length - a_.rows;
    if (past < 0 || past > a_.past || past + a_.rows > cache_rows) {
      io_.fail("GroupQueryAttention: seqlens_k does not fit the cache");
      past = 0;
      if (a_.rows > cache_rows) return;
    }
    const int64_t at = unit * a_.past * dim, end = past + a_.rows;
    if (past > 0) {
      std::copy_n(io_.input<T>(3) + at, past * dim, keys);
      std::copy_n(io_.input<T>(4) + at, past * dim, values);
    }
    std::fill_n(keys + end * dim, (cache_rows - end) * dim, T(0.0f));
    std::fill_n(values + end * dim, (cache_rows - end) * dim, T(0.0f));
    for (int64_t r = 0; r < a_.rows; ++r) {
      T* const key = keys + (past + r) * dim;
      rotated(source(1, batch, r, kv_head), batch, r, past, key);
      std::copy_n(source(2, batch, r, kv_head), dim, values + (past + r) * dim);
    }
    T* const y = io_.output<T>(0);
    if (y == nullptr) return;
    HeadCache<T> cache;
    cache.head_dim = cache.value_dim = dim;
    cache.parts[1] = {keys, values, dim, dim, past + a_.rows};
    const int64_t group = a_.heads / a_.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      S sink{};
      if (call_.has_sink) sink = static_cast<S>(io_.input<T>(11)[head]);
      for (int64_t first = 0; first < a_.rows; first += kQueryRows) {
        const int64_t rows = std::min(kQueryRows, a_.rows - first);
        for (int64_t r = 0; r < rows; ++r) {
          rotated(source(0, batch, first + r, head), batch, first + r, past, row_);
          for (int64_t d = 0; d < dim; ++d)
            scratch_.queries[r * dim + d] = static_cast<S>(row_[d]) * static_cast<S>(call_.scale);
        }
        const T* biases = nullptr;
        if (call_.has_bias) {
          biases = io_.input<T>(10) + batch * call_.bias_batch + head * call_.bias_head +
                   first * call_.bias_keys;
        }
        const GroupedPolicy<T> policy{call_, biases, past + first,
                                      call_.has_sink || call_.smooth ? &sink : nullptr};
        attend(cache, rows, static_cast<S>(call_.softcap), policy, scratch_);
        for (int64_t r = 0; r < rows; ++r) {
          T* const to = y + ((batch * a_.rows + first + r) * a_.heads + head) * dim;
          for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<T>(scratch_.outputs[r * dim + d]);
        }
      }
    }
  }

 private:
  // Head `head` of row `row` of query (0), key (1) or value (2).
  const T* source(int which, int64_t batch, int64_t row, int64_t head) const {
    const int64_t at = batch * a_.rows + row;
    if (!call_.g.packed) {
      const int64_t heads = which == 0 ? a_.heads : a_.kv_heads;
      return io_.input<T>(which) + (at * heads + head) * a_.head_dim;
    }
    const int64_t before = which == 0 ? 0 : a_.heads + (which == 2 ? a_.kv_heads : 0);
    return io_.input<T>(0) + (at * (a_.heads + 2 * a_.kv_heads) + before + head) * a_.head_dim;
  }
  void rotated(const T* x, int64_t batch, int64_t row, int64_t past, T* y) const {
    if (!call_.rotates) {
      std::copy_n(x, a_.head_dim, y);
      return;
    }
    int64_t position = past + row;
    if (call_.has_positions) position = io_.input<int64_t>(9)[batch * a_.rows + row];
    if (position < 0 || position >= call_.positions) {
      io_.fail("GroupQueryAttention: a position is beyond cos_cache");
      std::copy_n(x, a_.head_dim, y);
      return;
    }
    const int64_t at = position * (call_.g.rotary_dim / 2);
    rotate(x, io_.input<T>(7) + at, io_.input<T>(8) + at, call_.g.rotary_dim, a_.head_dim,
           call_.interleaved, y);
  }

  const GroupedCall& call_;
  const AttentionSizes& a_;
  const Operands& io_;
  AttendScratch<S> scratch_;
  T *row_, *keys_, *values_;
};

}  // namespace

Status bind_GroupQueryAttention(const Binding& b) {
  const ops::TensorNode& node = b.node;
  GroupedCall call;
  LMN_RETURN_IF_ERROR(read_group_query_attention(node, &call.g));
  const AttentionSizes& a = call.g.a;
  if (call.g.cache_rows < 0)
    return node.unsupported("total_sequence_length must be known before the kernel is chosen");
  call.outputs = node.outputs();
  call.window = node.integer("local_window_size", -1);
  call.interleaved = node.integer("rotary_interleaved", 0) != 0;
  call.smooth = node.integer("smooth_softmax", 0) != 0;
  call.rotates = node.integer("do_rotary", 0) != 0;
  if (call.rotates) call.positions = node.shape(7)[0];
  call.has_positions = node.has(9);
  call.has_bias = node.has(10);
  call.has_sink = node.has(11);
  call.softcap = node.number("softcap", 0);
  call.scale = node.number("scale", 0);
  if (call.scale == 0) call.scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  if (call.has_bias) {
    const Shape& bias = node.shape(10);
    call.bias_keys = bias[3];
    if (bias[1] != 1) call.bias_head = a.rows * bias[3];
    if (bias[0] != 1) call.bias_batch = bias[1] * a.rows * bias[3];
  }
  return with_float(node, node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = GroupedRunner<T>::scratch_bytes(call);
    b.kernel.set([call](const Operands& io, const Worker& worker) {
      GroupedRunner<T> runner(call, io, worker);
      const auto [begin, end] = ops::share_of(call.g.a.batch * call.g.a.kv_heads, worker);
      for (int64_t unit = begin; unit < end; ++unit)
        runner.run(unit / call.g.a.kv_heads, unit % call.g.a.kv_heads);
    });
    return {};
  });
}

Status bind_MicrosoftRotaryEmbedding(const Binding& b) {
  ops::RotarySizes r;
  LMN_RETURN_IF_ERROR(read_microsoft_rotary(b.node, &r));
  const bool interleaved = b.node.integer("interleaved", 0) != 0;
  const int64_t positions = b.node.shape(2)[0];
  const float scale = b.node.number("scale", 1);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(r.batch * r.rows, worker);
      for (int64_t at = begin; at < end; ++at) {
        const int64_t row = at % r.rows;
        int64_t position = io.input<int64_t>(1)[r.has_positions ? at : 0];
        if (!r.has_positions && position >= 0 && position < positions) position += row;
        if (position < 0 || position >= positions) {
          io.fail("RotaryEmbedding: a position is out of range");
          continue;
        }
        const int64_t angle = position * (r.rotary_dim / 2);
        for (int64_t head = 0; head < r.heads; ++head) {
          const int64_t offset = at / r.rows * r.view.batch_stride + head * r.view.head_stride +
                                 row * r.view.row_stride;
          T* const y = io.output<T>(0) + offset;
          rotate(io.input<T>(0) + offset, io.input<T>(2) + angle, io.input<T>(3) + angle,
                 r.rotary_dim, r.dim, interleaved, y);
          if (scale == 1.0f) continue;
          for (int64_t i = 0; i < r.dim; ++i)
            y[i] = static_cast<T>(static_cast<Sum<T>>(y[i]) * static_cast<Sum<T>>(scale));
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
