// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/signal.def: random numbers. Number i of a node is a hash of a key and i
// (SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), so
// it does not depend on how work is shared out. The key is the attribute seed, or, without one, of
// the operating system's entropy and the number of runs.
#include <sys/random.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t hash(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
// Number i of the stream of a key, in [0, 1), a multiple of 2^-53.
double uniform(uint64_t key, int64_t i) {
  const uint64_t bits = hash(key + (static_cast<uint64_t>(i) + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}
// Number i of a standard normal distribution (Box and Muller): two neighbours share two uniform
// numbers.
double normal(uint64_t key, int64_t i) {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(-2 * std::log1p(-uniform(key, i & ~int64_t{1})));
  const double angle = kTwoPi * uniform(key, i | 1);
  return radius * ((i & 1) == 0 ? std::cos(angle) : std::sin(angle));
}

// Gives every run its key. With a seed, all runs have the same, and workers may share a run.
class KeySource {
 public:
  explicit KeySource(const Binding& b) {
    const auto* seed = b.node.attributes().find_as<float>("seed");
    if (seed != nullptr && !std::isnan(*seed)) {
      key_ = hash(std::bit_cast<uint32_t>(*seed) + kGolden);
      b.kernel.splits = true;
      return;
    }
    uint64_t fresh = 0;
    if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != sizeof fresh) {
      fresh =
          hash(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) ^
          reinterpret_cast<uintptr_t>(&b);
    }
    key_ = fresh;
    runs_ = std::make_shared<std::atomic<uint64_t>>(0);
  }
  uint64_t next() const {
    if (runs_ == nullptr) return key_;
    return hash(key_ + kGolden * runs_->fetch_add(1, std::memory_order_relaxed));
  }

 private:
  uint64_t key_ = 0;
  std::shared_ptr<std::atomic<uint64_t>> runs_;  // null: with a seed
};

// Element i is number(key, i).
template <typename F>
Status bind_generator(const Binding& b, F number) {
  const KeySource keys(b);
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.cost = 20.0 * static_cast<double>(count);
  return with_float(b.node, b.outputs[0].dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const uint64_t key = keys.next();
      T* out = io.output<T>(0);
      const auto [begin, end] = ops::share_of(count, worker);
      for (int64_t i = begin; i < end; ++i) {
        const double value = number(key, i);
        if constexpr (std::is_same_v<T, double>) {
          out[i] = value;
        } else {
          out[i] = static_cast<T>(static_cast<float>(value));
        }
      }
    });
    return {};
  });
}

Status bind_normal(const Binding& b) {
  const double mean = b.node.number("mean", 0), scale = b.node.number("scale", 1);
  return bind_generator(b, [=](uint64_t key, int64_t i) { return mean + scale * normal(key, i); });
}
// Of 2^-11 as step, no type of an output rounds a number below `high` up to it: bfloat16 has 8 bits
// between 1/2 and 1, float16 11.
Status bind_uniform(const Binding& b) {
  const double low = b.node.number("low", 0), high = b.node.number("high", 1);
  const DType dtype = b.outputs[0].dtype;
  const double steps = dtype == DType::kF64   ? 0x1p53
                       : dtype == DType::kF32 ? 0x1p24
                       : dtype == DType::kF16 ? 0x1p11
                                              : 0x1p8;
  return bind_generator(b, [=](uint64_t key, int64_t i) {
    return low + (high - low) * (std::floor(uniform(key, i) * steps) / steps);
  });
}

}  // namespace

Status bind_RandomNormal(const Binding& b) { return bind_normal(b); }
Status bind_RandomNormalLike(const Binding& b) { return bind_normal(b); }
Status bind_RandomUniform(const Binding& b) { return bind_uniform(b); }
Status bind_RandomUniformLike(const Binding& b) { return bind_uniform(b); }

Status bind_Bernoulli(const Binding& b) {
  const KeySource keys(b);
  const int64_t count = b.outputs[0].shape.elements();
  const DType out_type = b.outputs[0].dtype;
  const auto bind_types = [&](auto in_tag, auto out_tag) -> Status {
    using T = typename decltype(in_tag)::type;
    using Out = typename decltype(out_tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const uint64_t key = keys.next();
      const auto [begin, end] = ops::share_of(count, worker);
      for (int64_t i = begin; i < end; ++i) {
        const auto p = static_cast<double>(io.input<T>(0)[i]);
        if (!(p >= 0 && p <= 1)) io.fail("Bernoulli: a probability is not between 0 and 1");
        io.output<Out>(0)[i] = Out(uniform(key, i) < p ? 1 : 0);
      }
    });
    return {};
  };
  return with_float(b.node, b.node.dtype(0), [&](auto in_tag) -> Status {
    if (out_type == DType::kBool) return bind_types(in_tag, TypeTag<uint8_t>{});
    return with_number(b.node, out_type, [&](auto out_tag) { return bind_types(in_tag, out_tag); });
  });
}

// Inputs are logarithms of weights. Scratch has the sums of the weights of one row.
Status bind_Multinomial(const Binding& b) {
  const KeySource keys(b);
  const int64_t rows = b.node.shape(0)[0], classes = b.node.shape(0)[1],
                samples = b.outputs[0].shape[1];
  const bool wide = b.outputs[0].dtype == DType::kI64;
  b.kernel.scratch_bytes = static_cast<size_t>(classes) * sizeof(double);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const uint64_t key = keys.next();
      auto* sums = reinterpret_cast<double*>(worker.scratch);
      const auto [begin, end] = ops::share_of(rows, worker);
      for (int64_t row = begin; row < end; ++row) {
        const T* x = io.input<T>(0) + row * classes;
        double most = -HUGE_VAL, sum = 0;
        for (int64_t c = 0; c < classes; ++c) most = std::max(most, static_cast<double>(x[c]));
        for (int64_t c = 0; c < classes; ++c) {
          sum += std::exp(static_cast<double>(x[c]) - most);
          sums[c] = sum;
        }
        if (!(sum > 0 && sum < HUGE_VAL)) {
          io.fail("Multinomial: the probabilities of a row are not finite");
          std::fill_n(sums, classes, 0.0);
        }
        for (int64_t s = 0; s < samples; ++s) {
          const int64_t at = row * samples + s;
          const double target = uniform(key, at) * sums[classes - 1];
          const int64_t chosen =
              std::min<int64_t>(std::upper_bound(sums, sums + classes, target) - sums, classes - 1);
          if (wide) {
            io.output<int64_t>(0)[at] = chosen;
          } else {
            io.output<int32_t>(0)[at] = static_cast<int32_t>(chosen);
          }
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
