// SPDX-License-Identifier: Apache-2.0
//
// Stream over a cudaStream_t, and recordings over CUDA graphs.
#pragma once

#include <memory>

#include "core/device.h"
#include "cuda/core/cuda_context.h"
#include "cuda/core/cuda_error.h"

namespace lmn::cuda {

// `context` and `health` outlive the stream, as the device does. `overlaps`: a kernel may start
// while the one before it ends.
Result<std::unique_ptr<Stream>> create_cuda_stream(int ordinal, const Context& context,
                                                   Health& health, bool overlaps);

}  // namespace lmn::cuda
