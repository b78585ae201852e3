// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/session_value.h.
#include "capi/session_value.h"

#include <cinttypes>
#include <cstring>

#include "capi/options.h"

namespace lmn::capi {

using ops::RuntimeValue;
using ops::ValueKind;

namespace {

// Types that general tensors have: all but the blocks of language models.
bool is_plain(DType dtype) { return !is_block_quantized(dtype); }

// The type of a tensor that names none itself.
Result<DType> dtype_of(const DLDataType& type) {
  if (type.lanes == 1) {
    for (int i = 0; i < static_cast<int>(std::size(kDTypeInfo)); ++i) {
      const auto dtype = static_cast<DType>(i);
      if (!is_plain(dtype) || info(dtype).block_bytes * 8 != type.bits) continue;
      Result<DLDataType> storage = storage_type(dtype);
      if (storage.ok() && storage->code == type.code && storage->bits == type.bits) return dtype;
    }
  }
  return error(Code::kInvalidArgument,
               "DLPack type (code %d, bits %d, lanes %d) is not one that values have; see "
               "lmnative/session_value.h",
               type.code, type.bits, type.lanes);
}

struct Lent {
  DLManagedTensorVersioned* tensor;
  explicit Lent(DLManagedTensorVersioned* t) : tensor(t) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};

// Strided elements, one after the other.
void copy_strided(const DLTensor& from, const std::byte* data, int64_t size, int dim,
                  std::byte** to) {
  if (dim == from.ndim) {
    std::memcpy(*to, data, static_cast<size_t>(size));
    *to += size;
    return;
  }
  for (int64_t i = 0; i < from.shape[dim]; ++i)
    copy_strided(from, data + i * from.strides[dim] * size, size, dim + 1, to);
}

Result<Tensor> read_tensor(std::shared_ptr<Lent> lent, const char* dtype_name) {
  const DLManagedTensorVersioned& managed = *lent->tensor;
  if (managed.version.major != DLPACK_MAJOR_VERSION) {
    return error(Code::kUnsupported, "a DLPack %u.%u tensor; this version reads DLPack %d.x",
                 managed.version.major, managed.version.minor, DLPACK_MAJOR_VERSION);
  }
  const DLTensor& t = managed.dl_tensor;
  if (t.device.device_type != kDLCPU && t.device.device_type != kDLCUDAHost) {
    return error(Code::kInvalidArgument,
                 "a tensor on DLPack device type %d; copy it to the CPU (type 1)",
                 static_cast<int>(t.device.device_type));
  }
  if (t.ndim < 0 || t.ndim > kMaxRank || (t.ndim > 0 && t.shape == nullptr)) {
    return error(Code::kInvalidArgument, "a tensor of %d dimensions; it is 0 to %d", t.ndim,
                 kMaxRank);
  }
  Tensor out;
  LMN_ASSIGN_OR_RETURN(out.dtype, dtype_of(t.dtype));
  if (dtype_name != nullptr) {
    LMN_ASSIGN_OR_RETURN(const DType named, find_dtype(dtype_name));
    if (named == DType::kString || info(named).block_bytes != info(out.dtype).block_bytes) {
      return error(Code::kInvalidArgument, "elements of %s are not as wide as those of %s",
                   std::string(info(out.dtype).name).c_str(), dtype_name);
    }
    out.dtype = named;
  }
  const auto size = static_cast<int64_t>(info(out.dtype).block_bytes);
  int64_t bytes = size, compact = 1;
  bool empty = false, overflow = false, is_compact = true;
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] < 0)
      return error(Code::kInvalidArgument, "dimension %d is %" PRId64, i, t.shape[i]);
    empty |= t.shape[i] == 0;
    overflow |= __builtin_mul_overflow(bytes, t.shape[i], &bytes);
    out.shape[out.shape.rank++] = t.shape[i];
  }
  if (!empty && (overflow || t.data == nullptr))
    return error(Code::kInvalidArgument, "the tensor has no data, or more than 64 bits can count");
  for (int i = t.ndim - 1; i >= 0 && t.strides != nullptr; --i) {
    is_compact &= t.shape[i] == 1 || t.strides[i] == compact;
    compact *= t.shape[i];
  }
  std::byte* data = static_cast<std::byte*>(t.data);
  if (data != nullptr) data += t.byte_offset;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size) == 0;
  if ((is_compact && aligned) || empty) {
    static std::byte nothing[64];  // of empty tensors: an address, never read
    out.data = empty ? nothing : data;
    out.owner = std::move(lent);
    return out;
  }
  LMN_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> copy,
                       allocate_zeroed(static_cast<size_t>(bytes), "tensor"));
  std::byte* to = copy.get();
  if (t.strides == nullptr) {
    std::memcpy(to, data, static_cast<size_t>(bytes));
  } else {
    copy_strided(t, data, size, 0, &to);
  }
  out.data = copy.get();
  out.owner = std::move(copy);
  return out;
}

}  // namespace

