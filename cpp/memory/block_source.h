// SPDX-License-Identifier: Apache-2.0
//
// BlockSource: where a pool's memory comes from. Everything that depends on the kind of memory
// (host, pinned, device) is behind this interface; the policy above it keeps its records elsewhere
// and never reads or writes a block, so memory that the CPU cannot address is served by the same
// code.
#pragma once

#include <cstddef>

#include "core/status.h"

namespace lmn::memory {

class BlockSource {
 public:
  virtual ~BlockSource() = default;

  virtual const char* name() const = 0;  // "host": for messages
  // Whether the CPU may read and write it: debug tiers fill and check it then.
  virtual bool host_addressable() const = 0;
  // Whether memory reads as zero when it was just reserved, or decommitted.
  virtual bool zeroed() const = 0;
  // `bytes` (a multiple of 64 KiB) of memory at an address that is a multiple of 64 KiB and below
  // 2^48; a source whose system promises less reserves more and cuts. OUT_OF_MEMORY names the size.
  // Called under the pool's lock: it must not call back.
  virtual Result<std::byte*> reserve(size_t bytes) = 0;
  virtual void release(std::byte* data, size_t bytes) noexcept = 0;
  // Gives the memory of a part back and keeps its addresses; what was in it is lost. False where
  // that cannot be done.
  virtual bool decommit(std::byte* data, size_t bytes) noexcept = 0;
};

// Anonymous pages of the operating system, backed where touched; huge pages advised.
class HostSource : public BlockSource {
 public:
  const char* name() const override { return "host"; }
  bool host_addressable() const override { return true; }
  bool zeroed() const override { return true; }
  Result<std::byte*> reserve(size_t bytes) override;
  void release(std::byte* data, size_t bytes) noexcept override;
  bool decommit(std::byte* data, size_t bytes) noexcept override;
};

}  // namespace lmn::memory
