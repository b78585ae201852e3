// SPDX-License-Identifier: Apache-2.0
//
// The body of simt.cuh for AMD's devices, by hipcc: those whose waves have 32 lanes (RDNA). It is
// to be correct, not yet fast: copies are not asynchronous, and matrix products are made from
// shuffles and sums (cuda/README.md lists what is missing). Sums run from the lowest k up.
#pragma once

#include <hip/hip_runtime.h>

#include "ops/worker.h"

#define LMN_DEVICE __device__ __forceinline__
// hipcc's second number is another one: waves for each SIMD.
#define LMN_KERNEL(threads, blocks) __global__ __launch_bounds__(threads)
#define LMN_UNROLL _Pragma("unroll")
#define LMN_ROLL _Pragma("nounroll")

#include "cuda/core/simt_index.cuh"

namespace lmn::simt {

#if defined(__HIP_DEVICE_COMPILE__) && __AMDGCN_WAVEFRONT_SIZE != 32
#error "waves of 32 lanes only: gfx10 and newer"
#endif

LMN_DEVICE void wait_for_previous() {}  // kernels of a stream never overlap

LMN_DEVICE std::byte* shared_memory() {
  extern __shared__ __align__(128) unsigned char lmn_shared_memory[];
  return reinterpret_cast<std::byte*>(lmn_shared_memory);
}
LMN_DEVICE void sync_block() { __syncthreads(); }
LMN_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}

template <typename T>
LMN_DEVICE T shuffle(T v, int from) {
  static_assert(sizeof(T) == 4);
  return __shfl(v, from, kWarp);
}
template <typename T>
LMN_DEVICE T shuffle_xor(T v, int mask) {
  static_assert(sizeof(T) == 4);
  return __shfl_xor(v, mask, kWarp);
}
LMN_DEVICE uint32_t ballot(bool v) {
  int bit = v ? 1 : 0;
  asm volatile("" : "+v"(bit));  // LLVM 15 fails where it sees a comparison of floats
  return static_cast<uint32_t>(__ballot(bit));
}

LMN_DEVICE void copy_async(void* shared, const void* global, bool valid = true) {
  U32x4* to = static_cast<U32x4*>(shared);
  if (valid) {
    *to = *static_cast<const U32x4*>(global);
  } else {
    *to = {0, 0, 0, 0};
  }
}
LMN_DEVICE void copy_commit() {}
template <int kGroups>
LMN_DEVICE void copy_wait() {}

LMN_DEVICE uint32_t byte_permute(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> 4 * i & 7;
    out |= static_cast<uint32_t>(bytes >> 8 * from & 0xFF) << 8 * i;
  }
  return out;
}

// B: of the second factor, int8_t or uint8_t.
template <typename B>
LMN_DEVICE int dot4_of(uint32_t a, uint32_t b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(a >> 8 * i) * static_cast<int>(static_cast<B>(b >> 8 * i));
  }
  return c;
}
LMN_DEVICE int lowest_bit(uint32_t v) { return __builtin_ctz(v); }
LMN_DEVICE int dot4(int a, int b, int c) {
  return dot4_of<int8_t>(static_cast<uint32_t>(a), static_cast<uint32_t>(b), c);
}

LMN_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
template <typename To, typename From>
LMN_DEVICE To with_bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
LMN_DEVICE float half_to_float(uint16_t bits) {
  return static_cast<float>(with_bits_of<_Float16>(bits));
}
LMN_DEVICE float bfloat_to_float(uint16_t bits) {
  return with_bits_of<float>(static_cast<uint32_t>(bits) << 16);
}
LMN_DEVICE uint16_t float_to_half(float v) {
  return with_bits_of<uint16_t>(static_cast<_Float16>(v));
}
LMN_DEVICE uint16_t float_to_bfloat(float v) {
  const uint32_t bits = with_bits_of<uint32_t>(v);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;  // as NVIDIA's devices do
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}
LMN_DEVICE uint32_t halves(float low, float high) {
  return static_cast<uint32_t>(float_to_half(low)) | static_cast<uint32_t>(float_to_half(high))
                                                         << 16;
}
LMN_DEVICE uint32_t bfloats(float low, float high) {
  return static_cast<uint32_t>(float_to_bfloat(low)) | static_cast<uint32_t>(float_to_bfloat(high))
                                                           << 16;
}
LMN_DEVICE float exp2_fast(float v) { return exp2f(v); }
LMN_DEVICE float round_even(float v) { return rintf(v); }
LMN_DEVICE float square_root(float v) { return sqrtf(v); }
LMN_DEVICE float exponential(float v) { return expf(v); }
LMN_DEVICE double cosine(double v) { return cos(v); }
LMN_DEVICE double sine(double v) { return sin(v); }

