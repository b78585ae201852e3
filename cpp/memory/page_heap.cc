// SPDX-License-Identifier: Apache-2.0
#include "memory/page_heap.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace lmn::memory {

void PageBits::assign(size_t first, size_t count, bool value) {
  for (size_t page = first; page < first + count;) {
    const size_t bit = page % 64, here = std::min(64 - bit, first + count - page);
    const uint64_t mask = (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << bit;
    if (value) {
      words_[page / 64] |= mask;
    } else {
      words_[page / 64] &= ~mask;
    }
    page += here;
  }
}

size_t PageBits::find(size_t from, size_t end, bool value) const {
  while (from < end) {
    const uint64_t word = (value ? words_[from / 64] : ~words_[from / 64]) >> (from % 64);
    if (word != 0) return std::min(end, from + static_cast<size_t>(std::countr_zero(word)));
    from = (from / 64 + 1) * 64;
  }
  return end;
}

PageHeap::~PageHeap() {
  for (const Block& block : blocks_) source_.release(block.base, block.pages * kPageBytes);
}

std::byte* PageHeap::take_from(Block& block, size_t pages) {
  if (block.pages - block.taken_pages < pages) return nullptr;
  for (size_t first = 0; (first = block.taken.find(first, block.pages, false)) < block.pages;) {
    const size_t end = block.taken.find(first, std::min(block.pages, first + pages), true);
    if (end - first == pages) {
      block.taken.assign(first, pages, true);
      block.touched.assign(first, pages, true);
      block.taken_pages += pages;
      return block.base + first * kPageBytes;
    }
    first = end;
  }
  return nullptr;
}

Result<std::byte*> PageHeap::allocate(size_t pages) {
  for (Block& block : blocks_) {
    if (std::byte* base = take_from(block, pages)) return base;
  }
  size_t bytes = std::max(block_bytes_, pages * kPageBytes);
  Result<std::byte*> base = source_.reserve(bytes);
  while (!base.ok() && bytes / 2 >= pages * kPageBytes) {
    bytes = bytes / 2 / kPageBytes * kPageBytes;
    base = source_.reserve(bytes);
  }
  if (!base.ok()) return std::move(base).status();
  const size_t count = bytes / kPageBytes;
  try {
    const auto place =
        std::upper_bound(blocks_.begin(), blocks_.end(), *base,
                         [](const std::byte* a, const Block& b) { return a < b.base; });
    const auto block =
        blocks_.insert(place, Block{*base, count, PageBits(count), PageBits(count), 0});
    return take_from(*block, pages);
  } catch (...) {
    source_.release(*base, bytes);
    return error(Code::kOutOfMemory, "memory pool: no memory for the record of a block");
  }
}

void PageHeap::free(std::byte* base, size_t pages) {
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), base,
                       [](const std::byte* a, const Block& b) { return a < b.base; });
  LMN_CHECK(after != blocks_.begin());
  Block& block = *std::prev(after);
  block.taken.assign(static_cast<size_t>(base - block.base) / kPageBytes, pages, false);
  block.taken_pages -= pages;
}

size_t PageHeap::trim() {
  size_t bytes = 0;
  std::erase_if(blocks_, [&](Block& block) {
    const bool whole = block.taken_pages == 0;
    for (size_t first = 0; first < block.pages;) {
      first = block.taken.find(first, block.pages, false);
      const size_t end = block.taken.find(first, block.pages, true);
      while ((first = block.touched.find(first, end, true)) < end) {
        const size_t stop = block.touched.find(first, end, false);
        if (!whole &&
            source_.decommit(block.base + first * kPageBytes, (stop - first) * kPageBytes)) {
          block.touched.assign(first, stop - first, false);
          bytes += (stop - first) * kPageBytes;
        }
        if (whole) bytes += (stop - first) * kPageBytes;
        first = stop;
      }
      first = end;
    }
    if (whole) source_.release(block.base, block.pages * kPageBytes);
    return whole;
  });
  return bytes;
}

size_t PageHeap::reserved_bytes() const {
  size_t pages = 0;
  for (const Block& block : blocks_) pages += block.pages;
  return pages * kPageBytes;
}

}  // namespace lmn::memory
