// SPDX-License-Identifier: Apache-2.0
//
// Kernels of RNN, GRU and LSTM. Sequences are independent: pairs of direction and sequence are
// shared out, and a worker runs a few of them through all steps together. The input's part of the
// gates is computed for several steps at once. Constant weights of float32 are packed.
#include "ops/infer/recurrent.h"

#include <memory>
#include <type_traits>
#include <vector>

#include "cpu/tensor/activate.h"
#include "cpu/tensor/dots.h"
#include "cpu/tensor/packed_rows.h"

namespace lmn::cpu {
namespace {

using ops::Activation;
using ops::Operands;
using ops::Recurrence;
using ops::Worker;

constexpr int64_t kGroup = 16;  // sequences that run together, and rows of gates in scratch

// W and R of every direction and gate: [direction * gates + gate].
struct PackedWeights {
  std::vector<PackedRows> input, recurrent;
};

struct Network {
  Recurrence r;
  const PackedWeights* packed = nullptr;                // or the weights are read where they lie
  decltype(FloatKernels::activate) activate = nullptr;  // of the instruction set
  int64_t gates = 0;
  bool has_bias = false, has_lengths = false, has_h = false, has_c = false, has_peepholes = false;
  bool linear_before_reset = false, couples = false;
  int outputs = 1;

  int64_t rows_of_scratch() const { return kGroup * (r.inputs + (gates + 3) * r.hidden); }
};

// Where a worker keeps what it needs.
template <typename S>
struct Buffers {
  S *x, *gates, *h, *c, *more, *row;
};

template <typename T>
class Runner {
 public:
  using S = Sum<T>;

  Runner(const Network& network, const Operands& io, const Worker& worker)
      : n_(network), r_(network.r), io_(io) {
    S* at = reinterpret_cast<S*>(worker.scratch);
    const auto take = [&](int64_t count) {
      S* const begin = at;
      at += count;
      return begin;
    };
    b_.x = take(kGroup * r_.inputs);
    b_.gates = take(kGroup * n_.gates * r_.hidden);
    b_.h = take(kGroup * r_.hidden);
    b_.c = take(kGroup * r_.hidden);
    b_.more = take(kGroup * r_.hidden);
    b_.row = take(std::max(r_.inputs, r_.hidden));
  }

