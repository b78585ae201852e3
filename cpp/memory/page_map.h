// SPDX-License-Identifier: Apache-2.0
//
// PageMap: which span an address belongs to, in two loads. A table of 2^16 leaves, each with one
// entry for every 64 KiB of 4 GiB: 48-bit addresses. Tables are reserved address space, backed
// where touched (8 bytes a page). Written under the pool's lock, read without.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "memory/os_block.h"
#include "memory/span.h"

namespace lmn::memory {

class PageMap {
 public:
  static Result<PageMap> create();
  PageMap() = default;
  PageMap(PageMap&&) noexcept = default;
  PageMap& operator=(PageMap&&) noexcept = default;
  ~PageMap();

  // nullptr for an address that no span holds, whatever it is.
  Span* find(const void* data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    if (address >> 48 != 0) [[unlikely]]
      return nullptr;
    const Entry* leaf = top()[address >> 32].load(std::memory_order_acquire);
    if (leaf == nullptr) [[unlikely]]
      return nullptr;
    return leaf[(address >> kPageShift) & (kEntries - 1)].load(std::memory_order_acquire);
  }

  // Enters `span` for `pages` pages from `base` on, or nullptr to forget them. False without memory
  // for a table, and then nothing has changed. Both tables: stored release, so that whoever finds a
  // span sees it complete (loaded acquire in find).
  bool set(const std::byte* base, size_t pages, Span* span);

 private:
  static constexpr size_t kEntries = size_t{1} << 16;
  using Entry = std::atomic<Span*>;
  using Top = std::atomic<Entry*>;

  Top* top() const { return reinterpret_cast<Top*>(top_.data()); }
  OsBlock top_;  // zeroed, which is a table of null pointers
};

}  // namespace lmn::memory
