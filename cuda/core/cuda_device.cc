// SPDX-License-Identifier: Apache-2.0
#include "cuda/core/cuda_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/core/cublas_lt.h"
#include "cuda/core/cuda_context.h"
#include "cuda/core/cuda_error.h"
#include "cuda/core/cuda_stream.h"
#include "cuda/kernels/launchers.h"

namespace lmn::cuda {
namespace {

// Asynchronous copies to shared memory and products of bytes and halves by matrix instructions.
constexpr int kOldestMajor = 8;
// Kernels that start while the one before them ends, and wait for it, if they were written for an
// architecture that can. LMN_CUDA_OVERLAP=0 does without, to find out whether a fault is theirs.
constexpr int kOverlapVersion = 90;
// Below, kernels that are loaded when they are first recorded break the recording.
constexpr int kOldestDriver = 12030;
// Of the device's memory, for code, recordings and what the driver needs besides.
constexpr int64_t kHeadroom = int64_t{512} << 20;
bool overlap_wanted() {
  const char* value = std::getenv("LMN_CUDA_OVERLAP");
  return value == nullptr || std::string_view(value) != "0";
}

// What a device is asked for before it is used.
struct Traits {
  int major = 0, minor = 0, multiprocessors = 0, shared_bytes = 0, has_pools = 0;
  int version() const { return major * 10 + minor; }

  cudaError_t read(int ordinal) {
    for (const auto& [attribute, value] :
         {std::pair{cudaDevAttrComputeCapabilityMajor, &major},
          std::pair{cudaDevAttrComputeCapabilityMinor, &minor},
          std::pair{cudaDevAttrMultiProcessorCount, &multiprocessors},
          std::pair{cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared_bytes},
          std::pair{cudaDevAttrMemoryPoolsSupported, &has_pools}}) {
      const cudaError_t code = cudaDeviceGetAttribute(value, attribute, ordinal);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, const Traits& traits)
      : ordinal_(ordinal),
        traits_(traits),
        target_("sm_" + std::to_string(traits.version())),
        health_("cuda:" + std::to_string(ordinal)),
        products_(context_, folder_of_wheels()) {}
  ~CudaDevice() override {
    stream_.reset();
    if (pool_ == nullptr) return;
    const CurrentDevice current(context_);
    (void)cudaMemPoolDestroy(pool_);
  }

  // Its own pool, so that what it keeps goes with it; its own stream orders allocations and copies.
  Status open() {
    LMN_RETURN_IF_ERROR(context_.open(ordinal_, health_));
    const CurrentDevice current(context_);
    if (const int32_t failure = find_code(); failure != 0) {
      return error(Code::kUnsupported,
                   "device %s is an %s, for which this library has no code (%s): build it with "
                   "-DLMN_CUDA_ARCHITECTURES=%d",
                   name().c_str(), target_.c_str(),
                   cudaGetErrorString(static_cast<cudaError_t>(failure)), traits_.version());
    }
    overlaps_ = code_version() >= kOverlapVersion && overlap_wanted();
    LMN_ASSIGN_OR_RETURN(stream_, create_cuda_stream(ordinal_, context_, health_, overlaps_));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = ordinal_;
    LMN_RETURN_IF_ERROR(
        health_.map(cudaMemPoolCreate(&pool_, &properties), "creating a memory pool"));
    uint64_t keep = UINT64_MAX;  // what was freed, for the next allocation
    return health_.map(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep),
                       "setting up a memory pool");
  }

  std::string name() const override { return "cuda:" + std::to_string(ordinal_); }
  std::string target() const override { return target_; }
  bool is_host() const override { return false; }
  int32_t multiprocessors() const override { return traits_.multiprocessors; }
  const ops::KernelTable& kernels() const override { return kernel_table(); }
  const ops::DenseProducts* dense_products() const override { return &products_; }

  Result<std::byte*> allocate(size_t bytes) override {
    LMN_ASSIGN_OR_RETURN(std::byte * data, allocate_uninitialized(bytes));
    const CurrentDevice current(context_);
    Status status = health_.map(cudaMemsetAsync(data, 0, bytes, queue()), "clearing memory");
    if (status.ok()) status = stream_->synchronize();
    if (status.ok()) return data;
    release(data, bytes);
    return status;
  }

