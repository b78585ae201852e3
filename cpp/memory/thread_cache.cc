// SPDX-License-Identifier: Apache-2.0
#include "memory/thread_cache.h"

namespace lmn::memory {
namespace {

// What a bin without a span allocates from: nothing free, so nobody writes it.
constinit Span no_span;

void unlink(Span*& list, Span* span) {
  (span->previous != nullptr ? span->previous->next : list) = span->next;
  if (span->next != nullptr) span->next->previous = span->previous;
  span->previous = span->next = nullptr;
}

void link(Span*& list, Span* span) {
  span->previous = nullptr;
  span->next = list;
  if (list != nullptr) list->previous = span;
  list = span;
}

}  // namespace

Bin::Bin() : current(&no_span) {}

bool return_remote(Span* span, uint16_t index) {
  std::atomic<uint16_t>& link = span->links()[index];
  uint16_t expected = kAllocated;
  if (!link.compare_exchange_strong(expected, kNoObject, std::memory_order_relaxed)) return false;
  uint16_t head = span->remote.load(std::memory_order_relaxed);
  do {
    link.store(head, std::memory_order_relaxed);
  } while (!span->remote.compare_exchange_weak(head, index, std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
  if (head == kNoObject) push_returned(span);
  return true;
}

void push_returned(Span* span) {
  std::atomic<Span*>& stack = span->owner.load(std::memory_order_acquire)->returned;
  Span* top = stack.load(std::memory_order_relaxed);
  do {
    span->next_returned = top;
  } while (!stack.compare_exchange_weak(top, span, std::memory_order_release,
                                        std::memory_order_relaxed));
}

void ThreadCache::make_current(Bin& bin, Span* span) {
  if (bin.current != &no_span) bin.current->state = SpanState::kFull;
  span->state = SpanState::kCurrent;
  bin.current = span;
}

bool ThreadCache::advance(Bin& bin) {
  Span* span = bin.partial != nullptr ? bin.partial : bin.empty;
  if (span == nullptr) return false;
  remove(span);
  make_current(bin, span);
  return true;
}

void ThreadCache::remove(Span* span) {
  Bin& bin = bin_of(span);
  if (span->state == SpanState::kCurrent) bin.current = &no_span;
  if (span->state == SpanState::kPartial) unlink(bin.partial, span);
  if (span->state == SpanState::kEmpty) {
    unlink(bin.empty, span);
    empty_bytes -= span->bytes();
  }
  span->state = SpanState::kFull;
}

void ThreadCache::insert(Span* span) {
  Bin& bin = bin_of(span);
  if (span->head == kNoObject) {
    span->state = SpanState::kFull;
  } else if (span->used() > 0) {
    span->state = SpanState::kPartial;
    link(bin.partial, span);
  } else {
    span->state = SpanState::kEmpty;
    span->free_all();
    link(bin.empty, span);
    empty_bytes += span->bytes();
  }
}

bool ThreadCache::settle(Span* span) {
  if (span->state == SpanState::kCurrent) return false;
  remove(span);
  if (span->used() == 0 && empty_bytes + span->bytes() > kEmptyBytes) {
    return true;
  }
  insert(span);
  return false;
}

void ThreadCache::drain() {
  if (returned.load(std::memory_order_relaxed) == nullptr) return;
  Span* span = returned.exchange(nullptr, std::memory_order_acquire);
  while (span != nullptr) {
    Span* below = span->next_returned;
    if (span->owner.load(std::memory_order_relaxed) != this) {
      push_returned(span);
    } else {
      // From here on the span may be put on the stack again.
      const uint16_t first = span->remote.exchange(kNoObject, std::memory_order_acq_rel);
      uint16_t last = first;
      uint32_t count = 1;
      for (uint16_t next; (next = span->links()[last].load(std::memory_order_relaxed)) != kNoObject;
           last = next) {
        ++count;
      }
      span->links()[last].store(span->head, std::memory_order_relaxed);
      span->head = first;
      span->count_freed(count);
      if (span->state != SpanState::kCurrent) {
        // Kept even if beyond the limit: only the pool can take it, at the next chance.
        remove(span);
        insert(span);
      }
    }
    span = below;
  }
}

}  // namespace lmn::memory
