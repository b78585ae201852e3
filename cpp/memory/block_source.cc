// SPDX-License-Identifier: Apache-2.0
#include "memory/block_source.h"

#include <sys/mman.h>

#include <algorithm>

#include "memory/os_block.h"

namespace lmn::memory {
namespace {

// From this size on OsBlock aligns to it, which is more than a source has to promise.
constexpr size_t kAligned = size_t{2} << 20;

}  // namespace

Result<std::byte*> HostSource::reserve(size_t bytes) {
  LMN_ASSIGN_OR_RETURN(OsBlock block, OsBlock::create(std::max(bytes, kAligned), "memory pool"));
  return block.detach();
}

void HostSource::release(std::byte* data, size_t bytes) noexcept {
  (void)munmap(data, std::max(bytes, kAligned));
}

bool HostSource::decommit(std::byte* data, size_t bytes) noexcept {
  return madvise(data, bytes, MADV_DONTNEED) == 0;
}

}  // namespace lmn::memory
