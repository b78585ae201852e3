// SPDX-License-Identifier: Apache-2.0
//
// DeviceBlock: device memory with one owner. The device outlives it.
#pragma once

#include <cstddef>
#include <utility>

#include "core/device.h"

namespace lmn::plan {

class DeviceBlock {
 public:
  DeviceBlock() = default;
  // `bytes` may be 0: a block of nothing.
  static Result<DeviceBlock> create(Device& device, size_t bytes) {
    DeviceBlock block;
    if (bytes == 0) return block;
    LMN_ASSIGN_OR_RETURN(block.data_, device.allocate(bytes));
    block.device_ = &device;
    block.bytes_ = bytes;
    return block;
  }
  static Result<DeviceBlock> create_uninitialized(Device& device, size_t bytes) {
    DeviceBlock block;
    if (bytes == 0) return block;
    LMN_ASSIGN_OR_RETURN(block.data_, device.allocate_uninitialized(bytes));
    block.device_ = &device;
    block.bytes_ = bytes;
    return block;
  }
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBlock() {
    if (data_ != nullptr) device_->release(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// The same of page-locked host memory.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  static Result<PinnedBlock> create(Device& device, size_t bytes) {
    PinnedBlock block;
    if (bytes == 0) return block;
    LMN_ASSIGN_OR_RETURN(block.data_, device.allocate_pinned(bytes));
    block.device_ = &device;
    block.bytes_ = bytes;
    return block;
  }
  PinnedBlock(PinnedBlock&& other) noexcept { *this = std::move(other); }
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBlock() {
    if (data_ != nullptr) device_->release_pinned(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lmn::plan
