// SPDX-License-Identifier: Apache-2.0
//
// The host's body of simt.cuh, for tests. A kernel is an ordinary function that runs as many fibres
// as a block has threads; the executor (tests/simt) switches between them where they wait for each
// other, and sees every access to memory. Collectives gather what their lanes bring and run once,
// for the whole warp.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

#include "core/float16.h"
#include "ops/worker.h"

#define LMN_DEVICE inline
#define LMN_KERNEL(threads, blocks) inline
#define LMN_UNROLL
#define LMN_ROLL
#define LMN_UNOBSERVED __attribute__((no_sanitize("thread")))

namespace lmn::simt {
namespace host {

struct Place {
  int thread, block_size;
  int block[3], grid[3];
};
const Place& place();  // of the running fibre
std::byte* shared_memory();
void wait_for_previous();
// While it is on, the fibre reads global memory by load_once.
void set_once(bool on);
void sync_block();
void sync_warp();
// Returns once all lanes of the warp have called it; the last of them has run body(lanes), where
// lanes[i] is what lane i passed. Lanes that call with different names are a fault.
void collective(const char* name, void* lane_data, void (*body)(void* const* lanes));
// Accesses that instrumented code does not make itself: `bytes` at an address.
void read(const void* at, size_t bytes);
void copy_async(void* shared, const void* global, bool valid);
void copy_commit();
void copy_wait(int groups);
// Of matrices; a, b: pointers to the registers of 32 lanes.
struct Fragments {
  void* d;
  const uint32_t* a;
  const uint32_t* b;
};
void mma_s8_k32(void* const* lanes);
void mma_s8_k16(void* const* lanes);
void mma_s8_u8_k32(void* const* lanes);
void mma_s8_u8_k16(void* const* lanes);
void mma_f16(void* const* lanes);
void mma_bf16(void* const* lanes);
struct MatrixRows {
  uint32_t* r;
  const void* row;
};
void load_matrix(void* const* lanes);
void load_matrix_transposed(void* const* lanes);
void* atomic(void* at, size_t bytes);  // checks, and returns `at`
// Queues a launch of `kernel`, which a fibre of every thread calls.
void launch(ops::LaunchQueue& queue, std::string_view name, const LaunchShape& shape,
            std::function<void()> kernel);

template <typename T>
struct Shuffled {
  T value, result;
  int from;
};
template <typename T>
void shuffle(void* const* lanes) {
  for (int i = 0; i < kWarp; ++i) {
    auto* mine = static_cast<Shuffled<T>*>(lanes[i]);
    mine->result = static_cast<Shuffled<T>*>(lanes[mine->from & (kWarp - 1)])->value;
  }
}

}  // namespace host

inline int thread_index() { return host::place().thread; }
inline int block_size() { return host::place().block_size; }
inline int block_x() { return host::place().block[0]; }
inline int block_y() { return host::place().block[1]; }
inline int block_z() { return host::place().block[2]; }
inline int grid_x() { return host::place().grid[0]; }
inline int grid_y() { return host::place().grid[1]; }
inline int grid_z() { return host::place().grid[2]; }
inline int lane() { return host::place().thread % kWarp; }
inline int warp() { return host::place().thread / kWarp; }

inline void wait_for_previous() { host::wait_for_previous(); }
inline std::byte* shared_memory() { return host::shared_memory(); }
inline void sync_block() { host::sync_block(); }
inline void sync_warp() { host::sync_warp(); }

template <typename T>
T shuffle(T v, int from) {
  static_assert(sizeof(T) == 4);
  host::Shuffled<T> data{v, v, from};
  host::collective("shuffle", &data, host::shuffle<T>);
  return data.result;
}
template <typename T>
T shuffle_xor(T v, int mask) {
  static_assert(sizeof(T) == 4);
  host::Shuffled<T> data{v, v, lane() ^ mask};
  host::collective("shuffle_xor", &data, host::shuffle<T>);
  return data.result;
}
inline uint32_t ballot(bool v) {
  struct Vote {
    bool value;
    uint32_t result;
  } vote{v, 0};
  host::collective("ballot", &vote, [](void* const* lanes) {
    uint32_t bits = 0;
    for (int i = 0; i < kWarp; ++i) bits |= (static_cast<Vote*>(lanes[i])->value ? 1u : 0u) << i;
    for (int i = 0; i < kWarp; ++i) static_cast<Vote*>(lanes[i])->result = bits;
  });
  return vote.result;
}

inline void copy_async(void* shared, const void* global, bool valid = true) {
  host::copy_async(shared, global, valid);
}
inline void copy_commit() { host::copy_commit(); }
template <int kGroups>
void copy_wait() {
  host::copy_wait(kGroups);
}

inline void mma_s8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::Fragments data{d, a, b};
  host::collective("mma_s8_k32", &data, host::mma_s8_k32);
}
inline void mma_s8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  host::Fragments data{d, a, &b};
  host::collective("mma_s8_k16", &data, host::mma_s8_k16);
}
inline void mma_s8_u8_k32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::Fragments data{d, a, b};
  host::collective("mma_s8_u8_k32", &data, host::mma_s8_u8_k32);
}
inline void mma_s8_u8_k16(int (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  host::Fragments data{d, a, &b};
  host::collective("mma_s8_u8_k16", &data, host::mma_s8_u8_k16);
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::Fragments data{d, a, b};
  host::collective("mma_f16", &data, host::mma_f16);
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::Fragments data{d, a, b};
  host::collective("mma_bf16", &data, host::mma_bf16);
}
inline void load_matrix_x4(uint32_t (&r)[4], const void* row) {
  host::MatrixRows data{r, row};
  host::read(row, 16);
  host::collective("load_matrix", &data, host::load_matrix);
}
inline void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row) {
  host::MatrixRows data{r, row};
  host::read(row, 16);
  host::collective("load_matrix_transposed", &data, host::load_matrix_transposed);
}

