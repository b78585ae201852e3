// SPDX-License-Identifier: Apache-2.0
#include "engine/page_pool.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace lmn::engine {

PagePool::PagePool(int32_t pages, bool prefix_index) : pages_(static_cast<size_t>(pages)) {
  free_.reserve(pages_.size());
  for (int32_t page = pages; page-- > 0;) free_.push_back(page);
  if (!prefix_index) return;
  tokens_.resize(pages_.size() * kKvPageTokens);
  buckets_.assign(std::bit_ceil(pages_.size() + 1), kNoPage);
}

int32_t PagePool::allocate() {
  ++changes_;
  if (free_.empty()) {
    if (oldest_ == kNoPage) return kNoPage;
    const int32_t page = oldest_;
    unlink_cached(page);
    forget(page);
    free_.push_back(page);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  at(page).holders = 1;
  return page;
}

void PagePool::retain(int32_t page) {
  if (at(page).holders++ == 0) {
    LMN_CHECK(at(page).published);  // a free page has nothing to hold
    unlink_cached(page);
  }
}

bool PagePool::release(int32_t page) {
  ++changes_;
  LMN_CHECK(at(page).holders > 0);
  if (--at(page).holders > 0) return false;
  if (at(page).published) {
    push_newest(page);
    return false;
  }
  free_.push_back(page);
  return true;
}

int32_t PagePool::match(std::span<const int32_t> tokens, int32_t max_pages,
                        std::vector<int32_t>& pages) {
  if (buckets_.empty()) return 0;
  const auto whole = static_cast<int32_t>(tokens.size()) / kKvPageTokens;
  const int32_t limit = std::min(whole, max_pages);
  int32_t before = kNoPage, count = 0;
  for (; count < limit; ++count) {
    const int32_t page = find(before, tokens.data() + int64_t{count} * kKvPageTokens);
    if (page == kNoPage) break;
    retain(page);
    pages.push_back(page);
    before = page;
  }
  return count;
}

int32_t PagePool::publish(int32_t before, const int32_t* tokens, int32_t page) {
  if (buckets_.empty()) return page;
  LMN_CHECK(at(page).holders > 0 && !at(page).published);
  LMN_CHECK(before == kNoPage || (at(before).published && at(before).holders > 0));
  const int32_t equal = find(before, tokens);
  if (equal != kNoPage) {
    retain(equal);
    release(page);
    return equal;
  }
  ++changes_;
  std::copy_n(tokens, kKvPageTokens, tokens_of(page));
  int32_t& bucket = bucket_of(before, tokens);
  at(page).published = true;
  at(page).before = before;
  at(page).next_in_bucket = bucket;
  bucket = page;
  return page;
}

int32_t& PagePool::bucket_of(int32_t before, const int32_t* tokens) {
  // Multiply and fold, a token at a time: equal hashes cost a comparison, not a wrong answer.
  uint64_t hash = static_cast<uint32_t>(before);
  for (int32_t i = 0; i < kKvPageTokens; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return buckets_[hash & (buckets_.size() - 1)];
}

int32_t PagePool::find(int32_t before, const int32_t* tokens) {
  int32_t page = bucket_of(before, tokens);
  while (page != kNoPage && (at(page).before != before ||
                             !std::equal(tokens, tokens + kKvPageTokens, tokens_of(page))))
    page = at(page).next_in_bucket;
  return page;
}

void PagePool::forget(int32_t page) {
  int32_t* link = &bucket_of(at(page).before, tokens_of(page));
  while (*link != page) link = &at(*link).next_in_bucket;
  *link = at(page).next_in_bucket;
  at(page).published = false;
  at(page).before = kNoPage;
}

void PagePool::push_newest(int32_t page) {
  at(page).older = newest_;
  at(page).newer = kNoPage;
  (newest_ == kNoPage ? oldest_ : at(newest_).newer) = page;
  newest_ = page;
  ++cached_;
}

void PagePool::unlink_cached(int32_t page) {
  const Page& p = at(page);
  (p.older == kNoPage ? oldest_ : at(p.older).newer) = p.newer;
  (p.newer == kNoPage ? newest_ : at(p.newer).older) = p.older;
  --cached_;
}

}  // namespace lmn::engine
