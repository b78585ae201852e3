// SPDX-License-Identifier: Apache-2.0
//
// Element types and tensors of ONNX files as those of the library.
#pragma once

#include "core/status.h"
#include "core/tensor.h"
#include "formats/onnx/onnx.h"
#include "graph/graph.h"

namespace lmn::models {

// UNSUPPORTED names a type that there is no DType for.
Result<DType> dtype_of(int32_t onnx_type, std::string_view what);

// A view into the file where alignment and packing allow it, a copy otherwise.
Result<Tensor> to_tensor(const formats::OnnxFile& file, const formats::OnnxTensor& tensor);
Result<Tensor> to_tensor(const formats::OnnxFile& file, const formats::OnnxSparseTensor& tensor);

// A tensor of its own memory.
Tensor new_tensor(DType dtype, const Shape& shape);
template <typename T>
Tensor tensor_of(DType dtype, const Shape& shape, const std::vector<T>& values) {
  Tensor out = new_tensor(dtype, shape);
  std::copy(values.begin(), values.end(), out.as<T>());
  return out;
}

// Unknown dimensions become "?". UNSUPPORTED names what kind of value there is no type for.
Result<graph::ValueType> to_type(const formats::OnnxType& type, std::string_view name);

}  // namespace lmn::models
