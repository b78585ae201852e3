// SPDX-License-Identifier: Apache-2.0
//
// Pool: memory of any kind in size classes, with a cache for each thread. Read the room in the
// order in which an allocation falls through it:
//
//   size_class.h    the arithmetic of sizes
//   pool.h          this: the interface, and the two fast paths
//   thread_slots.h  how a thread finds its cache, and how it comes back
//   thread_cache.h  bins of spans; what one thread does without a lock
//   span.h          the record of a run of pages; free lists; how other threads return objects
//   page_map.h      address -> span
//   page_heap.h     blocks, cut into runs of pages
//   large_store.h   what is larger than the largest class; sizes that earn a class of their own
//   block_source.h  where blocks come from: host here; pinned and device memory implement the same
//   pool_debug.h    debug tiers and the walker of invariants
//   arena.h, pool_resource.h   on top: bump arenas, std::pmr
//   ledger.h        who holds how much
//
// Words: a *block* comes from the source (256 MiB); a *page* is 64 KiB of it; a *span* is a run of
// pages that serves one size class; an *object* is what a caller gets, aligned to 64 bytes at
// least. All records are kept outside the blocks, which the pool never reads or writes (debug tiers
// do, where the CPU can).
//
// What it costs. The floor of a pair is what has to be done when nothing goes wrong: find the
// thread's cache (2 loads) and the bin's span (1), pop an index (2 loads, 2 stores); for the free,
// address -> span (2 loads), index by a multiplication, check and push (2 loads, 2 stores), and
// three counters of private lines. That is 70 instructions, whose longest chain is two loads
// forwarded from stores, 10 cycles: at 4 instructions a cycle 17 cycles, 5.1 ns at 3.4 GHz.
// Measured there (`bench/run.py memory`): 6.4 ns up to 64 KiB, 8.1 ns at 1 MiB, where 8 objects
// fill a span and every eighth pair changes spans. The gap has not been taken
// apart. The benchmark's own floor is lower (0.8 ns): its loop over an array of addresses. An
// object that another thread frees costs both threads together 23 to 50 ns: two locked
// instructions, and the lines of span and link that move between the cores.
//
// Threads: every function may be called by any number of threads at once, but for check() and the
// destructor. Memory may be freed by any thread. A thread's cache comes back when it ends. A pool
// may be destroyed while threads that used it live on; their caches go with it, and so does memory
// that was not freed.
//
// Fork: a child may free what it inherited, and gets from an inherited pool what the forking
// thread's cache still holds; beyond that an allocation fails with CLOSED, since other threads may
// have held the lock. It never waits. It should make its own pool.
//
// Faults of callers, in the default tier (DebugTier::kOff): free of an address that is not the
// start of an object of this pool, and free of an object that is not in use, are reported by a
// Status and change nothing, at no cost: the loads that find it are needed anyway. Not found there:
// a second free after the object was allocated anew (the new holder loses it), two threads that
// free the same object in the same moment when one of them owns its span, and writes outside of
// allocations. The other tiers find more: see pool_debug.h.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "memory/block_source.h"
#include "memory/large_store.h"
#include "memory/page_heap.h"
#include "memory/page_map.h"
#include "memory/poison.h"
#include "memory/pool_debug.h"
#include "memory/thread_cache.h"
#include "memory/thread_slots.h"

