// SPDX-License-Identifier: Apache-2.0
//
// The limit that results on a GPU are divided by: bytes a second that its memory reads and writes
// while a large buffer is copied. Prints {"gpu": name, "copy_gb_s": x}.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

namespace {

constexpr size_t kMostBytes = size_t{2} << 30;  // far more than any cache
constexpr int kRounds = 20;

int fail(cudaError_t code) {
  std::fprintf(stderr, "cuda_copy: %s\n", cudaGetErrorString(code));
  return 1;
}

}  // namespace

#define CHECK(call) \
  if (const cudaError_t code = (call); code != cudaSuccess) return fail(code)

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  size_t free_bytes = 0, total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const size_t bytes = std::min(kMostBytes, free_bytes / 4);
  char *from = nullptr, *to = nullptr;
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMemset(from, 1, bytes));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  float best_ms = 1e9f;
  for (int round = 0; round < kRounds; ++round) {
    CHECK(cudaEventRecord(begin));
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    best_ms = std::min(best_ms, ms);
  }
  std::printf("{\"gpu\": \"%s\", \"copy_gb_s\": %.1f}\n", properties.name,
              2.0 * static_cast<double>(bytes) / best_ms / 1e6);
  return 0;
}
