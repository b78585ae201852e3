// SPDX-License-Identifier: Apache-2.0
//
// Memory for kernels under test with zones around each allocation that no kernel may touch, in a
// region of addresses of its own, so that the executor knows of every access whether it is inside
// one. Freed memory is not used again soon. Thread-safe.
#pragma once

#include <cstddef>

namespace simt_tests {

// Aligned to 256 bytes, as a device's; filled with 0xFF. Under AddressSanitizer it is malloc's.
// Never null: ends the program where the system gives none.
void* guarded_allocate(size_t bytes);
void guarded_free(void* data);
// Whether it may be touched; after guarded_allocate it may.
void guarded_show(void* data, bool usable);

enum class Inside { kNotOurs, kYes, kNo };
// Whether [at, at + bytes) lies in one allocation.
Inside guarded_inside(const void* at, size_t bytes);

}  // namespace simt_tests
