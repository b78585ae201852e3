// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/shapes.def. Operators that keep the bytes and change the shape are copies
// here; plans turn them into another view of the same memory where they can.
#include <cstring>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

Status bind_copy(const Binding& b) {
  const DType dtype = b.outputs[0].dtype;
  if (dtype == DType::kString) {
    const int64_t count = b.outputs[0].shape.elements();
    b.kernel.set([count](const Operands& io, const Worker&) {
      std::copy_n(io.input<std::string>(0), count, io.output<std::string>(0));
    });
    return {};
  }
  const int64_t bytes = b.outputs[0].shape.elements() * info(dtype).block_bytes;
  b.kernel.splits = true;
  b.kernel.set([bytes](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(bytes, worker);
    std::memcpy(io.output<std::byte>(0) + begin, io.input<std::byte>(0) + begin,
                static_cast<size_t>(end - begin));
  });
  return {};
}

}  // namespace

Status bind_Identity(const Binding& b) { return bind_copy(b); }
Status bind_Reshape(const Binding& b) { return bind_copy(b); }

Status bind_Shape(const Binding& b) {
  const Shape x = b.node.shape(0);
  const int64_t count = b.outputs[0].shape[0];
  int64_t begin = b.node.integer("start", 0);
  begin = std::clamp<int64_t>(begin < 0 ? begin + x.rank : begin, 0, x.rank);
  b.kernel.set([x, begin, count](const Operands& io, const Worker&) {
    std::copy_n(x.dims.data() + begin, count, io.output<int64_t>(0));
  });
  return {};
}

}  // namespace lmn::cpu
