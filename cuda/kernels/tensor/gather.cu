// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/gather.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"

namespace lmn::cuda::tensor {

Status bind_gather(const Binding& b) {
  const ops::TensorNode& node = b.node;
  int64_t axis;
  LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), node.rank(0), &axis));
  if (node.dtype(0) == DType::kString) return unsupported_type(node, node.dtype(0));
  const Shape& x = node.shape(0);
  int64_t inner = info(node.dtype(0)).block_bytes;  // bytes, then units
  for (int d = static_cast<int>(axis) + 1; d < x.rank; ++d) inner *= x[d];
  int unit = 1;
  while (unit < 16 && inner % (2 * unit) == 0) unit *= 2;
  GatherParams params{};
  params.size = static_cast<uint32_t>(x[static_cast<int>(axis)]);
  params.count = static_cast<uint32_t>(node.shape(1).elements());
  params.inner = static_cast<uint32_t>(inner / unit);
  params.elements =
      static_cast<uint32_t>(b.outputs[0].shape.elements() * info(node.dtype(0)).block_bytes / unit);
  params.index_type = node.dtype(1);
  params.refusal = reinterpret_cast<uint64_t>("Gather: an index is out of range");
  b.kernel.set([params, unit](const ops::Operands& io, const ops::Worker& worker) {
    GatherParams p = params;
    p.x = io.input<std::byte>(0);
    p.indices = io.input<std::byte>(1);
    p.y = io.output<std::byte>(0);
    p.failure = reinterpret_cast<uint64_t*>(io.failure);
    const simt::LaunchShape shape{blocks(simt::div_up(p.elements, kGatherThreads)), 1, 1,
                                  kGatherThreads};
    ops::LaunchQueue& queue = *worker.queue;
    switch (unit) {
      case 1:
        return simt::launch<gather_units<uint8_t>>(queue, shape, p);
      case 2:
        return simt::launch<gather_units<uint16_t>>(queue, shape, p);
      case 4:
        return simt::launch<gather_units<uint32_t>>(queue, shape, p);
      case 8:
        return simt::launch<gather_units<uint64_t>>(queue, shape, p);
      default:
        return simt::launch<gather_units<simt::U32x4>>(queue, shape, p);
    }
  });
  return {};
}

}  // namespace lmn::cuda::tensor
