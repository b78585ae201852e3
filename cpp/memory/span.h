// SPDX-License-Identifier: Apache-2.0
//
// Span: the record of a run of pages that is cut into objects of one size class, or holds one
// large allocation. It lies outside the memory it describes.
//
// Each object has a link, which is its state as well: kAllocated, kQuarantined (debug tiers), or on
// a list, the index of the next object there (kNoObject: the last). So a second free of an object
// that is not in use is seen by the load that a free needs anyway.
//
// A span has one owner, a thread cache, whose thread alone touches the owner's part and the local
// list. All others return objects through `remote`, a list that is pushed to with CAS and emptied
// as a whole: no ABA. The push that finds it empty also puts the span on its owner's stack
// `returned`; the owner empties `remote` only for spans it took off that stack, so a span is on a
// stack at most once. Objects on `remote` count as used: the span outlives them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/size_class.h"

namespace lmn::memory {

struct ThreadCache;

inline constexpr uint16_t kAllocated = 0xFFFF;
inline constexpr uint16_t kNoObject = 0xFFFE;
inline constexpr uint16_t kQuarantined = 0xFFFD;
inline constexpr uint8_t kLargeClass = 0xFF;  // class of a span that is one large allocation

// Where a span is among its owner's; on no list unless said.
enum class SpanState : uint8_t {
  kCurrent,  // the one its bin allocates from
  kPartial,  // on the bin's list of those with free objects
  kEmpty,    // on the bin's list of those without a used one
  kFull,     // nothing free when last looked at
  kCached,   // large only: free, kept for the next request of its size
};

struct alignas(64) Span {
  // Constant after creation, but for the owner. Read by every thread that frees.
  std::byte* base = nullptr;
  size_t size = 0;  // bytes of an object; a multiple of 64
  uint64_t reciprocal = 0;
  // Pairs: stored release when a span changes hands (under the pool's lock, or by a thread that
  // gives up its own), loaded acquire by frees. A stale owner is harmless: its cache lives as long
  // as the pool, and whoever empties its stack passes the span on.
  std::atomic<ThreadCache*> owner{nullptr};
  uint32_t capacity = 0;  // objects
  uint32_t pages = 0;
  uint8_t size_class = kLargeClass;
  uint32_t* requested = nullptr;  // [capacity] bytes asked for; debug tiers only

  // The owner's.
  alignas(64) uint16_t head = kNoObject;  // local list of free objects
  SpanState state = SpanState::kFull;
  // Objects taken and given back so far. Written by the owner alone; relaxed: statistics of other
  // threads read them, and nothing depends on what those see.
  std::atomic<uint64_t> taken{0}, freed{0};
  Span* previous = nullptr;
  Span* next = nullptr;
  size_t large_bytes = 0;  // of a large allocation: what was asked for

  // Everybody's.
  // Push: CAS release, after the freeing thread's last use of the object; emptied: exchange acquire
  // by the owner. Pushes are read-modify-writes, so the acquire sees all of them. The other way
  // round, the exchange releases and the CAS acquires: who finds the list empty writes
  // next_returned, which the owner has read by then.
  alignas(64) std::atomic<uint16_t> remote{kNoObject};
  Span* next_returned = nullptr;  // below this one on the stack `returned`

  // [capacity + 1], behind the record; the last, which the rest of the last page falls on, is never
  // kAllocated. Relaxed: the list that an object is on orders it.
  std::atomic<uint16_t>* links() { return reinterpret_cast<std::atomic<uint16_t>*>(this + 1); }

  std::byte* object(uint32_t index) const { return base + index * size; }
  size_t bytes() const { return pages * kPageBytes; }
  uint32_t used() const {
    return static_cast<uint32_t>(taken.load(std::memory_order_relaxed) -
                                 freed.load(std::memory_order_relaxed));
  }
  void count_taken() {
    taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void count_freed(uint32_t count) {
    freed.store(freed.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }

  // Puts all objects on the local list, by address: what is allocated next lies in a row.
  void free_all();
  // Objects on `remote`. An estimate while others return some; the list cannot be followed astray.
  uint32_t count_returned();

  // A record over `pages` from `base` on, all objects free and in order; nullptr without memory.
  // With room for `requested` if asked.
  static Span* create(std::byte* base, int size_class, size_t pages, bool with_requested);
  static Span* create_large(std::byte* base, size_t bytes);  // one object, allocated
  static void destroy(Span* span);
};

}  // namespace lmn::memory
