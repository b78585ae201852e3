// SPDX-License-Identifier: Apache-2.0
//
// ThreadSlots: how a thread finds its cache of a pool in two loads, and how the cache gets back
// when the thread ends. Pools are told apart by numbers that are never used twice in a process, so
// what a thread still knows of a pool that is gone matches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lmn::memory {

class Pool;
struct ThreadCache;

// A thread that uses more pools than this in turn looks the others up in a list.
inline constexpr size_t kThreadSlots = 4;

struct ThreadSlot {
  uint64_t pool = 0;  // number of a pool; 0: none
  ThreadCache* cache = nullptr;
};

// Constant initialisation and no destructor: an access is one load from the thread's block, without
// a call. glibc keeps room for this model in libraries that are loaded late, but not for the 4 KiB
// of every thread that the CUDA runtime has: where it is part of the library (LMN_LARGE_TLS), an
// access calls __tls_get_addr.
#if defined(__GLIBC__) && !defined(LMN_LARGE_TLS)
#define LMN_TLS_MODEL __attribute__((tls_model("initial-exec")))
#else
#define LMN_TLS_MODEL
#endif
extern thread_local constinit ThreadSlot thread_slots[kThreadSlots] LMN_TLS_MODEL;

inline ThreadCache* find_thread_cache(uint64_t pool) {
  const ThreadSlot& slot = thread_slots[pool % kThreadSlots];
  return slot.pool == pool ? slot.cache : nullptr;
}

uint64_t next_pool_number();

// The calling thread's cache of the pool: from the list, or a new one. nullptr for a thread whose
// objects are being destroyed, or without memory.
ThreadCache* attach_thread(Pool& pool);

}  // namespace lmn::memory
