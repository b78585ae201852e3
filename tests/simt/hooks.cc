// SPDX-License-Identifier: Apache-2.0
//
// What code compiled with -fsanitize=thread calls before each of its accesses: the executor's, not
// ThreadSanitizer's.
#include <cstddef>

#include "executor.h"

#if !defined(__SANITIZE_ADDRESS__)

using simt_tests::detail::access;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
#define LMN_HOOK(bytes)                                                                     \
  void __tsan_read##bytes(void* at) { access(at, bytes, false, true); }                     \
  void __tsan_write##bytes(void* at) { access(at, bytes, true, true); }                     \
  void __tsan_volatile_read##bytes(void* at) { access(at, bytes, false, true); }            \
  void __tsan_volatile_write##bytes(void* at) { access(at, bytes, true, true); }            \
  void __tsan_unaligned_read##bytes(void* at) { access(at, bytes, false, false); }          \
  void __tsan_unaligned_write##bytes(void* at) { access(at, bytes, true, false); }          \
  void __tsan_unaligned_volatile_read##bytes(void* at) { access(at, bytes, false, false); } \
  void __tsan_unaligned_volatile_write##bytes(void* at) { access(at, bytes, true, false); }
LMN_HOOK(1)
LMN_HOOK(2)
LMN_HOOK(4)
LMN_HOOK(8)
LMN_HOOK(16)
#undef LMN_HOOK
void __tsan_read_range(void* at, size_t bytes) { access(at, bytes, false, false); }
void __tsan_write_range(void* at, size_t bytes) { access(at, bytes, true, false); }
// Of the launchers' shared pointers.
int __tsan_atomic32_fetch_add(volatile int* at, int by, int) {
  return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST);
}

}  // extern "C"

#endif

namespace simt_tests {
bool observes_memory() {
#if !defined(__SANITIZE_ADDRESS__) && defined(LMN_SIMT_OBSERVED)
  return true;
#else
  return false;
#endif
}
}  // namespace simt_tests
