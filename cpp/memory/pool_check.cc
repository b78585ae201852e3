// SPDX-License-Identifier: Apache-2.0
//
// The walker of invariants: every span of every block, every list of every cache, and the figures
// that are kept beside them. It changes nothing, and reads the memory of objects for their canaries
// only.
#include <vector>

#include "memory/pool.h"

// A Status that names the broken invariant.
#define LMN_BROKEN(...) error(Code::kInternal, "memory pool: " __VA_ARGS__)

namespace lmn::memory {

class PoolChecker {
 public:
  explicit PoolChecker(const Pool& pool) : pool_(pool) {}

  Status run() {
    for (const PageHeap::Block& block : pool_.heap_.blocks()) {
      LMN_RETURN_IF_ERROR(check_block(block));
    }
    for (Span* span : pool_.large_.spans()) LMN_RETURN_IF_ERROR(check_large(span));
    if (held_ != pool_.held_) {
      return LMN_BROKEN("the pool says it holds %zu bytes, and its spans %zu", pool_.held_, held_);
    }
    LMN_RETURN_IF_ERROR(check_cache(pool_.central_));
    for (const auto& cache : pool_.caches_) LMN_RETURN_IF_ERROR(check_cache(*cache));
    if (listed_ != expected_listed_) {
      return LMN_BROKEN("%zu spans are on lists of caches, and %zu should be", listed_,
                        expected_listed_);
    }
    return pool_.debugger_.first_fault();
  }

 private:
  Status check_block(const PageHeap::Block& block) {
    size_t taken = 0;
    for (size_t page = 0; page < block.pages;) {
      const std::byte* at = block.base + page * kPageBytes;
      Span* span = pool_.map_.find(at);
      if ((span != nullptr) != block.taken.get(page)) {
        return LMN_BROKEN("page %p is %s, and the page map says otherwise",
                          static_cast<const void*>(at), block.taken.get(page) ? "taken" : "free");
      }
      if (span == nullptr) {
        ++page;
        continue;
      }
      if (span->base != at || span->pages == 0 || span->pages > block.pages - page) {
        return LMN_BROKEN("the span of page %p starts at %p and has %u pages",
                          static_cast<const void*>(at), static_cast<void*>(span->base),
                          span->pages);
      }
      for (size_t i = 0; i < span->pages; ++i) {
        if (!block.taken.get(page + i) || pool_.map_.find(at + i * kPageBytes) != span) {
          return LMN_BROKEN("page %zu of the span at %p is not its own", i,
                            static_cast<void*>(span->base));
        }
      }
      LMN_RETURN_IF_ERROR(check_span(span));
      page += span->pages;
      taken += span->pages;
      held_ += span->bytes();
    }
    if (taken != block.taken_pages) {
      return LMN_BROKEN("block %p counts %zu pages in use and has %zu",
                        static_cast<void*>(block.base), block.taken_pages, taken);
    }
    return {};
  }

  // Follows a list of free objects and marks them; the number of them in *count.
  Status walk(Span* span, uint16_t first, std::vector<bool>& seen, uint32_t* count) {
    for (uint16_t at = first; at != kNoObject;
         at = span->links()[at].load(std::memory_order_relaxed)) {
      if (at >= span->capacity) {
        return LMN_BROKEN("a free list of the span at %p leads to object %u of %u",
                          static_cast<void*>(span->base), static_cast<unsigned>(at),
                          span->capacity);
      }
      if (seen[at]) {
        return LMN_BROKEN("object %u of the span at %p is free twice", static_cast<unsigned>(at),
                          static_cast<void*>(span->base));
      }
      seen[at] = true;
      ++*count;
    }
    return {};
  }

