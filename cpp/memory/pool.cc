// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <unistd.h>

#include <bit>
#include <cstring>
#include <new>

namespace lmn::memory {

// Making and unmaking --------------------------------------------------------------------------

Result<std::shared_ptr<Pool>> Pool::create(const PoolOptions& options,
                                           std::unique_ptr<BlockSource> source) {
  if (options.block_bytes == 0 || options.block_bytes > size_t{1} << 46) {
    return error(Code::kInvalidArgument, "memory pool: blocks of %zu bytes; give 64 KiB to 64 TiB",
                 options.block_bytes);
  }
  LMN_ASSIGN_OR_RETURN(PageMap map, PageMap::create());
  // Not make_shared: thread caches hold weak references, which would keep its memory.
  // In a forked child it is left alone: another thread may have been changing it.
  return std::shared_ptr<Pool>(new Pool(options, std::move(source), std::move(map)),
                               [](Pool* pool) {
                                 if (!pool->is_inherited()) delete pool;
                               });
}

Pool::Pool(const PoolOptions& options, std::unique_ptr<BlockSource> source, PageMap map)
    : number_(next_pool_number()),
      options_(options),
      pid_(getpid()),
      map_(std::move(map)),
      source_(std::move(source)),
      heap_(*source_, round_up(options.block_bytes, kPageBytes)),
      large_(*source_, map_, options.keep_large_bytes),
      debugger_(options.debug, source_->host_addressable()) {}

template <typename Visit>
void Pool::for_each_span(Visit&& visit) const {
  for (const PageHeap::Block& block : heap_.blocks()) {
    for (size_t page = 0; (page = block.taken.find(page, block.pages, true)) < block.pages;) {
      Span* span = map_.find(block.base + page * kPageBytes);
      if (span == nullptr || span->pages == 0) return;  // broken: check() says so
      page += span->pages;
      visit(span);
    }
  }
}

Pool::~Pool() {
  for_each_span([](Span* span) {
    unpoison(span->base, span->bytes());
    Span::destroy(span);
  });
  for (const std::vector<Span*>& spans = large_.spans(); !spans.empty();) {
    Span* span = spans.back();
    if (span->state == SpanState::kCached) {
      (void)large_.trim();
    } else {
      large_.destroy(span);
    }
  }
}

bool Pool::is_inherited() const { return getpid() != pid_; }

ThreadCache* Pool::create_cache() {
  if (debugger_.on() || is_inherited()) return nullptr;
  const std::lock_guard hold(lock_);
  if (idle_.empty()) {
    idle_.reserve(caches_.size() + 1);  // so that retire needs no memory
    caches_.push_back(std::make_unique<ThreadCache>());
    return caches_.back().get();
  }
  ThreadCache* cache = idle_.back();
  idle_.pop_back();
  return cache;
}

void Pool::retire(ThreadCache* cache) {
  if (is_inherited()) return;
  const std::lock_guard hold(lock_);
  cache->drain();
  move_to_central(*cache);
  idle_.push_back(cache);
}

// Spans that are full stay with `from`: they are on no list. The next thread that gets this cache
// has them, or drain_idle finds them when an object of theirs comes back.
void Pool::move_to_central(ThreadCache& from) {
  for (Bin& bin : from.bins) {
    if (bin.current->capacity > 0) {
      Span* span = bin.current;
      from.remove(span);
      from.insert(span);
    }
    for (Span* span; (span = bin.partial != nullptr ? bin.partial : bin.empty) != nullptr;) {
      from.remove(span);
      if (span->used() == 0) {
        destroy_span(span);
        continue;
      }
      span->owner.store(&central_, std::memory_order_release);
      central_.insert(span);
    }
  }
}

void Pool::drain_idle() {
  for (ThreadCache* cache : idle_) {
    if (cache->returned.load(std::memory_order_relaxed) == nullptr) continue;
    cache->drain();
    move_to_central(*cache);
  }
  central_.drain();
}

// Allocating -----------------------------------------------------------------------------------

bool Pool::may_hold(size_t more) const {
  return options_.limit_bytes == 0 ||
         (more <= options_.limit_bytes && held_ <= options_.limit_bytes - more);
}

void Pool::add_held(size_t more) {
  held_ += more;
  held_peak_ = std::max(held_peak_, held_);
}

Span* Pool::create_span(int size_class, size_t pages) {
  if (!may_hold(pages * kPageBytes)) return nullptr;
  Result<std::byte*> base = heap_.allocate(pages);
  if (!base.ok()) {
    refusal_ = std::move(base).status();
    return nullptr;
  }
  Span* span = Span::create(*base, size_class, pages, debugger_.on());
  if (span == nullptr || !map_.set(*base, pages, span)) {
    if (span != nullptr) Span::destroy(span);
    heap_.free(*base, pages);
    return nullptr;
  }
  poison(span->base, span->bytes());
  add_held(span->bytes());
  return span;
}

void Pool::destroy_span(Span* span) {
  (void)map_.set(span->base, span->pages, nullptr);
  unpoison(span->base, span->bytes());
  heap_.free(span->base, span->pages);
  held_ -= span->bytes();
  past_allocations_ += span->taken.load(std::memory_order_relaxed);
  past_granted_ += span->taken.load(std::memory_order_relaxed) * span->size;
  Span::destroy(span);
}

void Pool::release_empty(ThreadCache& cache) {
  for (Bin& bin : cache.bins) {
    Span* current = bin.current;
    if (current->capacity > 0 && current->used() == 0) {
      cache.remove(current);
      destroy_span(current);
    }
    while (Span* span = bin.empty) {
      cache.remove(span);
      destroy_span(span);
    }
  }
}

// Lets go of whatever no object uses, before a refusal.
void Pool::make_room(ThreadCache* cache) {
  held_ -= large_.trim();
  drain_idle();
  if (cache != nullptr) release_empty(*cache);
  release_empty(central_);
  (void)heap_.trim();
}

// A new current span for the bin, from central or the heap.
bool Pool::refill(ThreadCache& cache, Bin& bin, int size_class) {
  drain_idle();
  Bin& shared = central_.bins[static_cast<size_t>(size_class)];
  Span* span = shared.partial != nullptr ? shared.partial : shared.empty;
  if (span != nullptr) {
    central_.remove(span);
  } else {
    const size_t pages = span_pages(size_class);
    span = create_span(size_class, pages);
    if (span == nullptr) {
      make_room(&cache);
      span = create_span(size_class, pages);
    }
    if (span == nullptr) {  // room for one object
      span = create_span(size_class, round_up(class_bytes(size_class), kPageBytes) / kPageBytes);
    }
    if (span == nullptr) return false;
  }
  span->owner.store(&cache, std::memory_order_release);
  cache.make_current(bin, span);
  return true;
}

std::byte* Pool::allocate_slow(size_t bytes) noexcept {
  if (bytes == 0) bytes = 1;
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t needed = debugger_.padded(bytes);
  try {
    if (needed > kLargestClass) return allocate_large(bytes, false);
    const int size_class = class_of(needed);
    ThreadCache* cache = find_thread_cache(number_);
    if (cache == nullptr && !debugger_.on()) cache = attach_thread(*this);
    ThreadCache& from = cache != nullptr ? *cache : central_;
    Bin& bin = from.bins[static_cast<size_t>(size_class)];
    const auto has_free = [&] { return bin.current->head != kNoObject; };
    std::unique_lock<std::mutex> hold(lock_, std::defer_lock);
    if (cache == nullptr) {
      if (is_inherited()) return nullptr;
      hold.lock();
    }
    if (!has_free()) from.drain();
    if (!has_free() && !from.advance(bin)) {
      if (cache != nullptr) {
        if (is_inherited()) return nullptr;
        hold.lock();
      }
      if (&from == &central_) drain_idle();
      if (!has_free() && !from.advance(bin) && !refill(from, bin, size_class)) return nullptr;
    }
    Span* span = bin.current;
    const uint32_t index = span->head;
    std::byte* data = from.take(span, bytes);
    if (debugger_.on()) {
      debugger_.allocated(span, index, bytes);
    } else {
      unpoison(data, bytes);
    }
    return data;
  } catch (...) {
    return nullptr;
  }
}

std::byte* Pool::allocate_large(size_t bytes, bool zeroed) {
  if (is_inherited()) return nullptr;
  const size_t rounded = round_up(debugger_.padded(bytes), kPageBytes);
  const std::lock_guard hold(lock_);
  const bool kept = large_.has_kept(rounded);
  if (!kept && !may_hold(rounded)) {
    make_room(find_thread_cache(number_));
    if (!may_hold(rounded)) return nullptr;
  }
  Result<Span*> span = large_.allocate(rounded);
  if (!span.ok()) {
    make_room(find_thread_cache(number_));
    span = large_.allocate(rounded);
  }
  if (!span.ok()) {
    refusal_ = std::move(span).status();
    return nullptr;
  }
  if (!kept) add_held(rounded);
  // Never a cache of a thread that has one: frees take the slow path.
  (*span)->owner.store(&central_, std::memory_order_release);
  ++past_allocations_;
  past_granted_ += rounded;
  large_requested_ += bytes;
  large_in_use_ += rounded;
  std::byte* data = (*span)->base;
  if (debugger_.on()) {
    debugger_.allocated(*span, 0, bytes);
  } else {
    poison(data + bytes, rounded - bytes);
    unpoison(data, bytes);
  }
  const bool fresh = !kept && !debugger_.on() && source_->zeroed();
  if (zeroed && !fresh) std::memset(data, 0, bytes);
  return data;
}

Result<std::byte*> Pool::allocate(size_t bytes) {
  std::byte* data = try_allocate(bytes);
  if (data != nullptr) [[likely]]
    return data;
  return refused(bytes);
}

Result<std::byte*> Pool::allocate_zeroed(size_t bytes) {
  if (!source_->host_addressable()) {
    return error(Code::kUnsupported, "memory pool: the CPU cannot clear %s memory",
                 source_->name());
  }
  try {
    const bool large = bytes <= SIZE_MAX / 2 && debugger_.padded(bytes) > kLargestClass;
    std::byte* data = large ? allocate_large(bytes, true) : try_allocate(bytes);
    if (data == nullptr) return refused(bytes);
    if (!large) std::memset(data, 0, bytes);
    return data;
  } catch (...) {
    return refused(bytes);
  }
}

Status Pool::refused(size_t bytes) const {
  if (is_inherited()) {
    return error(Code::kClosed,
                 "memory pool: it was made before a fork, and only the parent may take new memory "
                 "from it; make a pool in the child");
  }
  const std::lock_guard hold(lock_);
  if (options_.limit_bytes > 0) {
    return error(Code::kOutOfMemory,
                 "memory pool: %zu bytes do not fit: it holds %zu bytes and its limit is %zu; free "
                 "memory, or raise limit_bytes",
                 bytes, held_, options_.limit_bytes);
  }
  return error(Code::kOutOfMemory,
               "memory pool: %zu bytes of %s memory were refused; the pool holds %zu: %s", bytes,
               source_->name(), held_, std::string(refusal_.message()).c_str());
}

std::byte* Pool::try_allocate_aligned(size_t bytes, size_t alignment) noexcept {
  if (!std::has_single_bit(alignment) || alignment > kPageBytes) return nullptr;
  if (alignment <= kAlignment) return try_allocate(bytes);
  // Spans start at a page, so the objects of a class whose size is a multiple are aligned.
  if (bytes > SIZE_MAX / 2) return nullptr;
  size_t size = std::max<size_t>(round_up(debugger_.padded(bytes), alignment), alignment);
  while (size <= kLargestClass && class_bytes(class_of(size)) % alignment != 0) size += alignment;
  return try_allocate(size - debugger_.padded(0));
}

// Freeing --------------------------------------------------------------------------------------

Fault Pool::free_slow(void* data) noexcept {
  Span* span = map_.find(data);
  if (span == nullptr) return data == nullptr ? Fault::kNone : Fault::kForeign;
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(data) - span->base);
  const auto index = static_cast<uint32_t>(offset / span->size);
  if (index * span->size != offset || index >= span->capacity) return Fault::kInterior;
  if (span->size_class == kLargeClass) return free_large(span);
  if (!debugger_.on()) {
    const uint16_t link = span->links()[index].load(std::memory_order_relaxed);
    if (link != kAllocated) return Fault::kDoubleFree;
    poison(data, span->size);
    return return_remote(span, static_cast<uint16_t>(index)) ? Fault::kNone : Fault::kDoubleFree;
  }
  if (is_inherited()) return Fault::kNone;
  const std::lock_guard hold(lock_);
  std::atomic<uint16_t>& link = span->links()[index];
  if (link.load(std::memory_order_relaxed) != kAllocated) return Fault::kDoubleFree;
  const Fault fault = debugger_.freed(span, index);
  link.store(kQuarantined, std::memory_order_relaxed);
  Debugger::Entry leaving{};
  if (debugger_.quarantine({span, static_cast<uint16_t>(index)}, &leaving)) {
    free_into_central(leaving);
  }
  return fault;
}