  // Sequences [first, first + count) of one direction; count is at most kGroup.
  void run(int64_t direction, int64_t first, int64_t count) {
    direction_ = direction;
    first_ = first;
    const bool reverse = direction == 1 || r_.reverse;
    int64_t longest = 0;
    for (int64_t i = 0; i < count; ++i) {
      lengths_[i] = r_.steps;
      if (n_.has_lengths) {
        const int32_t given = io_.input<int32_t>(4)[first + i];
        if (given < 0 || given > r_.steps) io_.fail("a sequence's length is out of range");
        lengths_[i] = std::clamp<int64_t>(given, 0, r_.steps);
      }
      longest = std::max(longest, lengths_[i]);
      load_state(n_.has_h ? io_.input<T>(5) : nullptr, i, b_.h);
      if (n_.gates == 4) load_state(n_.has_c ? io_.input<T>(6) : nullptr, i, b_.c);
    }
    const int64_t width = n_.gates * r_.hidden, at_once = std::max<int64_t>(1, kGroup / count);
    for (int64_t step = 0; step < longest; step += at_once) {
      const int64_t steps = std::min(at_once, longest - step);
      for (int64_t s = 0; s < steps; ++s) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = s * count + i, time = time_of(step + s, i, reverse);
          start_gates(b_.gates + row * width);
          S* const to = b_.x + row * r_.inputs;
          if (time < 0) {
            std::fill_n(to, r_.inputs, S{});
            continue;
          }
          const T* const x = io_.input<T>(0) + place(time, first + i) * r_.inputs;
          for (int64_t k = 0; k < r_.inputs; ++k) to[k] = static_cast<S>(x[k]);
        }
      }
      add_products(1, r_.inputs, 0, n_.gates, b_.x, steps * count, b_.gates, width);
      for (int64_t s = 0; s < steps; ++s) {
        advance(b_.gates + s * count * width, count, step + s);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t time = time_of(step + s, i, reverse);
          if (time >= 0) store(0, output_place(time, i), b_.h + i * r_.hidden);
        }
      }
    }
    std::fill_n(b_.more, r_.hidden, S{});
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t time = lengths_[i]; time < r_.steps; ++time)
        store(0, output_place(time, i), b_.more);
      store(1, state_place(i), b_.h + i * r_.hidden);
      if (n_.gates == 4) store(2, state_place(i), b_.c + i * r_.hidden);
    }
  }

 private:
  // The input that step `step` of sequence i reads; -1: it has ended.
  int64_t time_of(int64_t step, int64_t i, bool reverse) const {
    if (step >= lengths_[i]) return -1;
    return reverse ? lengths_[i] - 1 - step : step;
  }
  int64_t place(int64_t time, int64_t sequence) const {
    return r_.batch_first ? sequence * r_.steps + time : time * r_.batch + sequence;
  }
  int64_t output_place(int64_t time, int64_t i) const {
    const int64_t sequence = first_ + i;
    return r_.batch_first ? (sequence * r_.steps + time) * r_.directions + direction_
                          : (time * r_.directions + direction_) * r_.batch + sequence;
  }
  int64_t state_place(int64_t i) const {
    const int64_t sequence = first_ + i;
    return r_.batch_first ? sequence * r_.directions + direction_
                          : direction_ * r_.batch + sequence;
  }
  void load_state(const T* from, int64_t i, S* to) const {
    for (int64_t k = 0; k < r_.hidden; ++k)
      to[i * r_.hidden + k] =
          from == nullptr ? S{} : static_cast<S>(from[state_place(i) * r_.hidden + k]);
  }
  void store(int output, int64_t place, const S* from) const {
    T* const to = output < n_.outputs ? io_.output<T>(output) : nullptr;
    if (to == nullptr) return;
    for (int64_t k = 0; k < r_.hidden; ++k) to[place * r_.hidden + k] = static_cast<T>(from[k]);
  }

  // Biases of the input and of the recurrence; the latter of GRU's hidden gate is added elsewhere
  // when it is reset with the product.
  void start_gates(S* gates) const {
    const int64_t width = n_.gates * r_.hidden;
    if (!n_.has_bias) {
      std::fill_n(gates, width, S{});
      return;
    }
    const T* const bias = io_.input<T>(3) + direction_ * 2 * width;
    const int64_t both = n_.linear_before_reset ? 2 * r_.hidden : width;
    for (int64_t k = 0; k < both; ++k)
      gates[k] = static_cast<S>(bias[k]) + static_cast<S>(bias[width + k]);
    for (int64_t k = both; k < width; ++k) gates[k] = static_cast<S>(bias[k]);
  }

  const Activation& activation(int64_t i) const {
    const auto each = static_cast<int64_t>(r_.activations.size()) / r_.directions;
    return r_.activations[static_cast<size_t>(direction_ * each + i)];
  }
  void activate_all(const Activation& a, S* x) const {
    if constexpr (std::is_same_v<S, float>) {
      using Kind = ops::ActivationKind;
      if (n_.activate != nullptr && (a.kind == Kind::kTanh || a.kind == Kind::kSigmoid)) {
        const bool is_tanh = a.kind == Kind::kTanh;
        n_.activate(is_tanh ? FloatActivation::kTanh : FloatActivation::kSigmoid, x, x, r_.hidden);
        return;
      }
    }
    activate(a, x, r_.hidden);
  }
  void apply(int64_t i, S* x) const {
    if (r_.clips) {
      const S limit = static_cast<S>(r_.clip);
      for (int64_t k = 0; k < r_.hidden; ++k)
        x[k] = x[k] < -limit ? -limit : x[k] > limit ? limit : x[k];
    }
    activate_all(activation(i), x);
  }
  // Gates [begin, end) of `count` rows += rows of x times W (input 1) or R (input 2).
  void add_products(int input, int64_t inner, int64_t begin, int64_t end, const S* x, int64_t count,
                    S* to, int64_t to_stride) {
    const int64_t first = direction_ * n_.gates + begin;
    if constexpr (std::is_same_v<T, float>) {
      if (n_.packed != nullptr) {
        const auto& weights = input == 1 ? n_.packed->input : n_.packed->recurrent;
        for (int64_t gate = 0; gate < end - begin; ++gate)
          weights[static_cast<size_t>(first + gate)].add_products(x, inner, count,
                                                                  to + gate * r_.hidden, to_stride);
        return;
      }
    }
    add_dots(io_.input<T>(input) + first * r_.hidden * inner, inner, (end - begin) * r_.hidden, x,
             inner, count, inner, to, to_stride, b_.row);
  }
  // Gates [begin, end) += h R.
  void recur(const S* h, int64_t count, int64_t begin, int64_t end, S* to, int64_t to_stride) {
    add_products(2, r_.hidden, begin, end, h, count, to, to_stride);
  }

  void advance(S* gates, int64_t count, int64_t step) {
    const int64_t width = n_.gates * r_.hidden;
    if (n_.gates == 3) {
      recur(b_.h, count, 0, 2, gates, width);
    } else {
      recur(b_.h, count, 0, n_.gates, gates, width);
    }
    if (n_.gates == 3) prepare_hidden(gates, count);
    for (int64_t i = 0; i < count; ++i) {
      if (step >= lengths_[i]) continue;
      S* const g = gates + i * width;
      S* const h = b_.h + i * r_.hidden;
      if (n_.gates == 1) {
        apply(0, g);
        std::copy_n(g, r_.hidden, h);
      } else if (n_.gates == 3) {
        S* const hidden = g + 2 * r_.hidden;
        apply(1, hidden);
        for (int64_t k = 0; k < r_.hidden; ++k) h[k] = (1 - g[k]) * hidden[k] + g[k] * h[k];
      } else {
        finish_lstm(g, h, b_.c + i * r_.hidden);
      }
    }
  }

  // z and r of all sequences, and the recurrent part of the hidden gate.
  void prepare_hidden(S* gates, int64_t count) {
    const int64_t hidden = r_.hidden, width = 3 * hidden;
    for (int64_t i = 0; i < count; ++i) {
      S *const z = gates + i * width, *const r = z + hidden, *const more = b_.more + i * hidden;
      apply(0, z);
      apply(0, r);
      const T* const bias =
          n_.has_bias ? io_.input<T>(3) + direction_ * 6 * hidden + 5 * hidden : nullptr;
      for (int64_t k = 0; k < hidden; ++k) {
        if (n_.linear_before_reset) {
          more[k] = bias == nullptr ? S{} : static_cast<S>(bias[k]);
        } else {
          more[k] = r[k] * b_.h[i * hidden + k];
        }
      }
    }
    if (!n_.linear_before_reset) {
      recur(b_.more, count, 2, 3, gates + 2 * hidden, width);
      return;
    }
    recur(b_.h, count, 2, 3, b_.more, hidden);
    for (int64_t i = 0; i < count; ++i) {
      S *const r = gates + i * width + hidden, *const to = r + hidden;
      for (int64_t k = 0; k < hidden; ++k) to[k] += r[k] * b_.more[i * hidden + k];
    }
  }

  void finish_lstm(S* in, S* h, S* c) {
    const int64_t hidden = r_.hidden;
    S *const out = in + hidden, *const forget = out + hidden, *const cell = forget + hidden;
    const T* const peepholes =
        n_.has_peepholes ? io_.input<T>(7) + direction_ * 3 * hidden : nullptr;
    const auto peep = [&](int64_t gate, S* to) {
      if (peepholes == nullptr) return;
      for (int64_t k = 0; k < hidden; ++k)
        to[k] += static_cast<S>(peepholes[gate * hidden + k]) * c[k];
    };
    peep(0, in);
    peep(2, forget);
    apply(0, in);
    if (n_.couples) {
      for (int64_t k = 0; k < hidden; ++k) forget[k] = 1 - in[k];
    } else {
      apply(0, forget);
    }
    apply(1, cell);
    for (int64_t k = 0; k < hidden; ++k) c[k] = forget[k] * c[k] + in[k] * cell[k];
    peep(1, out);
    apply(0, out);
    std::copy_n(c, hidden, h);
    activate_all(activation(2), h);
    for (int64_t k = 0; k < hidden; ++k) h[k] *= out[k];
  }

  const Network& n_;
  const Recurrence& r_;
  const Operands& io_;
  Buffers<S> b_;
  int64_t direction_ = 0, first_ = 0;
  int64_t lengths_[kGroup] = {};
};

