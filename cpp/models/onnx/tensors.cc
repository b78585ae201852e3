// SPDX-License-Identifier: Apache-2.0
#include "models/onnx/tensors.h"

#include <cinttypes>
#include <cstring>

namespace lmn::models {

using formats::OnnxDataType;
using formats::OnnxType;

Result<DType> dtype_of(int32_t onnx_type, std::string_view what) {
  switch (onnx_type) {
    case OnnxDataType::FLOAT:
      return DType::kF32;
    case OnnxDataType::UINT8:
      return DType::kU8;
    case OnnxDataType::INT8:
      return DType::kI8;
    case OnnxDataType::UINT16:
      return DType::kU16;
    case OnnxDataType::INT16:
      return DType::kI16;
    case OnnxDataType::INT32:
      return DType::kI32;
    case OnnxDataType::INT64:
      return DType::kI64;
    case OnnxDataType::STRING:
      return DType::kString;
    case OnnxDataType::BOOL:
      return DType::kBool;
    case OnnxDataType::FLOAT16:
      return DType::kF16;
    case OnnxDataType::DOUBLE:
      return DType::kF64;
    case OnnxDataType::UINT32:
      return DType::kU32;
    case OnnxDataType::UINT64:
      return DType::kU64;
    case OnnxDataType::BFLOAT16:
      return DType::kBF16;
    case OnnxDataType::FLOAT8E4M3FN:
      return DType::kF8E4M3FN;
    case OnnxDataType::FLOAT8E4M3FNUZ:
      return DType::kF8E4M3FNUZ;
    case OnnxDataType::FLOAT8E5M2:
      return DType::kF8E5M2;
    case OnnxDataType::FLOAT8E5M2FNUZ:
      return DType::kF8E5M2FNUZ;
    case OnnxDataType::UINT4:
      return DType::kU4;
    case OnnxDataType::INT4:
      return DType::kI4;
    case OnnxDataType::FLOAT4E2M1:
      return DType::kF4E2M1;
    case OnnxDataType::FLOAT8E8M0:
      return DType::kF8E8M0;
    case OnnxDataType::UINT2:
      return DType::kU2;
    case OnnxDataType::INT2:
      return DType::kI2;
    default: {
      const formats::OnnxDataType* type = formats::find_onnx_data_type(onnx_type);
      return error(Code::kUnsupported, "%s has elements of type %s (%d), which is not supported",
                   std::string(what).c_str(),
                   type == nullptr ? "unknown" : std::string(type->name).c_str(), onnx_type);
    }
  }
}

Tensor new_tensor(DType dtype, const Shape& shape) {
  Tensor out;
  out.dtype = dtype;
  out.shape = shape;
  const auto count = static_cast<size_t>(shape.elements());
  if (dtype == DType::kString) {
    auto strings = std::make_shared<std::vector<std::string>>(count + 1);
    out.data = reinterpret_cast<std::byte*>(strings->data());
    out.owner = std::move(strings);
    return out;
  }
  constexpr size_t kAlignment = 64;
  const size_t bytes = count * info(dtype).block_bytes + kAlignment;
  auto memory = std::make_shared<std::vector<std::byte>>(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory->data());
  out.data = memory->data() + (kAlignment - address % kAlignment) % kAlignment;
  out.owner = std::move(memory);
  return out;
}

namespace {

Result<Shape> to_shape(std::span<const int64_t> dims, std::string_view name) {
  if (dims.size() > kMaxRank) {
    return error(Code::kUnsupported, "tensor '%s' has rank %zu; at most %d is supported",
                 std::string(name).c_str(), dims.size(), kMaxRank);
  }
  Shape shape;
  for (int64_t size : dims) shape[shape.rank++] = size;
  return shape;
}

// Elements of 2 or 4 bits to a byte each, sign-extended where the type is signed.
void unpack(DType dtype, int bits, const std::byte* from, int64_t count, std::byte* to) {
  const int per_byte = 8 / bits;
  const bool is_signed = dtype == DType::kI4 || dtype == DType::kI2;
  const unsigned mask = (1u << bits) - 1, sign = 1u << (bits - 1);
  for (int64_t i = 0; i < count; ++i) {
    unsigned value = static_cast<unsigned>(from[i / per_byte]) >> (i % per_byte * bits) & mask;
    if (is_signed && (value & sign) != 0) value |= ~mask;
    to[i] = static_cast<std::byte>(value);
  }
}

}  // namespace

Result<Tensor> to_tensor(const formats::OnnxFile& file, const formats::OnnxTensor& tensor) {
  LMN_ASSIGN_OR_RETURN(const formats::OnnxTensorBytes data, formats::tensor_bytes(file, tensor));
  const std::string what = "tensor '" + std::string(tensor.name) + "'";
  LMN_ASSIGN_OR_RETURN(const DType dtype, dtype_of(data.data_type, what));
  LMN_ASSIGN_OR_RETURN(const Shape shape, to_shape(data.dims, tensor.name));
  if (dtype == DType::kString) {
    Tensor out = new_tensor(dtype, shape);
    for (size_t i = 0; i < data.strings.size(); ++i) out.as<std::string>()[i] = data.strings[i];
    return out;
  }
  const int bits = static_cast<int>(formats::kOnnxDataTypes[data.data_type].bits);
  if (bits < 8) {
    Tensor out = new_tensor(dtype, shape);
    unpack(dtype, bits, data.bytes.data(), shape.elements(), out.data);
    return out;
  }
  const bool aligned =
      reinterpret_cast<uintptr_t>(data.bytes.data()) % info(dtype).block_bytes == 0;
  if (!aligned || data.bytes.empty()) {
    Tensor out = new_tensor(dtype, shape);
    if (!data.bytes.empty()) std::memcpy(out.data, data.bytes.data(), data.bytes.size());
    return out;
  }
  Tensor out;
  out.dtype = dtype;
  out.shape = shape;
  out.data = const_cast<std::byte*>(data.bytes.data());  // constants are never written
  out.owner = std::const_pointer_cast<void>(file.owner());
  return out;
}

Result<Tensor> to_tensor(const formats::OnnxFile& file, const formats::OnnxSparseTensor& sparse) {
  LMN_ASSIGN_OR_RETURN(const Tensor values, to_tensor(file, sparse.values));
  LMN_ASSIGN_OR_RETURN(const Tensor indices, to_tensor(file, sparse.indices));
  LMN_ASSIGN_OR_RETURN(const Shape shape, to_shape(sparse.dims, sparse.values.name));
  const auto fail = [&](const char* why) {
    return error(Code::kCorrupt, "sparse tensor '%s': %s", std::string(sparse.values.name).c_str(),
                 why);
  };
  constexpr int64_t kMaxElements = int64_t{1}
                                   << 32;  // what the values need is in the file; this is not
  int64_t elements = 1;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(elements, shape[i], &elements) ||
        elements > kMaxElements) {
      return fail("its dimensions are negative or too large");
    }
  }
  const int64_t count = values.shape.elements();
  const bool linear = indices.shape.rank == 1;
  if (values.dtype == DType::kString || indices.dtype != DType::kI64 ||
      indices.shape.elements() != count * (linear ? 1 : shape.rank)) {
    return fail("its indices do not match its values");
  }
  Tensor out = new_tensor(values.dtype, shape);
  const auto size = static_cast<int64_t>(info(out.dtype).block_bytes);
  std::memset(out.data, 0, static_cast<size_t>(elements * size));
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    if (linear) {
      at = indices.as<int64_t>()[i];
    } else {
      for (int d = 0; d < shape.rank; ++d) {
        const int64_t index = indices.as<int64_t>()[i * shape.rank + d];
        if (index < 0 || index >= shape[d]) return fail("an index is out of range");
        at = at * shape[d] + index;
      }
    }
    if (at < 0 || at >= elements) return fail("an index is out of range");
    std::memcpy(out.data + at * size, values.data + i * size, static_cast<size_t>(size));
  }
  return out;
}