namespace lmn::memory {

struct PoolOptions {
  size_t block_bytes = size_t{256} << 20;  // reserved at once; rounded up to pages, 64 KiB at least
  size_t limit_bytes = 0;                  // of spans and large allocations together; 0: none
  size_t keep_large_bytes = size_t{256} << 20;  // of freed large allocations of promoted sizes
  DebugTier debug = DebugTier::kOff;
};

// Bytes, unless said. Exact when no other thread is in the pool.
struct PoolStats {
  size_t reserved = 0;  // address space of blocks and large allocations
  size_t held = 0;      // pages of spans, and large allocations, kept ones among them
  size_t held_peak = 0;
  size_t in_use = 0;             // of allocated objects, by the size of their class
  size_t large_in_use = 0;       // of these, allocations above the largest class
  size_t large_kept = 0;         // of `held`: free, and kept for requests of their size
  uint64_t allocations = 0;      // number, so far
  uint64_t requested_total = 0;  // asked for by all allocations so far…
  uint64_t granted_total = 0;    // …and what they got
  uint32_t live = 0;             // number of allocated objects
  uint32_t spans = 0;            // number
  uint32_t blocks = 0;           // number
  uint32_t promoted_sizes = 0;   // number of large sizes with a class of their own
  uint32_t thread_caches = 0;    // number in use
  // Of what allocations got, the part that they did not ask for: 0 to 1.
  double internal_fragmentation() const {
    if (granted_total == 0) return 0;
    return 1 - static_cast<double>(requested_total) / static_cast<double>(granted_total);
  }
  // Of what is held, the part that no object uses: 0 to 1.
  double external_fragmentation() const {
    return held == 0 ? 0 : 1 - static_cast<double>(in_use) / static_cast<double>(held);
  }
};

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  static Result<std::shared_ptr<Pool>> create(
      const PoolOptions& options = {},
      std::unique_ptr<BlockSource> source = std::make_unique<HostSource>());
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  // Memory for `bytes` (0: as 1), not initialised. nullptr when the source or the limit refuses.
  std::byte* try_allocate(size_t bytes) noexcept;
  // The same; the error names the size, what is held, and the limit or the source's reason.
  Result<std::byte*> allocate(size_t bytes);
  // `alignment`: a power of two up to 64 KiB. nullptr as above, and for other alignments.
  std::byte* try_allocate_aligned(size_t bytes, size_t alignment) noexcept;

  // As try_allocate, but nullptr as well when the thread's cache has nothing at hand: never throws,
  // waits or calls anybody.
  std::byte* try_allocate_fast(size_t bytes) noexcept;

  // As allocate, but it reads as zero, and what came from a system that promises this is not
  // touched. For memory that the CPU can address, else UNSUPPORTED.
  Result<std::byte*> allocate_zeroed(size_t bytes);

  // Takes back what this pool gave out; nullptr is a no-op. INVALID_ARGUMENT for anything else, and
  // for what has been freed; in debug tiers CORRUPT when bytes behind it were written (it is
  // freed).
  Status free(void* data) {
    const Fault fault = try_free(data);
    if (fault == Fault::kNone) [[likely]]
      return {};
    return describe(fault, data);
  }
  // Without a message.
  Fault try_free(void* data) noexcept;
  // Takes it back if the calling thread's cache owns it; false leaves everything as it was. It may
  // take the lock, when a span became empty.
  bool try_free_fast(void* data) noexcept;
  // What an allocation got; 0 for an address that is not a live object's.
  size_t usable_bytes(const void* data) const;

  // Gives back to the source whatever no object uses: empty spans of the calling thread's cache and
  // of ended threads', kept large allocations, free pages. Other threads' caches keep their empty
  // spans (ThreadCache::kEmptyBytes at most, and a current span for each class). Returns the bytes
  // given back that may have been backed by memory.
  size_t trim();
  PoolStats stats() const;

  // The first broken invariant, or the first fault of a caller that free has reported, as a Status:
  // INTERNAL or CORRUPT. No other thread may be in the pool.
  Status check() const;

  const BlockSource& source() const { return *source_; }
  uint64_t number() const { return number_; }

  // For thread_slots.h: a cache for the calling thread, and its return.
  ThreadCache* create_cache();
  void retire(ThreadCache* cache);

 private:
  friend class PoolChecker;
  friend struct PoolTester;  // of the tests
  Pool(const PoolOptions& options, std::unique_ptr<BlockSource> source, PageMap map);

