// SPDX-License-Identifier: Apache-2.0
//
// DeviceBlock and PinnedBlock: device memory, and page-locked host memory, with one owner. The
// device outlives it.
#pragma once

#include <cstddef>
#include <utility>

#include "core/device.h"

namespace lmn::plan {

enum class BlockKind { kDevice, kPinned };

template <BlockKind kKind>
class Block {
 public:
  Block() = default;
  // `bytes` may be 0: a block of nothing.
  static Result<Block> create(Device& device, size_t bytes) {
    return take(device, bytes,
                kKind == BlockKind::kDevice ? &Device::allocate : &Device::allocate_pinned);
  }
  static Result<Block> create_uninitialized(Device& device,
                                            size_t bytes) requires(kKind == BlockKind::kDevice) {
    return take(device, bytes, &Device::allocate_uninitialized);
  }
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Block() {
    if (data_ == nullptr) return;
    if constexpr (kKind == BlockKind::kDevice) {
      device_->release(data_, bytes_);
    } else {
      device_->release_pinned(data_, bytes_);
    }
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static Result<Block> take(Device& device, size_t bytes,
                            Result<std::byte*> (Device::*allocate)(size_t)) {
    Block block;
    if (bytes == 0) return block;
    LMN_ASSIGN_OR_RETURN(block.data_, (device.*allocate)(bytes));
    block.device_ = &device;
    block.bytes_ = bytes;
    return block;
  }

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

using DeviceBlock = Block<BlockKind::kDevice>;
using PinnedBlock = Block<BlockKind::kPinned>;

}  // namespace lmn::plan
