// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/products.def.
#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// The type in which products of T are summed.
template <typename T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<Half> {
  using type = float;
};
template <>
struct SumOf<BFloat> {
  using type = float;
};

}  // namespace

// Rows of all matrices of the batch are shared out; every output takes its products in the order of
// the inner dimension.
Status bind_MatMul(const Binding& b) {
  Shape x = b.node.shape(0), w = b.node.shape(1), out = b.outputs[0].shape;
  if (x.rank == 1) {
    x = Shape{1, x[0]};
    out.rank += 1;
    for (int i = out.rank - 1; i > std::max(0, out.rank - 2); --i) out[i] = out[i - 1];
    out[w.rank == 1 ? out.rank - 1 : out.rank - 2] = 1;
  }
  if (w.rank == 1) {
    w = Shape{w[0], 1};
    out[out.rank++] = 1;
  }
  const int64_t rows = x[x.rank - 2], inner = x.last(), columns = w.last();
  Shape batch = out, batch_x = x, batch_w = w;
  batch.rank = std::max(0, out.rank - 2);
  batch_x.rank = x.rank - 2;
  batch_w.rank = w.rank - 2;
  const auto walk = make_walk<2>(batch, {&batch_x, &batch_w});
  return with_number(b.node, b.node.dtype(0), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using Sum = typename SumOf<T>::type;
    b.kernel.splits = true;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const int64_t matrices = walk.rows() * walk.inner();
      const auto [begin, end] = ops::share_of(matrices * rows, worker);
      for (int64_t at = begin; at < end; ++at) {
        const int64_t matrix = at / rows, row = at % rows;
        const auto offset = walk.offsets(matrix / walk.inner());
        const int64_t in_run = matrix % walk.inner();
        const T* xs = io.input<T>(0) + (offset[0] + in_run * walk.inner_stride(0)) * rows * inner +
                      row * inner;
        const T* ws =
            io.input<T>(1) + (offset[1] + in_run * walk.inner_stride(1)) * inner * columns;
        T* to = io.output<T>(0) + at * columns;
        for (int64_t c = 0; c < columns; ++c) {
          Sum sum{};
          for (int64_t k = 0; k < inner; ++k)
            sum += static_cast<Sum>(xs[k]) * static_cast<Sum>(ws[k * columns + c]);
          to[c] = static_cast<T>(sum);
        }
      }
    });
    return {};
  });
}

}  // namespace lmn::cpu
