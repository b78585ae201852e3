// SPDX-License-Identifier: Apache-2.0
//
// ThreadCache: the spans that one thread allocates from, a bin for each size class. Its thread
// alone uses it, without a lock or a locked instruction; other threads reach it by `returned` only.
// A pool has one more of them, guarded by its lock, for spans and threads without a cache.
//
// A bin allocates from its current span. One whose objects are all in use is dropped from all lists
// (kFull) and comes back when an object of it is freed. Spans without a used object are kept up to
// kEmptyBytes, so that a load that swings does not go through the pool's lock each time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/span.h"

namespace lmn::memory {

struct Bin {
  Span* current;  // never null: a span with nothing free when there is none
  Span* partial = nullptr;
  Span* empty = nullptr;
  Bin();
};

struct ThreadCache {
  // Two spans of the largest classes, or many small ones.
  static constexpr size_t kEmptyBytes = size_t{16} << 20;

  std::array<Bin, kClassCount> bins;
  // Asked for so far. Written by the owner alone, relaxed: for statistics.
  std::atomic<uint64_t> requested_bytes{0};
  size_t empty_bytes = 0;  // of spans on the lists `empty`
  // Stack of spans with returned objects, linked by next_returned. Push: CAS release after the push
  // onto the span's `remote`; emptied: exchange acquire.
  alignas(64) std::atomic<Span*> returned{nullptr};

  // Takes a free object of `span`, a current one that has one.
  std::byte* take(Span* span, size_t bytes) {
    const uint16_t index = span->head;
    std::atomic<uint16_t>& link = span->links()[index];
    span->head = link.load(std::memory_order_relaxed);
    link.store(kAllocated, std::memory_order_relaxed);
    span->count_taken();
    requested_bytes.store(requested_bytes.load(std::memory_order_relaxed) + bytes,
                          std::memory_order_relaxed);
    return span->object(index);
  }

  Bin& bin_of(const Span* span) { return bins[span->size_class]; }

  // Takes back what other threads returned. Spans that changed hands are passed on.
  void drain();
  // Makes a span of the bin's own lists current; false when they have none.
  bool advance(Bin& bin);
  void make_current(Bin& bin, Span* span);  // the former one had nothing free
  // After frees, to put a span on the list where it belongs now. True when it is empty and beyond
  // what may be kept: it is on no list then, and the pool takes it.
  [[nodiscard]] bool settle(Span* span);
  // Takes a span off the list, or out of the bin, where its state says it is.
  void remove(Span* span);
  void insert(Span* span);  // by its free and used objects: partial, empty or full
};

// Any thread: returns object `index`, and tells the owner. False when it is not in use.
bool return_remote(Span* span, uint16_t index);
// Any thread: puts a span with returned objects on its owner's stack.
void push_returned(Span* span);

}  // namespace lmn::memory
