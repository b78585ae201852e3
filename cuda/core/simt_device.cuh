// SPDX-License-Identifier: Apache-2.0
//
// The body of simt.cuh for NVIDIA's devices, by nvcc. Instructions are those of the PTX manual,
// which gives the fragments their layout.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>

#include "ops/worker.h"

#define LMN_DEVICE __device__ __forceinline__
#define LMN_KERNEL(threads, blocks) __global__ __launch_bounds__(threads, blocks)
#define LMN_UNROLL _Pragma("unroll")
#define LMN_ROLL _Pragma("unroll 1")

#include "cuda/core/simt_index.cuh"

namespace lmn::simt {

LMN_DEVICE void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // The next kernel may take the room that this one leaves: it waits here in turn. A kernel that
  // has not waited has not ended, so whoever waits for it waits for all before.
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

LMN_DEVICE std::byte* shared_memory() {
  extern __shared__ __align__(128) unsigned char lmn_shared_memory[];
  return reinterpret_cast<std::byte*>(lmn_shared_memory);
}
LMN_DEVICE void sync_block() { __syncthreads(); }
LMN_DEVICE void sync_warp() { __syncwarp(); }

template <typename T>
LMN_DEVICE T shuffle(T v, int from) {
  static_assert(sizeof(T) == 4);
  return __shfl_sync(0xFFFFFFFFu, v, from);
}
template <typename T>
LMN_DEVICE T shuffle_xor(T v, int mask) {
  static_assert(sizeof(T) == 4);
  return __shfl_xor_sync(0xFFFFFFFFu, v, mask);
}
LMN_DEVICE uint32_t ballot(bool v) { return __ballot_sync(0xFFFFFFFFu, v); }

LMN_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
LMN_DEVICE void copy_async(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
LMN_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroups>
LMN_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

LMN_DEVICE void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LMN_DEVICE void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}
LMN_DEVICE void mma_s8_u8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LMN_DEVICE void mma_s8_u8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}
LMN_DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LMN_DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LMN_DEVICE void load_matrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
LMN_DEVICE void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

LMN_DEVICE uint32_t byte_permute(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}
LMN_DEVICE int lowest_bit(uint32_t v) { return __ffs(static_cast<int>(v)) - 1; }
LMN_DEVICE int dot4(int a, int b, int c) { return __dp4a(a, b, c); }

template <typename T>
LMN_DEVICE T atomic_add(T* at, T v) {
  return atomicAdd(at, v);
}
LMN_DEVICE uint64_t atomic_add(uint64_t* at, uint64_t v) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(v));
}
LMN_DEVICE uint32_t atomic_max(uint32_t* at, uint32_t v) { return atomicMax(at, v); }

LMN_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
LMN_DEVICE float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
LMN_DEVICE float bfloat_to_float(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
LMN_DEVICE uint16_t float_to_half(float v) { return __half_as_ushort(__float2half_rn(v)); }
LMN_DEVICE uint16_t float_to_bfloat(float v) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}
LMN_DEVICE uint32_t halves(float low, float high) {
  return static_cast<uint32_t>(float_to_half(low)) | static_cast<uint32_t>(float_to_half(high))
                                                         << 16;
}
LMN_DEVICE uint32_t bfloats(float low, float high) {
  union {
    __nv_bfloat162 pair;
    uint32_t bits;
  } both{__floats2bfloat162_rn(low, high)};
  return both.bits;
}
LMN_DEVICE float exp2_fast(float v) { return exp2f(v); }
LMN_DEVICE float round_even(float v) { return rintf(v); }
LMN_DEVICE float square_root(float v) { return __fsqrt_rn(v); }
LMN_DEVICE float exponential(float v) { return expf(v); }
LMN_DEVICE double cosine(double v) { return cos(v); }
LMN_DEVICE double sine(double v) { return sin(v); }

template <typename T>
LMN_DEVICE T load_once(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  union {
    T value;
    uint32_t words[sizeof(T) / 4];
  } out;
  if constexpr (sizeof(T) == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out.words[0]), "=r"(out.words[1]), "=r"(out.words[2]), "=r"(out.words[3])
                 : "l"(from));
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                 : "=r"(out.words[0]), "=r"(out.words[1])
                 : "l"(from));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(out.words[0]) : "l"(from));
  }
  return out.value;
}

// Lets a kernel have all the shared memory that a block may have. Once for each device, and never
// less than before: the limit is the process's, and others may launch the same kernel just now.
template <auto kKernel>
cudaError_t raise_shared_limit(int device) {
  static std::atomic<uint64_t> raised{0};  // bit: device. Relaxed: to raise it twice does no harm
  const uint64_t bit = uint64_t{1} << (device & 63);
  if ((raised.load(std::memory_order_relaxed) & bit) != 0 && device < 64) return cudaSuccess;
  int most = 0;
  cudaError_t status =
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kKernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  if (status == cudaSuccess) raised.fetch_or(bit, std::memory_order_relaxed);
  return status;
}

template <auto kKernel, typename Params>
void launch(ops::LaunchQueue& queue, const LaunchShape& shape, Params params) {
  if (shape.x == 0 || shape.y == 0 || shape.z == 0 || queue.failure != 0) return;
  const auto* kernel = reinterpret_cast<const void*>(kKernel);
  constexpr uint32_t kWithoutAsking = 48 * 1024;  // more is an attribute of the kernel
  cudaError_t status = cudaSuccess;               // the calling thread has entered the stream
  if (shape.shared_bytes > kWithoutAsking) status = raise_shared_limit<kKernel>(queue.device);
  void* arguments[] = {&params};
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.x, shape.y, shape.z);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(queue.stream);
  config.attrs = &overlap;
  config.numAttrs = queue.overlaps ? 1 : 0;
  if (status == cudaSuccess) status = cudaLaunchKernelExC(&config, kernel, arguments);
  if (status != cudaSuccess) queue.failure = status;
}

template <auto kKernel>
int32_t code_version() {
  cudaFuncAttributes attributes{};
  const cudaError_t code =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kKernel));
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code == cudaSuccess ? attributes.ptxVersion : 0;
}

template <auto kKernel>
int32_t find_code() {
  cudaFuncAttributes attributes;
  const cudaError_t code =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kKernel));
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}

}  // namespace lmn::simt
