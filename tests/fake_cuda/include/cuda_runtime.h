// SPDX-License-Identifier: Apache-2.0
//
// What cuda/core uses of the runtime's API, for tests without a toolkit: declared here, and
// defined by tests/fake_cuda.
#pragma once

#include <cstddef>

#include "cuda.h"

#define CUDART_VERSION 13000

#define LMN_FAKE_CUDA_ERRORS(X)               \
  X(cudaErrorInvalidValue, 1)                 \
  X(cudaErrorMemoryAllocation, 2)             \
  X(cudaErrorStubLibrary, 34)                 \
  X(cudaErrorInsufficientDriver, 35)          \
  X(cudaErrorDevicesUnavailable, 46)          \
  X(cudaErrorNoDevice, 100)                   \
  X(cudaErrorECCUncorrectable, 214)           \
  X(cudaErrorNvlinkUncorrectable, 220)        \
  X(cudaErrorInvalidResourceHandle, 400)      \
  X(cudaErrorIllegalState, 401)               \
  X(cudaErrorNotReady, 600)                   \
  X(cudaErrorIllegalAddress, 700)             \
  X(cudaErrorLaunchOutOfResources, 701)       \
  X(cudaErrorLaunchTimeout, 702)              \
  X(cudaErrorAssert, 710)                     \
  X(cudaErrorHardwareStackError, 714)         \
  X(cudaErrorIllegalInstruction, 715)         \
  X(cudaErrorMisalignedAddress, 716)          \
  X(cudaErrorInvalidAddressSpace, 717)        \
  X(cudaErrorInvalidPc, 718)                  \
  X(cudaErrorLaunchFailure, 719)              \
  X(cudaErrorSystemNotReady, 802)             \
  X(cudaErrorSystemDriverMismatch, 803)       \
  X(cudaErrorCompatNotSupportedOnDevice, 804) \
  X(cudaErrorStreamCaptureUnsupported, 900)   \
  X(cudaErrorStreamCaptureInvalidated, 901)   \
  X(cudaErrorStreamCaptureImplicit, 906)      \
  X(cudaErrorCapturedEvent, 907)              \
  X(cudaErrorStreamCaptureWrongThread, 908)   \
  X(cudaErrorUnknown, 999)
enum cudaError_t {
  cudaSuccess = 0,
#define LMN_FAKE_CUDA_ERROR(name, code) name = code,
  LMN_FAKE_CUDA_ERRORS(LMN_FAKE_CUDA_ERROR)
#undef LMN_FAKE_CUDA_ERROR
};
enum cudaDeviceAttr {
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMemoryPoolsSupported
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
enum cudaMemPoolAttr {
  cudaMemPoolAttrReleaseThreshold,
  cudaMemPoolAttrReservedMemCurrent,
  cudaMemPoolAttrUsedMemCurrent
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
constexpr unsigned cudaHostAllocDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned long long cudaEnableDefault = 0;

// A stream is what launches of the executor go to.
namespace simt_tests {
class LaunchStream;
}
using cudaStream_t = simt_tests::LaunchStream*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaEvent_t = struct CUevent_st*;
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  struct {
    cudaMemLocationType type;
    int id;
  } location;
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t code);
const char* cudaGetErrorName(cudaError_t code);
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result);

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_stride, const void* from, size_t from_stride,
                              size_t row_bytes, size_t rows, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
