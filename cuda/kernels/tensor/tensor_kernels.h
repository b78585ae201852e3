// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device's way of doing the operators of tensor_ops.def: bind_<e> chooses a kernel for a
// node and captures what it needs on the host; the kernel, when it is run, queues its launches on
// worker.queue and returns. One file per family. What is not listed in tensor_kernels.cc is
// UNSUPPORTED, and a program runs it on the CPU.
//
// Kernels of this folder keep to 32 bits where they count elements: tensors of 2^31 elements and
// more are UNSUPPORTED. They address operands by pointers that are aligned to 16 bytes. What only
// data can show to be wrong they note through Operands::failure, which is memory of the device
// here: the address of a text that lies on the host.
#pragma once

#include <span>

#include "core/status.h"
#include "ops/tensor_kernel.h"

namespace lmn::cuda::tensor {

struct Binding {
  const ops::TensorNode& node;
  std::span<const ops::TensorType> outputs;
  const ops::KernelTarget& target;
  ops::TensorKernel& kernel;  // to be filled
};

// elementwise.cu
Status bind_elementwise(const Binding& b);  // plain operators and chains
// copies.cu
Status bind_copy(const Binding& b);  // all of the bytes
Status bind_transpose(const Binding& b);
Status bind_slice(const Binding& b);
Status bind_expand(const Binding& b);
Status bind_tile(const Binding& b);
Status bind_concat(const Binding& b);
Status bind_split(const Binding& b);
// gather.cu
Status bind_gather(const Binding& b);
// reductions.cu
Status bind_reduction(const Binding& b);
Status bind_softmax(const Binding& b);
// norms.cu
Status bind_norm(const Binding& b);
Status bind_skip_norm(const Binding& b);
// products.cu
Status bind_matmul(const Binding& b);
Status bind_gemm(const Binding& b);
Status bind_fused_linear(const Binding& b);
// attention.cu
Status bind_attention(const Binding& b);

// Whether kernels compute an element of the type in float (values.cuh).
bool is_float(DType type);
// OK where every operand that the node has is of such a type, else unsupported_type().
Status check_floats(const ops::TensorNode& node);
// UNSUPPORTED: there is no kernel of this device for the type.
Status unsupported_type(const ops::TensorNode& node, DType type);

// UNSUPPORTED where a tensor of the node has more elements than kernels count.
Status check_sizes(const Binding& b);

}  // namespace lmn::cuda::tensor

namespace lmn::cuda {

ops::TensorKernels tensor_kernels();

}  // namespace lmn::cuda
