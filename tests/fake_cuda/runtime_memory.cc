// SPDX-License-Identifier: Apache-2.0
//
// Memory and copies of the runtime of tests.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "guarded_heap.h"
#include "runtime_state.h"

namespace fake_cuda {
namespace {

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  uint64_t serial = 0;
  cudaMemPool_t pool = nullptr;  // null: page-locked memory of the host
  const FakeStream* by = nullptr;
  bool ready = false;  // for other streams
  bool freed = false;  // by a call; the stream has not got there yet
};
using Allocations = std::map<std::byte*, Allocation>;

Allocations& allocations() {
  static auto* const instance = new Allocations;
  return *instance;
}
uint64_t serials = 0;

// What has all of [at, at + bytes); null: none.
Allocation* find(const void* at, size_t bytes) {
  auto* p = static_cast<std::byte*>(const_cast<void*>(at));
  auto found = allocations().upper_bound(p);
  if (found == allocations().begin()) return nullptr;
  --found;
  const bool inside = p + bytes <= found->first + found->second.bytes;
  return inside ? &found->second : nullptr;
}
void drop(std::byte* data) {
  allocations().erase(data);
  simt_tests::guarded_free(data);
}

struct Side {
  std::byte* at = nullptr;
  size_t stride = 0;
  uint64_t serial = 0;  // 0: memory of the host that is not page-locked
};

// A copy, or a clearing where there is nothing to copy from.
struct Copy {
  const char* function;
  Side to, from;
  size_t row_bytes, rows;
  int value;
  FakeStream* stream;
  std::vector<std::byte> staged;

  size_t span(const Side& side) const { return side.stride * (rows - 1) + row_bytes; }

  // What the kind of the copy says of a side is so.
  bool check(Side& side, bool on_device) {
    const Allocation* a = find(side.at, span(side));
    if (a != nullptr && !a->freed) side.serial = a->serial;
    if (on_device) {
      return side.serial != 0 && a->pool != nullptr && a->device == stream->context->device;
    }
    return a == nullptr || (a->pool == nullptr && !a->freed);
  }
  // Whether it is there when the device gets to it.
  bool is_there(const Side& side) const {
    if (side.serial == 0) return true;
    const Allocation* a = find(side.at, span(side));
    if (a == nullptr || a->serial != side.serial) {
      note(std::string(function) + ": memory was freed before the copy was done");
      return false;
    }
    if (a->pool == nullptr || a->ready || a->by == stream) return true;
    note(std::string(function) + ": the stream of the allocation was not waited for");
    return false;
  }
  // What the host has now.
  void stage() {
    const Allocation* a = find(from.at, span(from));
    if (from.serial != 0 && (a == nullptr || a->serial != from.serial)) return;  // freed
    for (size_t i = 0; i < rows; ++i) {
      const std::byte* row = from.at + i * from.stride;
      staged.insert(staged.end(), row, row + row_bytes);
    }
  }
  void run() const {
    if (!is_there(to) || (from.at != nullptr && !is_there(from)))
      return end_context(stream->context, cudaErrorIllegalAddress, "an illegal address");
    bool changed = false;
    for (size_t i = 0; i < rows; ++i) {
      std::byte* row = to.at + i * to.stride;
      if (from.at == nullptr) {
        std::memset(row, value, row_bytes);
        continue;
      }
      const std::byte* source = from.at + i * from.stride;
      if (!staged.empty()) {
        const std::byte* early = staged.data() + i * row_bytes;
        changed = changed || std::memcmp(source, early, row_bytes) != 0;
        if (from.serial == 0) source = early;
      }
      std::memmove(row, source, row_bytes);
    }
    if (changed) note(std::string(function) + ": the host changed what a queued copy is of");
  }
};

cudaError_t queue(Copy copy, bool from_device, bool to_device) {
  const cudaError_t code = begin(copy.function, {copy.stream});
  if (code != cudaSuccess) return code;
  if (!copy.check(copy.to, to_device) ||
      (copy.from.at != nullptr && !copy.check(copy.from, from_device))) {
    note(std::string(copy.function) + ": memory that is not there, or of the other kind");
    return remember(cudaErrorInvalidValue);
  }
  const auto bytes = static_cast<int64_t>(copy.row_bytes * copy.rows);
  int64_t Counters::*counted = from_device && !to_device   ? &Counters::bytes_to_host
                               : to_device && !from_device ? &Counters::bytes_to_device
                                                           : nullptr;
  if (copy.from.at == nullptr) counted = nullptr;
  FakeStream* const stream = copy.stream;
  return stream->push_node([copy = std::move(copy), bytes, counted, from_device]() -> Work {
    Copy now = copy;
    if (now.from.at != nullptr && !from_device) now.stage();
    return [now = std::move(now), bytes, counted] {
      now.run();
      if (counted != nullptr) device_of(now.stream->context).counters.*counted += bytes;
    };
  });
}

}  // namespace