  Status check_span(Span* span) {
    void* base = span->base;
    if (span->size_class >= kClassCount || span->size != class_bytes(span->size_class) ||
        span->capacity != span->bytes() / span->size) {
      return LMN_BROKEN("the span at %p has class %u, objects of %zu bytes, %u of them", base,
                        static_cast<unsigned>(span->size_class), span->size, span->capacity);
    }
    std::vector<bool> seen(span->capacity);
    uint32_t free = 0, returned = 0;
    LMN_RETURN_IF_ERROR(walk(span, span->head, seen, &free));
    LMN_RETURN_IF_ERROR(walk(span, span->remote.load(std::memory_order_acquire), seen, &returned));
    const uint32_t used = span->used();
    if (used + free != span->capacity) {
      return LMN_BROKEN("the span at %p has %u objects used and %u free of %u", base, used, free,
                        span->capacity);
    }
    for (uint32_t i = 0; i < span->capacity; ++i) {
      const uint16_t link = span->links()[i].load(std::memory_order_relaxed);
      if (seen[i]) continue;
      if (link != kAllocated && !(pool_.debugger_.on() && link == kQuarantined)) {
        return LMN_BROKEN("object %u of the span at %p is on no list and not allocated", i, base);
      }
      if (link == kAllocated && pool_.debugger_.on() && !pool_.debugger_.canary_is_whole(span, i)) {
        return fault_status(Fault::kOverrun, span->object(i));
      }
    }
    const bool listed = span->state != SpanState::kFull;
    expected_listed_ += listed ? 1 : 0;
    if (!listed && free > 0) return LMN_BROKEN("the span at %p has free objects and no list", base);
    if (span->state == SpanState::kEmpty && used > 0) {
      return LMN_BROKEN("the span at %p is called empty and has %u objects used", base, used);
    }
    return {};
  }

  Status check_large(Span* span) {
    void* base = span->base;
    if (pool_.map_.find(base) != span) return LMN_BROKEN("large %p is not in the page map", base);
    const bool used = span->links()[0].load(std::memory_order_relaxed) == kAllocated;
    if (used == (span->state == SpanState::kCached)) {
      return LMN_BROKEN("large %p is kept and allocated at once, or neither", base);
    }
    if (used && pool_.debugger_.on() && !pool_.debugger_.canary_is_whole(span, 0)) {
      return fault_status(Fault::kOverrun, base);
    }
    held_ += span->size;
    return {};
  }

  Status check_member(const ThreadCache& cache, size_t bin, const Span* span, SpanState state) {
    if (span->state != state || span->size_class != bin ||
        span->owner.load(std::memory_order_relaxed) != &cache) {
      return LMN_BROKEN("the span at %p is on the wrong list", static_cast<void*>(span->base));
    }
    if (++listed_ > expected_listed_) return LMN_BROKEN("a list of class %zu does not end", bin);
    return {};
  }

  Status check_cache(const ThreadCache& cache) {
    size_t empty_bytes = 0;
    for (size_t i = 0; i < cache.bins.size(); ++i) {
      const Bin& bin = cache.bins[i];
      if (bin.current->capacity > 0) {
        LMN_RETURN_IF_ERROR(check_member(cache, i, bin.current, SpanState::kCurrent));
      }
      for (const Span* span = bin.partial; span != nullptr; span = span->next) {
        LMN_RETURN_IF_ERROR(check_member(cache, i, span, SpanState::kPartial));
      }
      for (const Span* span = bin.empty; span != nullptr; span = span->next) {
        LMN_RETURN_IF_ERROR(check_member(cache, i, span, SpanState::kEmpty));
        empty_bytes += span->bytes();
      }
    }
    if (empty_bytes != cache.empty_bytes) {
      return LMN_BROKEN("a cache counts %zu bytes of empty spans and has %zu", cache.empty_bytes,
                        empty_bytes);
    }
    return {};
  }

  const Pool& pool_;
  size_t held_ = 0, listed_ = 0, expected_listed_ = 0;
};

Status Pool::check() const {
  if (is_inherited()) return {};
  const std::lock_guard hold(lock_);
  try {
    return PoolChecker(*this).run();
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "memory pool: no memory for the check");
  }
}

}  // namespace lmn::memory