  std::byte* allocate_slow(size_t bytes) noexcept;
  std::byte* allocate_large(size_t bytes, bool zeroed);
  Status refused(size_t bytes) const;  // why try_allocate gave nothing
  Fault free_slow(void* data) noexcept;
  Fault free_large(Span* span);
  void settle(ThreadCache& cache, Span* span) noexcept;
  Status describe(Fault fault, const void* data);

  // With lock_ held.
  bool refill(ThreadCache& cache, Bin& bin, int size_class);
  Span* create_span(int size_class, size_t pages);
  void destroy_span(Span* span);
  void drain_idle();
  void make_room(ThreadCache* cache);
  void release_empty(ThreadCache& cache);
  void free_into_central(Debugger::Entry object);
  bool may_hold(size_t more) const;
  void add_held(size_t more);
  void move_to_central(ThreadCache& from);
  template <typename Visit>
  void for_each_span(Visit&& visit) const;

  // True in a child of the process that made the pool: lock_ may never be free again.
  bool is_inherited() const;

  const uint64_t number_;
  const PoolOptions options_;
  const pid_t pid_;
  PageMap map_;
  const std::unique_ptr<BlockSource> source_;

  mutable std::mutex lock_;  // guards all below, and taking spans from one cache to another
  PageHeap heap_;
  LargeStore large_;
  size_t held_ = 0, held_peak_ = 0, large_in_use_ = 0;
  // Of spans that are gone, and of large allocations; live spans count theirs.
  uint64_t past_allocations_ = 0, past_granted_ = 0, large_requested_ = 0;
  // Of spans whose thread ended, of threads without a cache, and of all threads in debug tiers.
  ThreadCache central_;
  std::vector<std::unique_ptr<ThreadCache>> caches_;  // all; a stale owner may point to any
  std::vector<ThreadCache*> idle_;                    // without a thread; capacity for all
  Debugger debugger_;
  Status refusal_;  // the source's last
};

inline std::byte* Pool::try_allocate_fast(size_t bytes) noexcept {
  ThreadCache* cache = find_thread_cache(number_);
  if (cache == nullptr || bytes - 1 >= kLargestClass) [[unlikely]]
    return nullptr;  // 0 wraps
  Span* span = cache->bins[static_cast<size_t>(class_of(bytes))].current;
  if (span->head == kNoObject) [[unlikely]]
    return nullptr;
  std::byte* data = cache->take(span, bytes);
  unpoison(data, bytes);
  return data;
}

inline std::byte* Pool::try_allocate(size_t bytes) noexcept {
  std::byte* data = try_allocate_fast(bytes);
  return data != nullptr ? data : allocate_slow(bytes);
}

inline bool Pool::try_free_fast(void* data) noexcept {
  Span* span = map_.find(data);
  if (span == nullptr) [[unlikely]]
    return false;
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(data) - span->base);
  const auto index =
      static_cast<uint32_t>(offset / kAlignment * span->reciprocal >> kReciprocalShift);
  ThreadCache* cache = find_thread_cache(number_);
  if (index * span->size != offset || span->owner.load(std::memory_order_acquire) != cache)
      [[unlikely]] {
    return false;
  }
  std::atomic<uint16_t>& link = span->links()[index];
  if (link.load(std::memory_order_relaxed) != kAllocated) [[unlikely]]
    return false;
  poison(data, span->size);
  const uint16_t head = span->head;
  link.store(head, std::memory_order_relaxed);
  span->head = static_cast<uint16_t>(index);
  span->count_freed(1);
  if (head == kNoObject || span->used() == 0) [[unlikely]] {
    if (span->state != SpanState::kCurrent) settle(*cache, span);
  }
  return true;
}

inline Fault Pool::try_free(void* data) noexcept {
  return try_free_fast(data) ? Fault::kNone : free_slow(data);
}

}  // namespace lmn::memory
