// SPDX-License-Identifier: Apache-2.0
#include "memory/page_map.h"

#include <sys/mman.h>

namespace lmn::memory {

Result<PageMap> PageMap::create() {
  PageMap map;
  LMN_ASSIGN_OR_RETURN(map.top_, OsBlock::create(kEntries * sizeof(Top), "memory pool's page map"));
  return map;
}

PageMap::~PageMap() {
  if (top_.data() == nullptr) return;
  for (size_t i = 0; i < kEntries; ++i) {
    if (Entry* leaf = top()[i].load(std::memory_order_relaxed)) {
      (void)munmap(leaf, kEntries * sizeof(Entry));
    }
  }
}

bool PageMap::set(const std::byte* base, size_t pages, Span* span) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(base) >> kPageShift;
  if ((first + pages - 1) >> 32 != 0) return false;
  for (uintptr_t page = first; page < first + pages; page = (page | (kEntries - 1)) + 1) {
    Top& slot = top()[page / kEntries];
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    Result<OsBlock> leaf = OsBlock::create(kEntries * sizeof(Entry), "memory pool's page map");
    if (!leaf.ok()) return false;
    slot.store(reinterpret_cast<Entry*>(leaf->detach()), std::memory_order_release);
  }
  for (uintptr_t page = first; page < first + pages; ++page) {
    Entry* leaf = top()[page / kEntries].load(std::memory_order_relaxed);
    leaf[page % kEntries].store(span, std::memory_order_release);
  }
  return true;
}

}  // namespace lmn::memory