Result<graph::ValueType> to_type(const OnnxType& type, std::string_view name) {
  const std::string what = "value '" + std::string(name) + "'";
  graph::ValueType out;
  const OnnxType* inner = &type;
  switch (type.kind) {
    case OnnxType::Kind::kTensor:
    case OnnxType::Kind::kSparseTensor:
      break;
    case OnnxType::Kind::kSequence:
      out.kind = graph::Kind::kSequence;
      break;
    case OnnxType::Kind::kOptional:
      out.kind = graph::Kind::kOptional;
      break;
    case OnnxType::Kind::kMap:
      out.kind = graph::Kind::kMap;
      break;
    default:
      return error(Code::kUnsupported, "%s is of a type that is not supported", what.c_str());
  }
  if (!type.element.empty() && out.kind != graph::Kind::kMap) {
    const OnnxType::Kind item = type.element[0].kind;
    out.item = item == OnnxType::Kind::kSequence ? graph::Kind::kSequence
               : item == OnnxType::Kind::kMap    ? graph::Kind::kMap
                                                 : graph::Kind::kTensor;
  }
  while (!inner->element.empty() && inner->kind != OnnxType::Kind::kTensor)
    inner = &inner->element[0];
  LMN_ASSIGN_OR_RETURN(out.dtype, dtype_of(inner->elem_type, what));
  if (out.kind != graph::Kind::kTensor) return out;
  out.ranked = type.has_shape;
  if (type.shape.size() > kMaxRank) {
    return error(Code::kUnsupported, "%s has rank %zu; at most %d is supported", what.c_str(),
                 type.shape.size(), kMaxRank);
  }
  for (const formats::OnnxDim& dim : type.shape) {
    if (dim.value.has_value()) {
      out.dims.emplace_back(*dim.value);
    } else {
      out.dims.emplace_back(dim.param.empty() ? std::string("?") : std::string(dim.param));
    }
  }
  return out;
}

}  // namespace lmn::models
