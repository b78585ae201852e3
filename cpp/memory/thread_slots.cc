// SPDX-License-Identifier: Apache-2.0
#include "memory/thread_slots.h"

#include <atomic>
#include <vector>

#include "memory/pool.h"

namespace lmn::memory {

thread_local constinit ThreadSlot thread_slots[kThreadSlots] LMN_TLS_MODEL;

namespace {

// Set by ~ThreadCaches: destructors of other thread-local objects may still use pools.
thread_local constinit bool thread_has_ended = false;

// The caches of one thread. Destroyed when the thread ends, which gives them back.
struct ThreadCaches {
  struct Entry {
    uint64_t number;
    ThreadCache* cache;
    std::weak_ptr<Pool> pool;
  };
  std::vector<Entry> entries;

  ~ThreadCaches() {
    thread_has_ended = true;
    for (ThreadSlot& slot : thread_slots) slot = {};
    for (Entry& entry : entries) {
      // A pool that is being destroyed takes all its caches with it; one that is alive stays so for
      // the call.
      if (const std::shared_ptr<Pool> pool = entry.pool.lock()) pool->retire(entry.cache);
    }
  }
};
thread_local ThreadCaches thread_caches;

}  // namespace

uint64_t next_pool_number() {
  // Relaxed: numbers only have to differ.
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

ThreadCache* attach_thread(Pool& pool) {
  if (thread_has_ended) return nullptr;
  try {
    auto& entries = thread_caches.entries;
    ThreadCache* cache = nullptr;
    for (const auto& entry : entries) {
      if (entry.number == pool.number()) cache = entry.cache;
    }
    if (cache == nullptr) {
      std::erase_if(entries, [](const auto& entry) { return entry.pool.expired(); });
      entries.push_back({pool.number(), nullptr, pool.weak_from_this()});
      cache = entries.back().cache = pool.create_cache();
      if (cache == nullptr) {
        entries.pop_back();
        return nullptr;
      }
    }
    thread_slots[pool.number() % kThreadSlots] = {pool.number(), cache};
    return cache;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace lmn::memory