int64_t pool_bytes(int device) {
  const Guard guard;
  int64_t sum = 0;
  for (const auto& [data, a] : allocations())
    sum += a.device == device && a.pool != nullptr && !a.freed ? static_cast<int64_t>(a.bytes) : 0;
  return sum;
}
int64_t pinned_bytes(int device) {
  const Guard guard;
  int64_t sum = 0;
  for (const auto& [data, a] : allocations())
    sum += a.device == device && a.pool == nullptr ? static_cast<int64_t>(a.bytes) : 0;
  return sum;
}
void forget_memory(int device) {
  for (auto it = allocations().begin(); it != allocations().end();) {
    const auto next = std::next(it);
    if (it->second.device == device) drop(it->first);
    it = next;
  }
}
std::vector<std::string> leaks(int device) {
  std::vector<std::string> found;
  for (const auto& [data, a] : allocations()) {
    if (a.device != device || a.freed) continue;
    found.push_back(std::to_string(a.bytes) + " bytes of " +
                    (a.pool == nullptr ? "page-locked" : "the device's") + " memory are left");
  }
  return found;
}

}  // namespace fake_cuda

using namespace fake_cuda;

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  const Guard guard;
  const cudaError_t code = begin_unsafe(__func__);
  if (code != cudaSuccess) return code;
  own(*pool = new CUmemPoolHandle_st);
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const Guard guard;
  const cudaError_t code = destroy(__func__, pool);
  if (pool == nullptr) return code;
  if (pool->used != 0) note("a pool is destroyed with memory in use");
  pool->context->reserved -= std::exchange(pool->reserved, 0);
  return code;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
  const Guard guard;
  return begin(__func__, {pool});
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Guard guard;
  const cudaError_t code = begin(__func__, {pool});
  if (code != cudaSuccess) return code;
  const int64_t bytes = attribute == cudaMemPoolAttrUsedMemCurrent ? pool->used : pool->reserved;
  std::memcpy(value, &bytes, sizeof(bytes));
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  const Guard guard;
  const cudaError_t code = begin(__func__, {pool});
  if (code != cudaSuccess) return code;
  ++device_of(pool->context).counters.trims;
  const int64_t kept = std::max(pool->used, static_cast<int64_t>(keep));
  const int64_t given_back = std::max<int64_t>(0, pool->reserved - kept);
  pool->reserved -= given_back;
  pool->context->reserved -= given_back;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Guard guard;
  const cudaError_t code = begin(__func__);
  if (code != cudaSuccess) return code;
  const int64_t all = device_of(current()).total_bytes;
  *total = static_cast<size_t>(all);
  *free = static_cast<size_t>(all - current()->reserved);
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  const cudaError_t code = begin(__func__, {pool, s});
  if (code != cudaSuccess) return code;
  if (s->capture != nullptr) {  // the memory would be the graph's
    note("memory is allocated in a capture");
    s->capture->valid = false;
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  const auto size = static_cast<int64_t>(bytes);
  const int64_t grown = std::max(pool->reserved, pool->used + size) - pool->reserved;
  if (bytes == 0) return remember(cudaErrorInvalidValue);
  if (pool->context->reserved + grown > device_of(pool->context).total_bytes)
    return remember(cudaErrorMemoryAllocation);
  pool->reserved += grown;
  pool->context->reserved += grown;
  pool->used += size;
  auto* made = static_cast<std::byte*>(simt_tests::guarded_allocate(bytes));
  simt_tests::guarded_show(made, false);
  const uint64_t serial = ++serials;
  allocations()[made] = {bytes, pool->context->device, serial, pool, s};
  *data = made;
  return s->push([made, serial] {
    const auto found = allocations().find(made);
    if (found == allocations().end() || found->second.serial != serial) return;
    found->second.ready = true;
    simt_tests::guarded_show(made, true);
  });
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const Guard guard;
  FakeStream* s = stream_of(__func__, stream);
  auto* made = static_cast<std::byte*>(data);
  const auto found = allocations().find(made);
  if (found == allocations().end() || found->second.freed || found->second.pool == nullptr) {
    note("cudaFreeAsync of what is no memory of a pool, or freed");
    return remember(cudaErrorInvalidValue);
  }
  found->second.freed = true;
  found->second.pool->used -= static_cast<int64_t>(found->second.bytes);
  const cudaError_t code = begin(__func__, {s});
  if (code != cudaSuccess) return drop(made), code;
  return s->push([made] {
    if (allocations().contains(made)) drop(made);
  });
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  const Guard guard;
  const cudaError_t code = begin_unsafe(__func__);
  if (code != cudaSuccess) return code;
  auto* made = static_cast<std::byte*>(simt_tests::guarded_allocate(bytes));
  allocations()[made] = {bytes, current()->device, ++serials};
  *data = made;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  const Guard guard;
  const cudaError_t code = begin_unsafe(__func__);
  const auto found = allocations().find(static_cast<std::byte*>(data));
  if (found == allocations().end() || found->second.pool != nullptr) {
    note("cudaFreeHost of what is not page-locked memory, or freed");
    return remember(cudaErrorInvalidValue);
  }
  drop(found->first);
  return code;
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  const Guard guard;
  return queue({__func__,
                {static_cast<std::byte*>(data), bytes},
                {},
                bytes,
                1,
                value,
                stream_of(__func__, stream),
                {}},
               true, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_stride, const void* from, size_t from_stride,
                              size_t row_bytes, size_t rows, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const Guard guard;
  const char* function = rows == 1 ? "cudaMemcpyAsync" : __func__;
  auto* source = static_cast<std::byte*>(const_cast<void*>(from));
  return queue({function,
                {static_cast<std::byte*>(to), to_stride},
                {source, from_stride},
                row_bytes,
                rows,
                0,
                stream_of(function, stream),
                {}},
               kind != cudaMemcpyHostToDevice, kind != cudaMemcpyDeviceToHost);
}
