// SPDX-License-Identifier: Apache-2.0
//
// Everything that a kernel asks of the hardware: where it is, barriers, shuffles, asynchronous
// copies, matrix instructions, atomics. Kernels (cuda/kernels/**.cuh) are written against this and
// plain C++ on raw pointers. The header has three bodies: simt_device.cuh for nvcc, simt_hip.cuh
// for hipcc, and simt_host.cuh, with which the same source runs on a CPU, block by block, threads
// as fibres (tests/simt). What all promise is written here, once.
//
// Rules for kernels:
// - LMN_KERNEL(threads, blocks) void name(Params p): one struct by value; `threads` is the block's
//   size at most, a multiple of 32; `blocks` is how many are to fit a multiprocessor at least.
// - Shared memory is dynamic, shared_memory(), and cut by the kernel; what it holds at the start is
//   unspecified.
// - Collectives (everything that says "the warp" or "the block") are called by all of its threads,
//   in the same order. A thread may not return while others of its block still synchronise.
// - Threads see each other's writes to shared memory after sync_block(), within a warp after
//   sync_warp(). Shuffles and matrix instructions order nothing.
// - Accesses are aligned to their size: 16 bytes for U32x4.
// - No fused multiply-add but fma(): the order and rounding of operations is part of a kernel's
//   contract (DESIGN section 7), and nvcc is told not to contract.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmn::simt {

inline constexpr int kWarp = 32;
inline constexpr float kInfinity = __builtin_inff();

// 16 bytes: the widest load and store.
struct alignas(16) U32x4 {
  uint32_t x, y, z, w;
};
struct alignas(8) U32x2 {
  uint32_t x, y;
};
struct alignas(16) F32x4 {
  float x, y, z, w;
};
struct alignas(8) F32x2 {
  float x, y;
};

// Blocks of a launch, threads of a block, and the bytes of its shared memory.
struct LaunchShape {
  uint32_t x = 1, y = 1, z = 1;
  uint32_t threads = 32;
  uint32_t shared_bytes = 0;
};

}  // namespace lmn::simt

#if defined(__HIP__)
#include "cuda/core/simt_hip.cuh"
#elif defined(__CUDACC__)
#include "cuda/core/simt_device.cuh"
#else
#include "cuda/core/simt_host.cuh"
#endif

// What all bodies define, in lmn::simt. LMN_DEVICE marks functions that kernels call,
// LMN_UNROLL loops whose counter indexes registers, LMN_ROLL loops that are to stay small.
//
//   int thread_index()            in the block            int block_size()       threads of it
//   int block_x(), _y(), _z()                             int grid_x(), _y(), _z()
//   int lane()                    in the warp, 0 to 31    int warp()             in the block
//
//   void wait_for_previous()      called by all threads of a block, once, before the first access
//                                 to global memory but by load_once: where the queue says that
//                                 kernels overlap, a block may start while the kernel before it in
//                                 the stream still runs, and sees what that wrote from here on
//
//   std::byte* shared_memory()    of the block, aligned to 128 bytes
//   void sync_block(), sync_warp()
//
//   T shuffle(T v, int lane)      of the warp; T is 4 bytes
//   T shuffle_xor(T v, int mask)
//   uint32_t ballot(bool)         bit i: of lane i
//
//   Copies of 16 bytes from global to shared memory beside the kernel. They are complete, for the
//   thread that began them, once copy_wait<n>() has returned and no more than n groups came after
//   theirs; for others after a barrier behind that.
//   void copy_async(void* shared, const void* global, bool valid = true)   not valid: zeros, and
//                                 nothing is read
//   void copy_commit()            ends a group
//   void copy_wait<n>()
//
//   Matrix instructions of the warp, d += a b. Fragments as in the PTX manual: with g = lane / 4
//   and t = lane % 4, d[0], d[1] are row g, columns 2t, 2t + 1, d[2], d[3] are row g + 8. Each
//   output depends on its row of a and its column of b alone.
//   void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//     m16n8k32. a[0]: row g, k 4t to 4t + 3; a[1]: row g + 8; a[2], a[3]: the same with k + 16.
//     b[0]: column g, k 4t to 4t + 3; b[1]: k + 16
//   void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b)
//     m16n8k16: a[0], a[1] and b as the first halves above
//   void mma_s8_u8_k32, mma_s8_u8_k16   the same with unsigned bytes in b
//   void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//   void mma_bf16(the same)
//     m16n8k16. a[0]: row g, k 2t, 2t + 1; a[1]: row g + 8; a[2], a[3]: k + 8. b[0]: column g, k
//     2t, 2t + 1; b[1]: k + 8. The lower half of a register is the lower k
//   void load_matrix_x4(uint32_t (&r)[4], const void* row)         four 8 x 8 matrices of 16 bits
//   void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row)
//     from shared memory; lane 8i + j gives the address of row j of matrix i (16 bytes). r[i] of a
//     lane is row g, columns 2t, 2t + 1 of matrix i, transposed: row 2t, 2t + 1 of column g
//
//   uint32_t byte_permute(uint32_t low, uint32_t high, uint32_t selector)    byte i of the result
//   is
//                                 the one of the eight that nibble i of the selector, 0 to 7, names
//   int lowest_bit(uint32_t)      its place; of 0: unspecified
//   int dot4(int a, int b, int c) c + the products of four signed bytes
//   int atomic_add(int*, int)     uint32_t, uint64_t, float alike; global or shared memory; what
//                                 was there
//   uint32_t atomic_max(uint32_t*, uint32_t)
//
//   float fma(float, float, float)
//   float half_to_float(uint16_t), bfloat_to_float(uint16_t)
//   uint16_t float_to_half(float), float_to_bfloat(float)          to nearest even
//   uint32_t halves(float low, float high)                         two, packed
//   uint32_t bfloats(float low, float high)                        the same as bfloat16
//   float exp2_fast(float)        within 2 units in the last place of 2^x
//   float round_even(float)       to the nearest integer, ties to even
//   float square_root(float)      correctly rounded, as division is
//   float exponential(float)      within 2 units in the last place of e^x
//   double cosine(double), sine(double)
//   T load_once(const T*)         from global memory that no kernel writes; not kept in the L1
//   cache
//
//   launch<kernel>(ops::LaunchQueue&, LaunchShape, params) queues a kernel; on failure sets the
//   queue's `failure`. A shape without blocks queues nothing.
//   int32_t code_version<kernel>()   the architecture that its code was written for, 90 for sm_90
//   int32_t find_code<kernel>()   0, or the device's code for why the current device cannot run it

namespace lmn::simt {

LMN_DEVICE float warp_max(float v) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(v, mask);
    v = other > v ? other : v;
  }
  return v;
}

// In one fixed order, the same bits in every lane.
LMN_DEVICE float warp_sum(float v) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}

LMN_DEVICE float float_of_bits(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } both{bits};
  return both.f;
}

LMN_DEVICE uint32_t bits_of_float(float value) {
  union {
    float f;
    uint32_t u;
  } both{value};
  return both.u;
}

// The next double towards zero, of one that is neither zero nor the least.
LMN_DEVICE double next_below(double value) {
  union {
    double f;
    uint64_t u;
  } both{value};
  --both.u;
  return both.f;
}

inline constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace lmn::simt
