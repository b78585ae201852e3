// SPDX-License-Identifier: Apache-2.0
//
// LargeStore: allocations above the largest class. Each comes from the block source and goes back
// to it, and is recorded by its size (rounded up to pages); a size seen kPromoteAfter times has
// earned a class of its own: freed memory of that size is kept, up to a limit over all sizes, and
// the next request takes it without asking the system. Used under the pool's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "memory/block_source.h"
#include "memory/page_map.h"

namespace lmn::memory {

class LargeStore {
 public:
  static constexpr uint32_t kPromoteAfter = 4;  // requests: the next one may profit
  // Sizes recorded at once; at a new one beyond, the records without kept memory start anew.
  static constexpr size_t kSizes = 1024;

  LargeStore(BlockSource& source, PageMap& map, size_t keep_bytes)
      : source_(source), map_(map), keep_bytes_(keep_bytes) {}
  LargeStore(const LargeStore&) = delete;
  LargeStore& operator=(const LargeStore&) = delete;
  ~LargeStore() { (void)trim(); }

  // `rounded`: a multiple of pages. The span's object is marked as allocated.
  Result<Span*> allocate(size_t rounded);
  bool has_kept(size_t rounded) const;
  void free(Span* span);     // an allocated span of this store
  void destroy(Span* span);  // the same, and nothing is kept
  size_t trim();             // gives back what is kept; returns its bytes

  size_t kept_bytes() const { return kept_bytes_; }
  size_t promoted_sizes() const;
  const std::vector<Span*>& spans() const { return spans_; }  // allocated and kept

 private:
  struct Record {
    uint32_t seen = 0;
    std::vector<Span*> kept;  // capacity for all of this size that were ever alive at once
    size_t alive = 0;         // allocated and kept
  };
  void release(Span* span);

  BlockSource& source_;
  PageMap& map_;
  const size_t keep_bytes_;
  size_t kept_bytes_ = 0;
  std::unordered_map<size_t, Record> records_;
  std::vector<Span*> spans_;
};

}  // namespace lmn::memory