  Status reserve(size_t bytes) override {
    LMN_ASSIGN_OR_RETURN(std::byte * data, allocate_uninitialized(bytes));
    release(data, bytes);  // to the pool, which keeps it
    return stream_->synchronize();
  }

  Result<std::byte*> allocate_uninitialized(size_t bytes) override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    void* data = nullptr;
    cudaError_t code = cudaMallocFromPoolAsync(&data, bytes, pool_, queue());
    if (code == cudaErrorMemoryAllocation) {  // perhaps for want of one piece: without what is kept
      (void)cudaGetLastError();
      LMN_RETURN_IF_ERROR(stream_->synchronize());
      (void)cudaMemPoolTrimTo(pool_, 0);
      code = cudaMallocFromPoolAsync(&data, bytes, pool_, queue());
    }
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      const Result<DeviceMemory> now = memory();
      return error(Code::kOutOfMemory, "device %s: %.1f MiB asked for, %.1f of %.1f MiB are free",
                   name().c_str(), mebibytes(static_cast<int64_t>(bytes)),
                   now.ok() ? mebibytes(now->free) : 0, now.ok() ? mebibytes(now->total) : 0);
    }
    LMN_RETURN_IF_ERROR(health_.map(code, "allocating memory"));
    const Status status = stream_->synchronize();  // other streams may use it from now on
    if (status.ok()) return static_cast<std::byte*>(data);
    release(static_cast<std::byte*>(data), bytes);
    return status;
  }

  void release(std::byte* data, size_t) override {
    const CurrentDevice current(context_);
    (void)cudaFreeAsync(data, queue());  // called by destructors: nobody to tell
  }

  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    LMN_RETURN_IF_ERROR(stream_->copy_from_host(device, host, bytes));
    return stream_->synchronize();
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    LMN_RETURN_IF_ERROR(stream_->copy_to_host(host, device, bytes));
    return stream_->synchronize();
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    LMN_RETURN_IF_ERROR(stream_->copy(to, from, bytes));
    return stream_->synchronize();
  }

  Result<std::unique_ptr<Stream>> create_stream() override {
    return create_cuda_stream(ordinal_, context_, health_, overlaps_);
  }

  Result<std::byte*> allocate_pinned(size_t bytes) override {
    LMN_RETURN_IF_ERROR(health_.check());
    const CurrentDevice current(context_);
    void* data = nullptr;
    const cudaError_t code = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return error(Code::kOutOfMemory, "device %s: %.1f MiB of page-locked host memory",
                   name().c_str(), mebibytes(static_cast<int64_t>(bytes)));
    }
    LMN_RETURN_IF_ERROR(health_.map(code, "allocating page-locked memory"));
    std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{0});
    return static_cast<std::byte*>(data);
  }
  void release_pinned(std::byte* data, size_t) override {
    const CurrentDevice current(context_);
    (void)cudaFreeHost(data);
  }

  Result<DeviceMemory> memory() const override {
    const CurrentDevice current(context_);
    size_t free = 0, total = 0;
    const cudaError_t code = cudaMemGetInfo(&free, &total);
    if (code != cudaSuccess) {
      return error(Code::kInternal, "device %s does not tell its memory: %s", name().c_str(),
                   cudaGetErrorString(code));
    }
    uint64_t reserved = 0, used = 0;  // the pool's: what it keeps is free to us
    (void)cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved);
    (void)cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used);
    const int64_t ours = static_cast<int64_t>(free) + static_cast<int64_t>(reserved - used);
    const auto all = static_cast<int64_t>(total);
    return DeviceMemory{std::max<int64_t>(0, ours - std::min(kHeadroom, all / 32)), all};
  }

 private:
  static double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
  cudaStream_t queue() const { return static_cast<cudaStream_t>(stream_->handle()); }

  const int ordinal_;
  const Traits traits_;
  const std::string target_;
  bool overlaps_ = false;
  mutable Health health_;
  Context context_;
  const CublasLt products_;
  std::unique_ptr<Stream> stream_;  // of allocations and of copies that are waited for
  cudaMemPool_t pool_ = nullptr;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const char* remedy_of(cudaError_t code) {
  switch (code) {
    case cudaErrorStubLibrary:
      return "the libcuda.so.1 that was found is the toolkit's stub for linking: take its folder out "
             "of LD_LIBRARY_PATH";
    case cudaErrorSystemNotReady:
      return "a machine with NVSwitch needs the service nvidia-fabricmanager, of the driver's "
             "version: start that";
    case cudaErrorSystemDriverMismatch:
      return "the driver's library and its kernel module are of different versions: start the "
             "machine again";
    case cudaErrorCompatNotSupportedOnDevice:
      return "this GPU does not take a library of cuda-compat: take its folder out of "
             "LD_LIBRARY_PATH";
    default:
      return "nvidia-smi and the kernel's log tell more";
  }
}

