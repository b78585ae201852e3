// SPDX-License-Identifier: Apache-2.0
#include "memory/large_store.h"

#include <algorithm>

#include "memory/poison.h"

namespace lmn::memory {

Result<Span*> LargeStore::allocate(size_t rounded) {
  if (records_.size() >= kSizes && !records_.contains(rounded)) {
    std::erase_if(records_, [](const auto& entry) { return entry.second.alive == 0; });
  }
  try {
    Record& record = records_[rounded];
    if (record.seen < kPromoteAfter) ++record.seen;
    if (!record.kept.empty()) {
      Span* span = record.kept.back();
      record.kept.pop_back();
      kept_bytes_ -= rounded;
      span->state = SpanState::kFull;
      span->links()[0].store(kAllocated, std::memory_order_relaxed);
      span->count_taken();
      return span;
    }
    record.kept.reserve(record.alive + 1);  // so that free needs no memory
    spans_.reserve(spans_.size() + 1);
    LMN_ASSIGN_OR_RETURN(std::byte * base, source_.reserve(rounded));
    Span* span = Span::create_large(base, rounded);
    if (span == nullptr || !map_.set(base, 1, span)) {
      if (span != nullptr) Span::destroy(span);
      source_.release(base, rounded);
      return error(Code::kOutOfMemory, "memory pool: no memory for a record of %zu bytes", rounded);
    }
    ++record.alive;
    spans_.push_back(span);
    return span;
  } catch (...) {
    return error(Code::kOutOfMemory, "memory pool: no memory for a record of %zu bytes", rounded);
  }
}

bool LargeStore::has_kept(size_t rounded) const {
  const auto record = records_.find(rounded);
  return record != records_.end() && !record->second.kept.empty();
}

void LargeStore::free(Span* span) {
  Record& record = records_[span->size];  // there while one is alive
  if (record.seen < kPromoteAfter || kept_bytes_ + span->size > keep_bytes_) return destroy(span);
  span->links()[0].store(kNoObject, std::memory_order_relaxed);
  span->count_freed(1);
  span->state = SpanState::kCached;
  record.kept.push_back(span);
  kept_bytes_ += span->size;
}

void LargeStore::destroy(Span* span) {
  --records_[span->size].alive;
  release(span);
}

void LargeStore::release(Span* span) {
  (void)map_.set(span->base, 1, nullptr);
  spans_.erase(std::find(spans_.begin(), spans_.end(), span));
  unpoison(span->base, span->size);
  source_.release(span->base, span->size);
  Span::destroy(span);
}

size_t LargeStore::trim() {
  const size_t bytes = kept_bytes_;
  for (auto& [size, record] : records_) {
    record.alive -= record.kept.size();
    for (Span* span : record.kept) release(span);
    record.kept.clear();
  }
  kept_bytes_ = 0;
  return bytes;
}

size_t LargeStore::promoted_sizes() const {
  return static_cast<size_t>(std::count_if(records_.begin(), records_.end(), [](const auto& entry) {
    return entry.second.seen >= kPromoteAfter;
  }));
}

}  // namespace lmn::memory