inline uint32_t byte_permute(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = low | uint64_t{high} << 32;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return out;
}
inline int lowest_bit(uint32_t v) { return v == 0 ? -1 : __builtin_ctz(v); }
inline int dot4(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(static_cast<uint32_t>(a) >> 8 * i) *
         static_cast<int8_t>(static_cast<uint32_t>(b) >> 8 * i);
  }
  return c;
}

// Atomic accesses race with nobody: the executor checks them by itself.
template <typename T>
LMN_UNOBSERVED T atomic_add(T* at, T v) {
  T* checked = static_cast<T*>(host::atomic(at, sizeof(T)));
  T old, sum;
  __builtin_memcpy(&old, checked, sizeof(T));
  sum = old + v;
  __builtin_memcpy(checked, &sum, sizeof(T));
  return old;
}
LMN_UNOBSERVED inline uint32_t atomic_max(uint32_t* at, uint32_t v) {
  uint32_t* checked = static_cast<uint32_t*>(host::atomic(at, sizeof(v)));
  const uint32_t old = *checked;
  if (v > old) *checked = v;
  return old;
}

inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float half_to_float(uint16_t bits) { return f16_to_f32(bits); }
inline float bfloat_to_float(uint16_t bits) { return bf16_to_f32(bits); }
inline uint16_t float_to_half(float v) { return f32_to_f16(v); }
inline uint16_t float_to_bfloat(float v) { return f32_to_bf16(v); }
inline uint32_t halves(float low, float high) {
  return static_cast<uint32_t>(f32_to_f16(low)) | static_cast<uint32_t>(f32_to_f16(high)) << 16;
}
inline uint32_t bfloats(float low, float high) {
  return static_cast<uint32_t>(f32_to_bf16(low)) | static_cast<uint32_t>(f32_to_bf16(high)) << 16;
}
inline float exp2_fast(float v) { return std::exp2(v); }
inline float round_even(float v) { return std::nearbyintf(v); }
inline float square_root(float v) { return std::sqrt(v); }
inline float exponential(float v) { return std::exp(v); }
inline double cosine(double v) { return std::cos(v); }
inline double sine(double v) { return std::sin(v); }
template <typename T>
T load_once(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  host::set_once(true);
  const T value = *from;
  host::set_once(false);
  return value;
}

template <auto kKernel, typename Params>
void launch(ops::LaunchQueue& queue, const LaunchShape& shape, Params params) {
  if (shape.x == 0 || shape.y == 0 || shape.z == 0 || queue.failure != 0) return;
  host::launch(queue, __PRETTY_FUNCTION__, shape, [params]() LMN_UNOBSERVED { kKernel(params); });
}

// Kernels overlap here, so that the executor sees one that does not wait.
template <auto kKernel>
int32_t code_version() {
  return 90;
}
template <auto kKernel>
int32_t find_code() {
  return 0;
}

}  // namespace lmn::simt
