// SPDX-License-Identifier: Apache-2.0
//
// Kernels of ONNX's RotaryEmbedding and LinearAttention.
#include <cmath>

#include "cpu/tensor/float_math.h"
#include "cpu/tensor/product.h"
#include "cpu/tensor/rotate.h"
#include "ops/infer/attention.h"

namespace lmn::cpu {

using ops::Operands;
using ops::Worker;

Status bind_RotaryEmbedding(const Binding& b) {
  ops::RotarySizes r;
  LMN_RETURN_IF_ERROR(read_rotary(b.node, &r));
  const bool interleaved = b.node.integer("interleaved", 0) != 0;
  const int64_t positions = b.node.shape(1)[0];
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(r.batch * r.rows, worker);
      for (int64_t at = begin; at < end; ++at) {
        int64_t position = at;
        if (r.has_positions) {
          position = io.input<int64_t>(3)[at];
          if (position < 0 || position >= positions) {
            io.fail("RotaryEmbedding: a position is out of range");
            position = 0;
            if (positions == 0) return;
          }
        }
        const T* const cosine = io.input<T>(1) + position * (r.rotary_dim / 2);
        const T* const sine = io.input<T>(2) + position * (r.rotary_dim / 2);
        for (int64_t head = 0; head < r.heads; ++head) {
          const int64_t offset = at / r.rows * r.view.batch_stride + head * r.view.head_stride +
                                 at % r.rows * r.view.row_stride;
          rotate(io.input<T>(0) + offset, cosine, sine, r.rotary_dim, r.dim, interleaved,
                 io.output<T>(0) + offset);
        }
      }
    });
    return {};
  });
}

// Heads of keys are shared out: each has a state, [key_dim, value_dim], which is kept in scratch.
Status bind_LinearAttention(const Binding& b) {
  ops::LinearAttentionSizes l;
  LMN_RETURN_IF_ERROR(read_linear_attention(b.node, &l));
  const float given = b.node.number("scale", 0);
  const float scale = given != 0 ? given : 1.0f / std::sqrt(static_cast<float>(l.key_dim));
  const int64_t group = l.heads / l.kv_heads;
  const int64_t decays = b.node.has(4) ? b.node.shape(4)[2] : 0;
  const int64_t betas = b.node.has(5) ? b.node.shape(5)[2] : 0;
  const bool has_past = b.node.has(3), has_state = b.node.outputs() > 1;
  const DType state_dtype = has_past ? b.node.dtype(3) : b.node.dtype(0);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    return with_float(b.node, state_dtype, [&](auto state_tag) -> Status {
      using State = typename decltype(state_tag)::type;
      b.kernel.splits = true;
      b.kernel.scratch_bytes = sizeof(S) * static_cast<size_t>((l.key_dim + 2) * l.value_dim);
      b.kernel.set([=](const Operands& io, const Worker& worker) {
        S* const state = reinterpret_cast<S*>(worker.scratch);
        S* const sums = state + l.key_dim * l.value_dim;
        S* const update = sums + l.value_dim;
        const auto [begin, end] = ops::share_of(l.batch * l.kv_heads, worker);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t batch = unit / l.kv_heads, head = unit % l.kv_heads;
          const int64_t size = l.key_dim * l.value_dim;
          for (int64_t i = 0; i < size; ++i)
            state[i] = has_past ? static_cast<S>(io.input<State>(3)[unit * size + i]) : S{};
          for (int64_t step = 0; step < l.steps; ++step) {
            const int64_t row = batch * l.steps + step;
            const T* const k = io.input<T>(1) + (row * l.kv_heads + head) * l.key_dim;
            const T* const v = io.input<T>(2) + (row * l.kv_heads + head) * l.value_dim;
            if (l.gated) {
              const T* const decay = io.input<T>(4) + row * decays;
              const bool one = decays == l.kv_heads;
              for (int64_t i = 0; i < l.key_dim; ++i) {
                const S factor =
                    fast_exp(static_cast<S>(one ? decay[head] : decay[head * l.key_dim + i]));
                for (int64_t j = 0; j < l.value_dim; ++j) state[i * l.value_dim + j] *= factor;
              }
            }
            for (int64_t j = 0; j < l.value_dim; ++j) update[j] = static_cast<S>(v[j]);
            if (l.delta) {
              std::fill_n(sums, l.value_dim, S{});
              for (int64_t i = 0; i < l.key_dim; ++i) {
                const S factor = static_cast<S>(k[i]);
                for (int64_t j = 0; j < l.value_dim; ++j)
                  sums[j] += factor * state[i * l.value_dim + j];
              }
              const S beta = static_cast<S>(io.input<T>(5)[row * betas + (betas == 1 ? 0 : head)]);
              for (int64_t j = 0; j < l.value_dim; ++j) update[j] = beta * (update[j] - sums[j]);
            }
            for (int64_t i = 0; i < l.key_dim; ++i) {
              const S factor = static_cast<S>(k[i]);
              for (int64_t j = 0; j < l.value_dim; ++j)
                state[i * l.value_dim + j] += factor * update[j];
            }
            for (int64_t g = 0; g < group; ++g) {
              const int64_t query = row * l.heads + head * group + g;
              const T* const q = io.input<T>(0) + query * l.key_dim;
              std::fill_n(sums, l.value_dim, S{});
              for (int64_t i = 0; i < l.key_dim; ++i) {
                const S factor = static_cast<S>(q[i]);
                for (int64_t j = 0; j < l.value_dim; ++j)
                  sums[j] += factor * state[i * l.value_dim + j];
              }
              T* const to = io.output<T>(0) + query * l.value_dim;
              for (int64_t j = 0; j < l.value_dim; ++j)
                to[j] = static_cast<T>(static_cast<S>(scale) * sums[j]);
            }
          }
          State* const out = has_state ? io.output<State>(1) : nullptr;
          for (int64_t i = 0; out != nullptr && i < size; ++i)
            out[unit * size + i] = static_cast<State>(state[i]);
        }
      });
      return {};
    });
  });
}

}  // namespace lmn::cpu