Status bind_network(const Binding& b, int gates, int activations) {
  Network n;
  LMN_RETURN_IF_ERROR(read_recurrence(b.node, gates, activations, &n.r));
  n.gates = gates;
  n.packed = b.node.prepared<PackedWeights>();
  n.activate = b.isa.floats.activate;
  n.has_bias = b.node.has(3);
  n.has_lengths = b.node.has(4);
  n.has_h = b.node.has(5);
  n.has_c = gates == 4 && b.node.has(6);
  n.has_peepholes = gates == 4 && b.node.has(7);
  n.linear_before_reset = gates == 3 && b.node.integer("linear_before_reset", 0) != 0;
  n.couples = gates == 4 && b.node.integer("input_forget", 0) != 0;
  n.outputs = b.node.outputs();
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = sizeof(Sum<T>) * static_cast<size_t>(n.rows_of_scratch() +
                                                                  std::max(n.r.inputs, n.r.hidden));
    b.kernel.set(
        [network = std::make_shared<const Network>(n)](const Operands& io, const Worker& worker) {
          Runner<T> runner(*network, io, worker);
          const int64_t batch = network->r.batch;
          const auto [begin, end] = ops::share_of(batch * network->r.directions, worker);
          for (int64_t at = begin; at < end;) {
            const int64_t first = at % batch, count = std::min({kGroup, batch - first, end - at});
            runner.run(at / batch, first, count);
            at += count;
          }
        });
    return {};
  });
}

