// SPDX-License-Identifier: Apache-2.0
//
// Kernel of com.microsoft.MatMulNBits: rows of weights are expanded, four at a time, and multiplied
// with all rows of the activations. Output columns are shared out.
#include "cpu/tensor/dots.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

struct Quantized {
  int64_t rows, k, n, bits, block, blocks;
  bool has_zeros, packed_zeros, has_groups, has_bias;
};

// Number `index` of a stream of `bits`-wide ones, the lowest bits of a byte first.
int64_t unpack(const uint8_t* from, int64_t index, int64_t bits) {
  const int64_t at = index * bits;
  return from[at / 8] >> (at % 8) & ((1 << bits) - 1);
}

// Row `row` of the weights.
template <typename T>
void expand(const Quantized& q, const Operands& io, int64_t row, float* to) {
  const uint8_t* const weights = io.input<uint8_t>(1) + row * q.blocks * (q.block * q.bits / 8);
  const T* const scales = io.input<T>(2) + row * q.blocks;
  const auto zero = [&](int64_t block) {
    if (!q.has_zeros) return static_cast<float>(1 << (q.bits - 1));
    if (!q.packed_zeros) return static_cast<float>(io.input<T>(3)[row * q.blocks + block]);
    const int64_t bytes = (q.blocks * q.bits + 7) / 8;
    return static_cast<float>(unpack(io.input<uint8_t>(3) + row * bytes, block, q.bits));
  };
  if (q.has_groups) {
    for (int64_t k = 0; k < q.k; ++k) {
      int64_t block = io.input<int32_t>(4)[k];
      if (block < 0 || block >= q.blocks) {
        io.fail("MatMulNBits: a group index is out of range");
        block = 0;
      }
      to[k] = (static_cast<float>(unpack(weights, k, q.bits)) - zero(block)) *
              static_cast<float>(scales[block]);
    }
    return;
  }
  for (int64_t block = 0; block < q.blocks; ++block) {
    const int64_t first = block * q.block, count = std::min(q.block, q.k - first);
    const float scale = static_cast<float>(scales[block]), offset = zero(block);
    float* const out = to + first;
    if (q.bits == 4) {
      const uint8_t* const from = weights + first / 2;
      int64_t i = 0;
      for (; i + 2 <= count; i += 2) {
        out[i] = (static_cast<float>(from[i / 2] & 15) - offset) * scale;
        out[i + 1] = (static_cast<float>(from[i / 2] >> 4) - offset) * scale;
      }
      if (i < count) out[i] = (static_cast<float>(from[i / 2] & 15) - offset) * scale;
    } else {
      for (int64_t i = 0; i < count; ++i)
        out[i] = (static_cast<float>(unpack(weights, first + i, q.bits)) - offset) * scale;
    }
  }
}

}  // namespace

Status bind_MatMulNBits(const Binding& b) {
  const ops::TensorNode& node = b.node;
  Quantized q;
  q.k = node.integer("K", 0);
  q.n = node.integer("N", 0);
  q.bits = node.integer("bits", 4);
  q.block = node.integer("block_size", 32);
  q.blocks = (q.k + q.block - 1) / q.block;
  q.rows = node.shape(0).elements() / q.k;
  q.has_zeros = node.has(3);
  q.packed_zeros = q.has_zeros && node.dtype(3) == DType::kU8;
  q.has_groups = node.has(4);
  q.has_bias = node.has(5);
  return with_float(node, node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    constexpr int64_t kColumns = 4;
    b.kernel.splits = true;
    b.kernel.scratch_bytes = sizeof(float) * static_cast<size_t>((kColumns + 1) * q.k);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      float* const weights = reinterpret_cast<float*>(worker.scratch);
      float* const x = weights + kColumns * q.k;
      const auto [begin, end] = ops::share_of(q.n, worker);
      for (int64_t column = begin; column < end; column += kColumns) {
        const int64_t count = std::min(kColumns, end - column);
        for (int64_t c = 0; c < count; ++c) expand<T>(q, io, column + c, weights + c * q.k);
        for (int64_t row = 0; row < q.rows; ++row) {
          const T* const from = io.input<T>(0) + row * q.k;
          const float* factors = x;
          if constexpr (std::is_same_v<T, float>) {
            factors = from;
          } else {
            for (int64_t k = 0; k < q.k; ++k) x[k] = static_cast<float>(from[k]);
          }
          float sums[kColumns] = {};
          DotLanes<float>::add(weights, q.k, count, factors, q.k, 1, q.k, sums, kColumns);
          T* const to = io.output<T>(0) + row * q.n + column;
          for (int64_t c = 0; c < count; ++c) {
            if (q.has_bias) sums[c] += static_cast<float>(io.input<T>(5)[column + c]);
            to[c] = static_cast<T>(sums[c]);
          }
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
