// SPDX-License-Identifier: Apache-2.0
//
// Errors of the CUDA runtime as Status. Some leave the process's context of the device unusable, as
// that of a kernel that went astray: Health remembers the first such one, and every later call is
// refused with it.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "core/status.h"

namespace lmn::cuda {

class Health {
 public:
  explicit Health(std::string device) : device_(std::move(device)) {}

  // OK while the device lives.
  Status check() const {
    if (!closed_.load(std::memory_order_acquire)) return {};  // pairs with the store in fail()
    const std::lock_guard<std::mutex> lock(mutex_);
    return error(Code::kClosed, "device %s was closed by an earlier error: %s", device_.c_str(),
                 reason_.c_str());
  }

  // `what` was done with the result `code`.
  Status map(cudaError_t code, const char* what) {
    switch (code) {
      case cudaSuccess:
        return {};
      case cudaErrorMemoryAllocation:
        (void)cudaGetLastError();  // it does not stick
        return error(Code::kOutOfMemory, "device %s: %s: out of memory", device_.c_str(), what);
      case cudaErrorECCUncorrectable:
      case cudaErrorNvlinkUncorrectable:
      case cudaErrorIllegalAddress:
      case cudaErrorLaunchTimeout:
      case cudaErrorAssert:
      case cudaErrorHardwareStackError:
      case cudaErrorIllegalInstruction:
      case cudaErrorMisalignedAddress:
      case cudaErrorInvalidAddressSpace:
      case cudaErrorInvalidPc:
      case cudaErrorLaunchFailure:
      case cudaErrorDevicesUnavailable:
      case cudaErrorUnknown:
        return fail(code, what);
      default:
        if (ends_context(code)) return fail(code, what);
        (void)cudaGetLastError();
        return error(Code::kInternal, "device %s: %s: %s (%s)", device_.c_str(), what,
                     cudaGetErrorString(code), cudaGetErrorName(code));
    }
  }

 private:
  // Of errors that not every toolkit names: contained (226), tensor memory that leaked (721), a
  // client that MPS ended (810), an external device (911).
  static bool ends_context(int code) {
    return code == 226 || code == 721 || code == 810 || code == 911;
  }

  Status fail(cudaError_t code, const char* what) {
    const std::string reason =
        std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")";
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (reason_.empty()) reason_ = reason;
    }
    closed_.store(true, std::memory_order_release);
    return error(Code::kInternal,
                 "device %s failed: %s; it is closed, and what it computed is lost: start the "
                 "process again",
                 device_.c_str(), reason.c_str());
  }

  const std::string device_;
  std::atomic<bool> closed_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace lmn::cuda
