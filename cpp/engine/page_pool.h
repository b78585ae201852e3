// SPDX-License-Identifier: Apache-2.0
//
// PagePool: which pages of the KV cache are held, by how many sequences, and which of them are
// remembered. It knows page numbers and tokens, and nothing of memory. Of the engine thread alone.
//
// A page is free (no contents), used (held once or more), or cached (held by nobody, but
// published). A published page holds the keys and values of kKvPageTokens known tokens behind a
// known page: the index finds it by a hash of both and then compares both in full. Pages are
// published from the first of a sequence on, and of two equal ones the first stays, so the pages
// behind a published page are always the same ones.
//
// Cached pages are taken when no page is free, the one released longest ago first. Sequences
// release from their last page, so a page is always older in that order than the page before it:
// what is taken has no page behind it, and the index never holds a page whose beginning is gone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_cache.h"

namespace lmn::engine {

inline constexpr int32_t kNoPage = -1;

class PagePool {
 public:
  // Without the index, publish() remembers nothing.
  PagePool(int32_t pages, bool prefix_index);

  int32_t total() const { return static_cast<int32_t>(pages_.size()); }
  int32_t used() const { return total() - free() - cached(); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t cached() const { return cached_; }
  int32_t available() const { return free() + cached(); }  // to allocate()
  // Grows whenever pages are taken, given back or published.
  uint64_t changes() const { return changes_; }

  // A page that its caller holds alone, contents undefined; kNoPage when all are used.
  int32_t allocate();
  void retain(int32_t page);
  // True: nobody holds it any more and it is free.
  bool release(int32_t page);
  // Others hold it too, or it is published: who wants to write to it copies it first.
  bool shared(int32_t page) const { return at(page).holders > 1 || at(page).published; }

  // The longest chain of published pages that `tokens` begin with, at most max_pages. Appends them
  // to `pages`, held once more each, and returns how many.
  int32_t match(std::span<const int32_t> tokens, int32_t max_pages, std::vector<int32_t>& pages);

  // Remembers `page`, which the caller holds, as kKvPageTokens `tokens` behind page `before`
  // (published and held, or kNoPage). Where an equal page is known, the caller holds that one
  // afterwards instead of `page`. Returns the page that the caller holds.
  int32_t publish(int32_t before, const int32_t* tokens, int32_t page);

 private:
  struct Page {
    int32_t holders = 0;
    bool published = false;
    int32_t before = kNoPage;                  // when published
    int32_t next_in_bucket = kNoPage;          // when published
    int32_t older = kNoPage, newer = kNoPage;  // when cached
  };
  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  const Page& at(int32_t page) const { return pages_[static_cast<size_t>(page)]; }
  int32_t* tokens_of(int32_t page) {
    return tokens_.data() + static_cast<size_t>(page) * kKvPageTokens;
  }
  int32_t& bucket_of(int32_t before, const int32_t* tokens);
  int32_t find(int32_t before, const int32_t* tokens);
  void forget(int32_t page);
  void push_newest(int32_t page);
  void unlink_cached(int32_t page);

  std::vector<Page> pages_;
  std::vector<int32_t> tokens_;   // [pages, kKvPageTokens] of published pages
  std::vector<int32_t> buckets_;  // first page of each; a power of two of them
  std::vector<int32_t> free_;     // a stack: the page freed last, still warm, is the next one out
  int32_t oldest_ = kNoPage, newest_ = kNoPage;  // of the cached pages
  int32_t cached_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace lmn::engine
