// SPDX-License-Identifier: Apache-2.0
//
// The first CUDA device that there is. Cases pass ordinary memory to kernels: all memory of the
// program comes from one managed region, which host and device both read and write. Where there is
// no such device the program says why and ends with the code that ctest takes for "skipped".
#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "conformance.h"
#include "cuda/core/cuda_device.h"

namespace {

constexpr int kSkipped = 77;
constexpr size_t kRegionBytes = size_t{8} << 30;  // of addresses: pages exist from the first touch
constexpr size_t kAlignment = 256;  // as cudaMalloc aligns; a block's header is as long

// Blocks of powers of two, cut from the region one after the other and kept in lists when freed.
// Before it has a region, and for what was allocated then, malloc.
class ManagedHeap {
 public:
  void use(void* region) {
    begin_ = next_ = reinterpret_cast<uintptr_t>(region);
    end_ = begin_ + kRegionBytes;
  }

  void* allocate(size_t bytes) {
    if (begin_ == 0) return std::malloc(bytes == 0 ? 1 : bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto size_class = static_cast<size_t>(std::bit_width(bytes + kAlignment - 1));
    Block*& free = free_[size_class];
    if (free != nullptr) {
      Block* block = free;
      free = block->next;
      return data_of(block);
    }
    const size_t block_bytes = size_t{1} << size_class;
    if (block_bytes > end_ - next_) {
      std::fprintf(stderr, "conformance: the managed region of %zu bytes is used up\n",
                   kRegionBytes);
      std::_Exit(1);
    }
    Block* block = reinterpret_cast<Block*>(next_);
    block->size_class = size_class;
    next_ += block_bytes;
    return data_of(block);
  }

  void release(void* data) {
    const auto at = reinterpret_cast<uintptr_t>(data);
    if (begin_ == 0 || at < begin_ || at >= end_) return std::free(data);
    const std::lock_guard<std::mutex> lock(mutex_);
    Block* block = reinterpret_cast<Block*>(at - kAlignment);
    Block*& free = free_[block->size_class];
    block->next = free;
    free = block;
  }

 private:
  struct Block {
    size_t size_class;
    Block* next;
  };
  static void* data_of(Block* block) { return reinterpret_cast<std::byte*>(block) + kAlignment; }

  std::mutex mutex_;
  uintptr_t begin_ = 0, next_ = 0, end_ = 0;
  std::array<Block*, 65> free_{};
};

// Constant-initialised: memory is asked for before any constructor runs.
constinit ManagedHeap heap;

[[noreturn]] void skip(const std::string& reason) {
  std::printf("SKIP conformance_cuda: %s\n", reason.c_str());
  std::fflush(stdout);
  std::_Exit(kSkipped);
}

// A device that is there and cannot be used.
[[noreturn]] void fail(const std::string& reason) {
  std::printf("FAIL conformance_cuda: %s\n", reason.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

}  // namespace

void* operator new(size_t bytes) { return heap.allocate(bytes); }
void operator delete(void* data) noexcept { heap.release(data); }
void operator delete(void* data, size_t) noexcept { heap.release(data); }

namespace conformance {

std::vector<Target> targets() {
  // Stays to the end, as the table of its kernels does.
  static std::unique_ptr<lmn::Device>* const device = [] {
    lmn::Result<std::unique_ptr<lmn::Device>> created = lmn::cuda::create_cuda_device(0);
    if (created.status().code() == lmn::Code::kUnsupported)
      skip(std::string(created.status().message()));
    if (!created.ok()) fail(std::string(created.status().message()));
    int concurrent = 0;
    (void)cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0);
    if (concurrent == 0) skip("the device does not share managed memory with a running host");
    void* region = nullptr;
    const cudaError_t code = cudaMallocManaged(&region, kRegionBytes);
    if (code != cudaSuccess) fail(std::string("no managed memory: ") + cudaGetErrorString(code));
    heap.use(region);
    return new std::unique_ptr<lmn::Device>(*std::move(created));
  }();
  return {{(*device)->target(), (*device)->kernels(), true}};
}

std::string synchronize() {
  const cudaError_t code = cudaDeviceSynchronize();
  return code == cudaSuccess ? "" : std::string(cudaGetErrorString(code));
}

}  // namespace conformance