Status prepare_network(const Preparation& p, int64_t gates) {
  if (!p.node.knows(1) || !p.node.knows(2)) return {};
  const Shape &w_shape = p.node.shape(1), &r_shape = p.node.shape(2);
  // Of other types or shapes nothing is packed; what is wrong with them inference says.
  const bool fits = p.node.dtype(1) == DType::kF32 && p.node.dtype(2) == DType::kF32 &&
                    w_shape.rank == 3 && r_shape.rank == 3 && w_shape[0] == r_shape[0] &&
                    w_shape[1] == r_shape[1] && r_shape[1] == gates * r_shape[2];
  if (!fits) return {};
  const float *const w = p.node.data<float>(1), *const r = p.node.data<float>(2);
  const int64_t inputs = w_shape[2], hidden = r_shape[2];
  auto packed = std::make_shared<PackedWeights>();
  for (int64_t i = 0; i < w_shape[0] * gates; ++i) {
    packed->input.emplace_back(p.isa, w + i * hidden * inputs, hidden, inputs);
    packed->recurrent.emplace_back(p.isa, r + i * hidden * hidden, hidden, hidden);
  }
  p.prepared = std::move(packed);
  return {};
}

}  // namespace

Status prepare_RNN(const Preparation& p) { return prepare_network(p, 1); }
Status prepare_GRU(const Preparation& p) { return prepare_network(p, 3); }
Status prepare_LSTM(const Preparation& p) { return prepare_network(p, 4); }

Status bind_RNN(const Binding& b) { return bind_network(b, 1, 1); }
Status bind_GRU(const Binding& b) { return bind_network(b, 3, 2); }
Status bind_LSTM(const Binding& b) { return bind_network(b, 4, 3); }

}  // namespace lmn::cpu
