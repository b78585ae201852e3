// SPDX-License-Identifier: Apache-2.0
//
// Tensors at the ABI (DLPack 1.0): making them around memory that somebody holds, and reading
// borrowed ones. A tensor that was handed out owns a share of its memory and nothing else, so its
// deleter may run on any thread, after every other handle is gone, and while an interpreter shuts
// down: it calls nobody back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "lmnative/dlpack.h"

namespace lmn::capi {

// Zeroed, 64-byte aligned; released with the last copy. OUT_OF_MEMORY names the size and `purpose`.
Result<std::shared_ptr<std::byte>> allocate_zeroed(size_t bytes, const char* purpose);

struct TensorSpec {
  DLDataType dtype{};
  std::span<const int64_t> shape;  // 1 to 8 sizes; compact row-major
  bool read_only = false;
};
// What the caller of lmn_tensor_create asks for, checked: INVALID_ARGUMENT names what is wrong.
// `spec` points to the caller's shape.
struct TensorArguments {
  TensorSpec spec;
  size_t bytes = 0;
};
Result<TensorArguments> check_tensor(int32_t dtype_code, int32_t dtype_bits, int32_t ndim,
                                     const int64_t* shape);
// A tensor over `data`, which `owner` keeps alive. The caller of the ABI gets it and calls its
// deleter.
DLManagedTensorVersioned* make_tensor(const TensorSpec& spec, void* data,
                                      std::shared_ptr<const void> owner);

// The values of a borrowed 1-D CPU tensor of int32 or int64, any stride. INVALID_ARGUMENT says what
// is wrong with it.
Result<std::vector<int32_t>> read_ids(const DLManagedTensorVersioned& tensor, const char* argument);

}  // namespace lmn::capi