void Pool::free_into_central(Debugger::Entry object) {
  Span* span = object.span;
  span->links()[object.index].store(span->head, std::memory_order_relaxed);
  span->head = object.index;
  span->count_freed(1);
  if (central_.settle(span)) destroy_span(span);
}

Fault Pool::free_large(Span* span) {
  if (is_inherited()) return Fault::kNone;
  const std::lock_guard hold(lock_);
  if (span->links()[0].load(std::memory_order_relaxed) != kAllocated) return Fault::kDoubleFree;
  const Fault fault = debugger_.on() ? debugger_.freed(span, 0) : Fault::kNone;
  poison(span->base, span->size);
  const size_t size = span->size, kept = large_.kept_bytes();
  large_.free(span);
  large_in_use_ -= size;
  if (large_.kept_bytes() == kept) held_ -= size;
  return fault;
}

// The calling thread's cache, after a free into a span that had nothing free, or has nothing used.
void Pool::settle(ThreadCache& cache, Span* span) noexcept {
  if (!cache.settle(span)) return;
  if (is_inherited()) return cache.insert(span);
  const std::lock_guard hold(lock_);
  destroy_span(span);
}

Status Pool::describe(Fault fault, const void* data) {
  Status status = fault_status(fault, data);
  if (is_inherited()) return status;
  const std::lock_guard hold(lock_);
  debugger_.note(status);
  return status;
}

