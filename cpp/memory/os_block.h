// SPDX-License-Identifier: Apache-2.0
//
// OsBlock: zeroed pages straight from the operating system (anonymous mmap). Reserved at once,
// backed with memory only where touched; a whole number of pages, aligned to the page, and to 2 MiB
// from that size on, with huge pages advised. It knows no policy: size classes and caches are built
// above it.
#pragma once

#include <cstddef>
#include <utility>

#include "core/status.h"

namespace lmn::memory {

class OsBlock {
 public:
  OsBlock() = default;
  // `bytes` > 0. OUT_OF_MEMORY names the size and `purpose` ("KV cache").
  static Result<OsBlock> create(size_t bytes, const char* purpose);
  OsBlock(OsBlock&& other) noexcept;
  OsBlock& operator=(OsBlock&& other) noexcept;
  ~OsBlock();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // as asked for, rounded up to pages
  // The pages without the object, which is empty then: whoever takes them unmaps them.
  std::byte* detach() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lmn::memory
