// SPDX-License-Identifier: Apache-2.0
//
// AddressSanitizer's view of pooled memory: what no caller holds is poisoned, so that a use after
// free, or behind the end of an allocation, is found in pooled memory as in malloc's. Nothing in
// other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define LMN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LMN_ASAN 1
#endif
#endif

#if defined(LMN_ASAN)
extern "C" void __asan_poison_memory_region(void const volatile*, size_t);
extern "C" void __asan_unpoison_memory_region(void const volatile*, size_t);
#endif

namespace lmn::memory {

inline void poison([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#if defined(LMN_ASAN)
  __asan_poison_memory_region(data, bytes);
#endif
}

inline void unpoison([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#if defined(LMN_ASAN)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

}  // namespace lmn::memory
