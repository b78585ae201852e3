// SPDX-License-Identifier: Apache-2.0
//
// PageHeap: blocks of a source, cut into runs of pages. First fit, lowest address first, so that
// live memory stays dense and the rest can be given back; a bit a page says what is taken, so
// neighbours that are free are one run without being merged. It knows no spans and no sizes. Used
// under the pool's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/block_source.h"
#include "memory/size_class.h"

namespace lmn::memory {

// One bit for each page of a block.
class PageBits {
 public:
  explicit PageBits(size_t pages) : words_((pages + 63) / 64) {}
  bool get(size_t page) const { return (words_[page / 64] >> (page % 64) & 1) != 0; }
  void assign(size_t first, size_t count, bool value);
  // First page at or after `from` whose bit is `value`; `end` when there is none before it.
  size_t find(size_t from, size_t end, bool value) const;

 private:
  std::vector<uint64_t> words_;
};

class PageHeap {
 public:
  struct Block {
    std::byte* base;
    size_t pages;
    PageBits taken;      // handed out
    PageBits touched;    // handed out at some time since it was last given back: may cost memory
    size_t taken_pages;  // how many are
  };

  PageHeap(BlockSource& source, size_t block_bytes) : source_(source), block_bytes_(block_bytes) {}
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;
  ~PageHeap();

  // A run of pages from a block, a new one if need be. When the source refuses a whole block,
  // halves of it are tried, down to what is needed.
  Result<std::byte*> allocate(size_t pages);
  void free(std::byte* base, size_t pages);
  // Gives the memory of free pages back: whole blocks with their addresses, parts without. Returns
  // the bytes that may have been backed.
  size_t trim();

  const std::vector<Block>& blocks() const { return blocks_; }
  size_t reserved_bytes() const;

 private:
  static std::byte* take_from(Block& block, size_t pages);  // nullptr: no run that long
  BlockSource& source_;
  const size_t block_bytes_;
  std::vector<Block> blocks_;  // by address
};

}  // namespace lmn::memory