// d += a b, where add(sum, register of a, register of b) adds the products of two registers. Lane
// 4g + t has the t-th register of row g of a and of column g of b; kHalves of each.
template <int kHalves, typename T, typename Add>
LMN_DEVICE void mma_of(T (&d)[4], const uint32_t* a, const uint32_t* b, Add add) {
  const int g = lane() / 4, t = lane() % 4;
  LMN_UNROLL for (int half = 0; half < kHalves; ++half) {
    LMN_UNROLL for (int k = 0; k < 4; ++k) {
      const uint32_t upper = shuffle(a[2 * half], 4 * g + k);
      const uint32_t lower = shuffle(a[2 * half + 1], 4 * g + k);
      const uint32_t left = shuffle(b[half], 4 * (2 * t) + k);
      const uint32_t right = shuffle(b[half], 4 * (2 * t + 1) + k);
      d[0] = add(d[0], upper, left);
      d[1] = add(d[1], upper, right);
      d[2] = add(d[2], lower, left);
      d[3] = add(d[3], lower, right);
    }
  }
}
template <typename B>
struct AddBytes {
  LMN_DEVICE int operator()(int sum, uint32_t a, uint32_t b) const { return dot4_of<B>(a, b, sum); }
};
template <float (*kToFloat)(uint16_t)>
struct AddHalves {
  LMN_DEVICE float operator()(float sum, uint32_t a, uint32_t b) const {
    sum = fma(kToFloat(static_cast<uint16_t>(a)), kToFloat(static_cast<uint16_t>(b)), sum);
    return fma(kToFloat(static_cast<uint16_t>(a >> 16)), kToFloat(static_cast<uint16_t>(b >> 16)),
               sum);
  }
};
LMN_DEVICE void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma_of<2>(d, a, b, AddBytes<int8_t>());
}
LMN_DEVICE void mma_s8_u8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma_of<2>(d, a, b, AddBytes<uint8_t>());
}
LMN_DEVICE void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  mma_of<1>(d, a, &b, AddBytes<int8_t>());
}
LMN_DEVICE void mma_s8_u8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  mma_of<1>(d, a, &b, AddBytes<uint8_t>());
}
LMN_DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma_of<2>(d, a, b, AddHalves<half_to_float>());
}
LMN_DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma_of<2>(d, a, b, AddHalves<bfloat_to_float>());
}

// Addresses of shared memory go from lane to lane as what lies between them and its beginning.
LMN_DEVICE const std::byte* matrix_row(uint32_t offset, int matrix, int row) {
  return shared_memory() + shuffle(offset, 8 * matrix + row);
}
LMN_DEVICE uint32_t shared_offset(const void* at) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(at) - shared_memory());
}
LMN_DEVICE void load_matrix_x4(uint32_t (&r)[4], const void* row) {
  const int g = lane() / 4, t = lane() % 4;
  const uint32_t offset = shared_offset(row);
  LMN_UNROLL for (int i = 0; i < 4; ++i) {
    r[i] = *reinterpret_cast<const uint32_t*>(matrix_row(offset, i, g) + 4 * t);
  }
}
LMN_DEVICE void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row) {
  const int g = lane() / 4, t = lane() % 4;
  const uint32_t offset = shared_offset(row);
  LMN_UNROLL for (int i = 0; i < 4; ++i) {
    const uint32_t low = *reinterpret_cast<const uint16_t*>(matrix_row(offset, i, 2 * t) + 2 * g);
    const uint32_t high =
        *reinterpret_cast<const uint16_t*>(matrix_row(offset, i, 2 * t + 1) + 2 * g);
    r[i] = low | high << 16;
  }
}

template <typename T>
LMN_DEVICE T atomic_add(T* at, T v) {
  return atomicAdd(at, v);
}
LMN_DEVICE uint64_t atomic_add(uint64_t* at, uint64_t v) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(v));
}
LMN_DEVICE uint32_t atomic_max(uint32_t* at, uint32_t v) { return atomicMax(at, v); }

template <typename T>
LMN_DEVICE T load_once(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  return *from;
}

template <auto kKernel, typename Params>
void launch(ops::LaunchQueue& queue, const LaunchShape& shape, Params params) {
  if (shape.x == 0 || shape.y == 0 || shape.z == 0 || queue.failure != 0) return;
  void* arguments[] = {&params};
  const hipError_t status = hipLaunchKernel(
      reinterpret_cast<const void*>(kKernel), dim3(shape.x, shape.y, shape.z), dim3(shape.threads),
      arguments, shape.shared_bytes, static_cast<hipStream_t>(queue.stream));
  if (status != hipSuccess) queue.failure = status;
}

template <auto kKernel>
int32_t code_version() {
  return 0;
}
template <auto kKernel>
int32_t find_code() {
  hipFuncAttributes attributes;
  return hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kKernel));
}

}  // namespace lmn::simt