Result<DLDataType> storage_type(DType dtype) {
  const auto type = [dtype](int code) {
    return DLDataType{static_cast<uint8_t>(code), static_cast<uint8_t>(info(dtype).block_bytes * 8),
                      1};
  };
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
      return type(kDLFloat);
    case DType::kBF16:
      return type(kDLBfloat);
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kI4:
    case DType::kI2:
      return type(kDLInt);
    case DType::kBool:
      return type(kDLBool);
    case DType::kString:
      return error(Code::kUnsupported,
                   "a tensor of strings has no DLPack form; see "
                   "lmn_session_value_string_get");
    default:
      return type(kDLUInt);
  }
}

Result<DType> find_dtype(const char* name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(std::size(kDTypeInfo)); ++i) {
    if (!is_plain(static_cast<DType>(i))) continue;
    if (kDTypeInfo[i].name == name) return static_cast<DType>(i);
    known += (known.empty() ? "" : ", ") + std::string(kDTypeInfo[i].name);
  }
  return error(Code::kInvalidArgument, "element type \"%s\" is not known; known: %s", name,
               known.c_str());
}

}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

namespace {
Status check_kind(const lmn_session_value* value, ops::ValueKind kind, const char* what) {
  if (value->object.kind == kind) return {};
  return error(Code::kInvalidArgument, "the value is not %s", what);
}
}  // namespace

extern "C" {

lmn_status lmn_session_value_create(DLManagedTensorVersioned* tensor, const char* dtype,
                                    lmn_session_value** value, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tensor);
    auto lent = std::make_shared<Lent>(tensor);
    LMN_REQUIRE_ONE(value);
    ops::RuntimeValue out;
    LMN_ASSIGN_OR_RETURN(out.tensor, read_tensor(std::move(lent), dtype));
    *value = new_value(std::move(out));
    return {};
  });
}

lmn_status lmn_session_value_strings_create(int32_t ndim, const int64_t* shape,
                                            const char* const* strings, const size_t* lengths,
                                            lmn_session_value** value, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(value);
    if (ndim < 0 || ndim > kMaxRank)
      return error(Code::kInvalidArgument, "ndim is %d; it is 0 to %d", ndim, kMaxRank);
    if (ndim > 0) LMN_REQUIRE_ONE(shape);
    ops::RuntimeValue out;
    out.tensor.dtype = DType::kString;
    int64_t count = 1;
    for (int i = 0; i < ndim; ++i) {
      if (shape[i] < 0 || __builtin_mul_overflow(count, shape[i], &count))
        return error(Code::kInvalidArgument, "shape[%d] is negative or too large", i);
      out.tensor.shape[out.tensor.shape.rank++] = shape[i];
    }
    if (count > 0) {
      LMN_REQUIRE_ONE(strings);
      LMN_REQUIRE_ONE(lengths);
    }
    auto owner = std::make_shared<std::vector<std::string>>(static_cast<size_t>(count) + 1);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      if (strings[i] == nullptr && lengths[i] > 0)
        return error(Code::kInvalidArgument, "strings[%zu] is NULL", i);
      if (lengths[i] > 0) (*owner)[i].assign(strings[i], lengths[i]);
    }
    out.tensor.data = reinterpret_cast<std::byte*>(owner->data());
    out.tensor.owner = std::move(owner);
    *value = new_value(std::move(out));
    return {};
  });
}

