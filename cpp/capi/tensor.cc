// SPDX-License-Identifier: Apache-2.0
#include "capi/tensor.h"

#include <cstring>
#include <limits>
#include <new>

#include "capi/guard.h"
#include "lmnative/tensor.h"
#include "memory/os_block.h"

namespace lmn::capi {
namespace {

constexpr int kMaxDims = 8;
constexpr size_t kAlignment = 64;
// From here on memory comes from the system page-wise: zeroed without being touched, and given back
// at once. Below it a mapping each would run into the system's limit on their number.
constexpr size_t kBlockBytes = 256 * 1024;

struct OwnedTensor {
  DLManagedTensorVersioned managed{};
  int64_t shape[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};
  std::shared_ptr<const void> owner;
};

void delete_tensor(DLManagedTensorVersioned* self) {
  const NoCancellation whole_call;  // the consumer calls this, past every guard
  if (self != nullptr) delete static_cast<OwnedTensor*>(self->manager_ctx);
}

bool is_plain(int32_t code, int32_t bits) {
  switch (code) {
    case kDLInt:
    case kDLUInt:
      return bits == 8 || bits == 16 || bits == 32 || bits == 64;
    case kDLFloat:
      return bits == 16 || bits == 32 || bits == 64;
    case kDLBfloat:
      return bits == 16;
    case kDLBool:
      return bits == 8;
    default:
      return false;
  }
}

Result<size_t> tensor_bytes(int32_t code, int32_t bits, std::span<const int64_t> shape) {
  if (!is_plain(code, bits)) {
    return error(Code::kInvalidArgument,
                 "dtype (code %d, bits %d) is not one of int and uint 8 to 64, float 16 to 64, "
                 "bfloat 16, bool 8",
                 code, bits);
  }
  size_t bytes = static_cast<size_t>(bits / 8);
  bool empty = false, overflow = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      return error(Code::kInvalidArgument, "shape[%zu] is %lld; sizes are 0 or more", i,
                   static_cast<long long>(shape[i]));
    }
    empty |= shape[i] == 0;
    overflow |= __builtin_mul_overflow(bytes, static_cast<size_t>(shape[i]), &bytes);
  }
  if (empty) return size_t{0};
  if (overflow || bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max())) {
    return error(Code::kInvalidArgument, "the shape has more bytes than 64 bits can count");
  }
  return bytes;
}

}  // namespace

Result<std::shared_ptr<std::byte>> allocate_zeroed(size_t bytes, const char* purpose) {
  if (bytes >= kBlockBytes) {
    LMN_ASSIGN_OR_RETURN(memory::OsBlock block, memory::OsBlock::create(bytes, purpose));
    auto shared = std::make_shared<memory::OsBlock>(std::move(block));
    return std::shared_ptr<std::byte>(shared, shared->data());
  }
  const size_t size = bytes == 0 ? kAlignment : bytes;
  auto* data = static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment}));
  std::memset(data, 0, size);
  return std::shared_ptr<std::byte>(
      data, [](std::byte* p) { ::operator delete (p, std::align_val_t{kAlignment}); });
}

Result<TensorArguments> check_tensor(int32_t dtype_code, int32_t dtype_bits, int32_t ndim,
                                     const int64_t* shape) {
  if (ndim < 1 || ndim > kMaxDims) {
    return error(Code::kInvalidArgument, "ndim is %d; it is 1 to %d", ndim, kMaxDims);
  }
  const std::span<const int64_t> sizes(shape, static_cast<size_t>(ndim));
  TensorArguments out;
  LMN_ASSIGN_OR_RETURN(out.bytes, tensor_bytes(dtype_code, dtype_bits, sizes));
  out.spec = {{static_cast<uint8_t>(dtype_code), static_cast<uint8_t>(dtype_bits), 1}, sizes};
  return out;
}

