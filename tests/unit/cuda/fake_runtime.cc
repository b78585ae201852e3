// SPDX-License-Identifier: Apache-2.0
#include "fake_runtime.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cuda/kernels/launchers.h"

struct CUctx_st {
  int device;
};
struct FakeObject {
  CUcontext context;
  int64_t marked = 0;  // of an event: how many there were before, from 1
};

namespace {

constexpr int kDevices = 3;
CUctx_st contexts[kDevices] = {{0}, {1}, {2}};
fake_cuda::Fake state;
int64_t marks = 0;  // events take 1/1024 ms from one to the next
thread_local std::vector<CUcontext> stack;

// The context of a call of the runtime.
CUcontext use_context() {
  if (fake_cuda::current() == nullptr) {
    state.active.insert(0);
    fake_cuda::set_current(&contexts[0]);
  }
  return fake_cuda::current();
}
cudaError_t use(const char* function, const FakeObject* object) {
  if (object->context == use_context()) return cudaSuccess;
  state.misused.emplace_back(function);
  return cudaErrorInvalidResourceHandle;
}
template <typename T>
cudaError_t make(T** object) {
  *object = new FakeObject{use_context(), 0};
  ++state.objects;
  return cudaSuccess;
}
cudaError_t destroy(const char* function, FakeObject* object) {
  const cudaError_t code = use(function, object);
  delete object;
  --state.objects;
  return code;
}
cudaError_t take(void** data, size_t bytes) {
  *data = std::malloc(bytes);
  ++state.objects;
  return cudaSuccess;
}
cudaError_t give_back(void* data) {
  std::free(data);
  --state.objects;
  return cudaSuccess;
}

CUresult get_current(CUcontext* context) { return *context = fake_cuda::current(), CUDA_SUCCESS; }
CUresult push_current(CUcontext context) {
  if (context == nullptr || !state.active.contains(context->device))
    return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  ++state.pushes;
  return CUDA_SUCCESS;
}
CUresult pop_current(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult retain(CUcontext* context, CUdevice device) {
  state.active.insert(device);
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

}  // namespace

namespace fake_cuda {

Fake& fake() { return state; }
void reset() {
  state = {};
  stack.clear();
}
CUcontext context_of(int device) {
  state.active.insert(device);
  return &contexts[device];
}
CUcontext current() { return stack.empty() ? nullptr : stack.back(); }
void set_current(CUcontext context) {
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
}
size_t depth() { return stack.size(); }

}  // namespace fake_cuda

cudaError_t cudaGetDeviceCount(int* count) { return *count = kDevices, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return *value = 9, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = 0, cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      return *value = 100 + device, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = state.shared_bytes, cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      return *value = state.has_pools, cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return *version = state.driver_version, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "a text"; }
const char* cudaGetErrorName(cudaError_t) { return "a name"; }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  state.active.insert(device);
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  const auto is = [symbol](const char* name) { return std::strcmp(symbol, name) == 0; };
  if (is("cuCtxGetCurrent")) *function = reinterpret_cast<void*>(get_current);
  if (is("cuCtxPushCurrent")) *function = reinterpret_cast<void*>(push_current);
  if (is("cuCtxPopCurrent")) *function = reinterpret_cast<void*>(pop_current);
  if (is("cuDeviceGet")) *function = reinterpret_cast<void*>(device_get);
  if (is("cuDevicePrimaryCtxRetain")) *function = reinterpret_cast<void*>(retain);
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) { return make(pool); }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return destroy(__func__, pool); }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
  return use(__func__, pool);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
  return use(__func__, pool);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) { return use(__func__, pool); }
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  if (use(__func__, pool) != cudaSuccess) return cudaErrorInvalidResourceHandle;
  const cudaError_t code = use(__func__, stream);
  return code == cudaSuccess ? take(data, bytes) : code;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  (void)give_back(data);
  return use(__func__, stream);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  use_context();
  return take(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  use_context();
  return give_back(data);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  use_context();
  *free = *total = size_t{1} << 33;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  std::memset(data, value, bytes);
  return use(__func__, stream);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  std::memcpy(to, from, bytes);
  return use(__func__, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_stride, const void* from, size_t from_stride,
                              size_t row_bytes, size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<char*>(to) + i * to_stride,
                static_cast<const char*>(from) + i * from_stride, row_bytes);
  }
  return use(__func__, stream);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return destroy(__func__, stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return use(__func__, stream); }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return make(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return destroy(__func__, event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (use(__func__, event) != cudaSuccess) return cudaErrorInvalidResourceHandle;
  event->marked = ++marks;
  return use(__func__, stream);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (from->marked == 0 || to->marked == 0) return cudaErrorInvalidResourceHandle;
  *ms = static_cast<float>(to->marked - from->marked) / 1024;
  return use(__func__, from);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return use(__func__, stream);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const cudaError_t code = use(__func__, stream);
  return code == cudaSuccess ? make(graph) : code;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  const cudaError_t code = use(__func__, graph);
  return code == cudaSuccess ? make(executable) : code;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(__func__, graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return destroy(__func__, executable);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  (void)use(__func__, executable);
  return use(__func__, stream);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  (void)use(__func__, executable);
  return use(__func__, stream);
}

namespace lmn::cuda {

// Both ask the runtime about a kernel.
int32_t find_code() {
  use_context();
  return 0;
}
int32_t code_version() {
  use_context();
  return 90;
}
const ops::KernelTable& kernel_table() {
  static const ops::KernelTable table;
  return table;
}

}  // namespace lmn::cuda