// Why there is no device, in the words of somebody who can change it.
Status no_device(cudaError_t code, int ordinal) {
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  (void)cudaGetLastError();
  const int needed = std::max(runtime / 1000 * 1000, kOldestDriver);
  if (driver == 0) {
    return error(Code::kUnsupported,
                 "device cuda:%d: no NVIDIA driver that can be loaded (libcuda.so.1) on this "
                 "machine; install one for CUDA %s or newer, or use device \"cpu\"",
                 ordinal, version_text(needed).c_str());
  }
  if (code == cudaErrorInsufficientDriver) {
    return error(Code::kUnsupported,
                 "device cuda:%d: the NVIDIA driver is made for CUDA %s, this library needs %s; "
                 "install a newer driver, build the library with an older toolkit (12.4 or newer), "
                 "or use device \"cpu\"",
                 ordinal, version_text(driver).c_str(), version_text(needed).c_str());
  }
  if (code == cudaErrorNoDevice) {
    return error(Code::kUnsupported,
                 "device cuda:%d: the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES is %s); "
                 "use device \"cpu\"",
                 ordinal, std::getenv("CUDA_VISIBLE_DEVICES") == nullptr ? "not set" : "set");
  }
  return error(Code::kInternal, "device cuda:%d cannot be used: %s (%s); %s, or use device \"cpu\"",
               ordinal, cudaGetErrorString(code), cudaGetErrorName(code), remedy_of(code));
}

}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(int ordinal) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0)
    return no_device(code == cudaSuccess ? cudaErrorNoDevice : code, ordinal);
  if (ordinal < 0 || ordinal >= count) {
    return error(Code::kUnsupported, "device cuda:%d: there are %d devices, cuda:0 to cuda:%d",
                 ordinal, count, count - 1);
  }
  Traits traits;
  if (const cudaError_t asked = traits.read(ordinal); asked != cudaSuccess)
    return no_device(asked, ordinal);
  if (traits.major < kOldestMajor) {
    return error(Code::kUnsupported,
                 "device cuda:%d is of compute capability %d.%d; the kernels need 8.0 (Ampere) or "
                 "newer: use device \"cpu\"",
                 ordinal, traits.major, traits.minor);
  }
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  if (driver < kOldestDriver) {
    return error(Code::kUnsupported,
                 "device cuda:%d: the NVIDIA driver is made for CUDA %s; install one for %s or "
                 "newer, or use device \"cpu\"",
                 ordinal, version_text(driver).c_str(), version_text(kOldestDriver).c_str());
  }
  if (traits.has_pools == 0) {
    return error(Code::kUnsupported,
                 "device cuda:%d: the driver offers no memory pools on it, as under some "
                 "virtualisation; use device \"cpu\"",
                 ordinal);
  }
  if (traits.shared_bytes < static_cast<int>(kMostSharedBytes)) {
    return error(Code::kUnsupported,
                 "device cuda:%d: a block may have %d bytes of shared memory, kernels need %u; use "
                 "device \"cpu\"",
                 ordinal, traits.shared_bytes, kMostSharedBytes);
  }
  auto device = std::make_unique<CudaDevice>(ordinal, traits);
  LMN_RETURN_IF_ERROR(device->open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace lmn::cuda