DLManagedTensorVersioned* make_tensor(const TensorSpec& spec, void* data,
                                      std::shared_ptr<const void> owner) {
  auto tensor = std::make_unique<OwnedTensor>();
  const int ndim = static_cast<int>(spec.shape.size());
  int64_t stride = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    const int64_t size = spec.shape[static_cast<size_t>(i)];
    tensor->shape[i] = size;
    tensor->strides[i] = stride;
    if (size > 1) stride *= size;
  }
  tensor->owner = std::move(owner);
  DLManagedTensorVersioned& managed = tensor->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.flags = spec.read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  managed.deleter = delete_tensor;
  managed.manager_ctx = tensor.get();
  managed.dl_tensor.data = data;
  managed.dl_tensor.device = {kDLCPU, 0};
  managed.dl_tensor.ndim = ndim;
  managed.dl_tensor.dtype = spec.dtype;
  managed.dl_tensor.shape = tensor->shape;
  managed.dl_tensor.strides = tensor->strides;
  return &tensor.release()->managed;
}

Result<std::vector<int32_t>> read_ids(const DLManagedTensorVersioned& managed,
                                      const char* argument) {
  if (managed.version.major != DLPACK_MAJOR_VERSION) {
    return error(Code::kUnsupported,
                 "argument '%s' is a DLPack %u.%u tensor; this version reads DLPack %d.x", argument,
                 managed.version.major, managed.version.minor, DLPACK_MAJOR_VERSION);
  }
  const DLTensor& tensor = managed.dl_tensor;
  if (tensor.device.device_type != kDLCPU && tensor.device.device_type != kDLCUDAHost) {
    return error(Code::kInvalidArgument,
                 "argument '%s' is on DLPack device type %d; copy it to the CPU (type 1)", argument,
                 static_cast<int>(tensor.device.device_type));
  }
  const bool is_int = tensor.dtype.code == kDLInt && tensor.dtype.lanes == 1;
  if (!is_int || (tensor.dtype.bits != 32 && tensor.dtype.bits != 64)) {
    return error(Code::kInvalidArgument,
                 "argument '%s' has dtype (code %d, bits %d, lanes %d); ids are int32 or int64",
                 argument, tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
  }
  if (tensor.ndim != 1 || tensor.shape == nullptr) {
    return error(Code::kInvalidArgument, "argument '%s' has %d dimensions; it needs 1", argument,
                 tensor.ndim);
  }
  const int64_t count = tensor.shape[0];
  if (count < 0 || count > std::numeric_limits<int32_t>::max() ||
      (count > 0 && tensor.data == nullptr)) {
    return error(Code::kInvalidArgument, "argument '%s' has %lld ids at %p", argument,
                 static_cast<long long>(count), tensor.data);
  }
  const int64_t stride = tensor.strides == nullptr ? 1 : tensor.strides[0];
  const int64_t step = count > 1 ? stride * (tensor.dtype.bits / 8) : 0;
  const char* at = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t id;
    if (i > 0) at += step;
    if (tensor.dtype.bits == 64) {
      std::memcpy(&id, at, sizeof id);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, at, sizeof narrow);
      id = narrow;
    }
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return error(Code::kInvalidArgument, "token id %lld at index %lld of '%s' is out of range",
                   static_cast<long long>(id), static_cast<long long>(i), argument);
    }
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(id);
  }
  return ids;
}

}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_tensor_create(int32_t dtype_code, int32_t dtype_bits, int32_t ndim,
                             const int64_t* shape, DLManagedTensorVersioned** tensor,
                             lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(shape);
    LMN_REQUIRE_ONE(tensor);
    LMN_ASSIGN_OR_RETURN(const TensorArguments given,
                         check_tensor(dtype_code, dtype_bits, ndim, shape));
    LMN_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> memory, allocate_zeroed(given.bytes, "tensor"));
    std::byte* data = memory.get();
    *tensor = make_tensor(given.spec, data, std::move(memory));
    return {};
  });
}

void lmn_tensor_destroy(DLManagedTensorVersioned* tensor) {
  guard_destroy([&] {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  });
}

}  // extern "C"