size_t Pool::usable_bytes(const void* data) const {
  Span* span = map_.find(data);
  if (span == nullptr) return 0;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(data) - span->base);
  const size_t index = offset / span->size;
  if (index * span->size != offset || index >= span->capacity) return 0;
  if (span->links()[index].load(std::memory_order_relaxed) != kAllocated) return 0;
  return span->size - debugger_.padded(0);
}

// Looking after it -----------------------------------------------------------------------------

size_t Pool::trim() {
  if (is_inherited()) return 0;
  ThreadCache* cache = find_thread_cache(number_);
  if (cache == nullptr && !debugger_.on()) cache = attach_thread(*this);
  if (cache != nullptr) cache->drain();
  const std::lock_guard hold(lock_);
  for (Debugger::Entry leaving{}; debugger_.leave_quarantine(&leaving);) {
    free_into_central(leaving);
  }
  drain_idle();
  if (cache != nullptr) release_empty(*cache);
  release_empty(central_);
  const size_t kept = large_.trim();
  held_ -= kept;
  return kept + heap_.trim();
}

PoolStats Pool::stats() const {
  PoolStats out;
  if (is_inherited()) return out;
  const std::lock_guard hold(lock_);
  for_each_span([&](Span* span) {
    const uint32_t used = span->used() - span->count_returned();
    out.in_use += used * span->size;
    out.live += used;
    const uint64_t taken = span->taken.load(std::memory_order_relaxed);
    out.allocations += taken;
    out.granted_total += taken * span->size;
    ++out.spans;
  });
  out.requested_total = central_.requested_bytes.load(std::memory_order_relaxed);
  for (const auto& cache : caches_) {
    out.requested_total += cache->requested_bytes.load(std::memory_order_relaxed);
  }
  for (const Span* span : large_.spans()) {
    out.reserved += span->size;
    out.live += span->state != SpanState::kCached ? 1 : 0;
  }
  out.allocations += past_allocations_;
  out.requested_total += large_requested_;
  out.granted_total += past_granted_;
  out.reserved += heap_.reserved_bytes();
  out.held = held_;
  out.held_peak = held_peak_;
  out.in_use += large_in_use_;
  out.live -= static_cast<uint32_t>(debugger_.quarantined());
  out.large_in_use = large_in_use_;
  out.large_kept = large_.kept_bytes();
  out.blocks = static_cast<uint32_t>(heap_.blocks().size());
  out.promoted_sizes = static_cast<uint32_t>(large_.promoted_sizes());
  out.thread_caches = static_cast<uint32_t>(caches_.size() - idle_.size());
  return out;
}

}  // namespace lmn::memory
