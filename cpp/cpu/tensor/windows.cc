// SPDX-License-Identifier: Apache-2.0
//
// Kernels of MaxUnpool, LRN, DepthToSpace and SpaceToDepth.
#include <cmath>
#include <string>

#include "cpu/tensor/product.h"
#include "ops/infer/pools.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// [batch, channels, height * block, width * block] and [batch, channels * block * block, height,
// width]; deep_to_wide: from the second to the first.
Status bind_blocks(const Binding& b, bool deep_to_wide) {
  const Shape wide = deep_to_wide ? b.outputs[0].shape : b.node.shape(0);
  const int64_t block = b.node.integer("blocksize", 1);
  const bool channels_first = b.node.text("mode", "DCR") == "CRD";
  const int64_t channels = wide[1], height = wide[2] / block, width = wide[3] / block;
  const auto bind_as = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const T* const x = io.input<T>(0);
      T* const y = io.output<T>(0);
      // One row of the wide tensor at a time.
      const auto [begin, end] = ops::share_of(wide[0] * channels * wide[2], worker);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t h = row % wide[2], c = row / wide[2] % channels;
        const int64_t image = row / wide[2] / channels;
        for (int64_t j = 0; j < block; ++j) {
          const int64_t in_block = h % block * block + j;
          const int64_t deep =
              channels_first ? c * block * block + in_block : in_block * channels + c;
          const int64_t at =
              ((image * channels * block * block + deep) * height + h / block) * width;
          for (int64_t i = 0; i < width; ++i) {
            if (deep_to_wide) {
              y[row * wide[3] + i * block + j] = x[at + i];
            } else {
              y[at + i] = x[row * wide[3] + i * block + j];
            }
          }
        }
      }
    });
    return {};
  };
  if (b.node.dtype(0) == DType::kString) {
    LMN_RETURN_IF_ERROR(bind_as(TypeTag<std::string>{}));
    b.kernel.splits = false;
    return {};
  }
  return with_size(b.node, b.node.dtype(0), bind_as);
}

}  // namespace

Status bind_DepthToSpace(const Binding& b) { return bind_blocks(b, true); }
Status bind_SpaceToDepth(const Binding& b) { return bind_blocks(b, false); }

Status bind_MaxUnpool(const Binding& b) {
  Shape counted;
  LMN_RETURN_IF_ERROR(read_unpooled(b.node, &counted));
  const Shape out = b.outputs[0].shape;
  const int64_t count = b.node.shape(0).elements();
  return with_size(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker&) {
      const T* const x = io.input<T>(0);
      const int64_t* const indices = io.input<int64_t>(1);
      T* const y = io.output<T>(0);
      std::fill_n(y, out.elements(), T{});
      const int64_t limit = counted.elements();
      for (int64_t i = 0; i < count; ++i) {
        int64_t index = indices[i];
        if (index < 0 || index >= limit) {
          io.fail("MaxUnpool: an index is out of range");
          continue;
        }
        int64_t at = 0, stride = 1;
        for (int d = out.rank - 1; d >= 0; --d) {
          at += index % counted[d] * stride;
          index /= counted[d];
          stride *= out[d];
        }
        y[at] = x[i];
      }
    });
    return {};
  });
}

// Runs of positions of one image are shared out, all channels of them: the square sum of a window
// of channels is summed anew for each, in order.
Status bind_LRN(const Binding& b) {
  const Shape& x = b.node.shape(0);
  const int64_t channels = x[1], size = b.node.integer("size", 1);
  int64_t positions = 1;
  for (int i = 2; i < x.rank; ++i) positions *= x[i];
  const int64_t planes = x[0] * channels, before = (size - 1) / 2, after = size - 1 - before;
  const float alpha = b.node.number("alpha", 1e-4f), beta = b.node.number("beta", 0.75f);
  const float bias = b.node.number("bias", 1.0f);
  return with_float(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    constexpr int64_t kTile = 1024;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = kTile * sizeof(Sum<T>);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      Sum<T>* const sums = reinterpret_cast<Sum<T>*>(worker.scratch);
      const Sum<T> scale = static_cast<Sum<T>>(alpha) / static_cast<Sum<T>>(size);
      const auto [begin, end] = ops::share_of(planes, worker);
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t c = plane % channels;
        const T* const image = io.input<T>(0) + (plane - c) * positions;
        const int64_t low = std::max<int64_t>(0, c - before);
        const int64_t high = std::min(channels - 1, c + after);
        for (int64_t at = 0; at < positions; at += kTile) {
          const int64_t n = std::min(kTile, positions - at);
          std::fill_n(sums, n, Sum<T>{});
          for (int64_t k = low; k <= high; ++k) {
            const T* const from = image + k * positions + at;
            for (int64_t i = 0; i < n; ++i)
              sums[i] += static_cast<Sum<T>>(from[i]) * static_cast<Sum<T>>(from[i]);
          }
          const T* const from = image + c * positions + at;
          T* const to = io.output<T>(0) + plane * positions + at;
          for (int64_t i = 0; i < n; ++i) {
            const Sum<T> base = static_cast<Sum<T>>(bias) + scale * sums[i];
            // x^0.75 by two square roots, which is what networks have.
            const Sum<T> power = beta == 0.75f ? std::sqrt(base) * std::sqrt(std::sqrt(base))
                                               : std::pow(base, static_cast<Sum<T>>(beta));
            to[i] = static_cast<T>(static_cast<Sum<T>>(from[i]) / power);
          }
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