lmn_status lmn_session_value_items_create(int32_t kind, const char* dtype,
                                          const lmn_session_value* const* items, size_t count,
                                          lmn_session_value** value, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(dtype);
    LMN_REQUIRE_ONE(value);
    if (count > 0) LMN_REQUIRE_ONE(items);
    if (kind < LMN_SESSION_VALUE_SEQUENCE || kind > LMN_SESSION_VALUE_MAP)
      return error(Code::kInvalidArgument, "kind is %d; it is a LMN_SESSION_VALUE_* that has items",
                   kind);
    if ((kind == LMN_SESSION_VALUE_OPTIONAL && count > 1) ||
        (kind == LMN_SESSION_VALUE_MAP && count != 2))
      return error(Code::kInvalidArgument, "%zu items; an optional has one at most, a map two",
                   count);
    ops::RuntimeValue out;
    out.kind = static_cast<ops::ValueKind>(kind);
    LMN_ASSIGN_OR_RETURN(out.tensor.dtype, find_dtype(dtype));
    for (size_t i = 0; i < count; ++i) {
      if (items[i] == nullptr) return error(Code::kInvalidArgument, "items[%zu] is NULL", i);
      out.items.push_back(items[i]->object);
    }
    *value = new_value(std::move(out));
    return {};
  });
}

void lmn_session_value_destroy(lmn_session_value* value) {
  guard_destroy([&] { delete value; });
}

lmn_status lmn_session_value_info_get(const lmn_session_value* value, lmn_session_value_info* out,
                                      lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(value);
    LMN_RETURN_IF_ERROR(check_output(out, "info", "lmn_session_value_info"));
    const ops::RuntimeValue& object = value->object;
    lmn_session_value_info filled{};
    filled.kind = static_cast<int32_t>(object.kind);
    filled.dtype = info(object.tensor.dtype).name.data();
    filled.item_count = object.items.size();
    if (object.kind == ops::ValueKind::kTensor) {
      filled.ndim = object.tensor.shape.rank;
      for (int i = 0; i < filled.ndim; ++i) filled.shape[i] = object.tensor.shape[i];
    }
    write_output(filled, out);
    return {};
  });
}

lmn_status lmn_session_value_tensor_get(const lmn_session_value* value,
                                        DLManagedTensorVersioned** tensor, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(value);
    LMN_REQUIRE_ONE(tensor);
    LMN_RETURN_IF_ERROR(check_kind(value, ops::ValueKind::kTensor, "a tensor"));
    const Tensor& object = value->object.tensor;
    TensorSpec spec;
    LMN_ASSIGN_OR_RETURN(spec.dtype, storage_type(object.dtype));
    spec.shape = {object.shape.dims.data(), static_cast<size_t>(object.shape.rank)};
    *tensor = make_tensor(spec, object.data, object.owner);
    return {};
  });
}

lmn_status lmn_session_value_string_get(const lmn_session_value* value, uint64_t index,
                                        const char** text, size_t* length, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(value);
    LMN_REQUIRE_ONE(text);
    LMN_REQUIRE_ONE(length);
    LMN_RETURN_IF_ERROR(check_kind(value, ops::ValueKind::kTensor, "a tensor"));
    const Tensor& object = value->object.tensor;
    if (object.dtype != DType::kString)
      return error(Code::kInvalidArgument, "the value is a tensor of %s, not of strings",
                   std::string(info(object.dtype).name).c_str());
    const auto count = static_cast<uint64_t>(object.shape.elements());
    if (index >= count)
      return error(Code::kNotFound, "string %" PRIu64 " of %" PRIu64, index, count);
    const std::string& string = object.as<std::string>()[index];
    *text = string.data();
    *length = string.size();
    return {};
  });
}

lmn_status lmn_session_value_item_get(const lmn_session_value* value, uint64_t index,
                                      lmn_session_value** item, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(value);
    LMN_REQUIRE_ONE(item);
    const size_t count = value->object.items.size();
    if (index >= count) return error(Code::kNotFound, "item %" PRIu64 " of %zu", index, count);
    *item = new_value(value->object.items[index]);
    return {};
  });
}

}  // extern "C"
