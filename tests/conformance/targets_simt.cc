// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the CUDA device, run on the CPU by tests/simt. All memory of the program comes
// from the guarded heap, so that a kernel that leaves an operand is seen.
#include <cstdlib>
#include <new>

#include "conformance.h"
#include "cuda/kernels/launchers.h"
#include "executor.h"
#include "guarded_heap.h"

void* operator new(size_t bytes) { return simt_tests::guarded_allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t) { return simt_tests::guarded_allocate(bytes); }
void operator delete(void* data) noexcept { simt_tests::guarded_free(data); }
void operator delete(void* data, size_t) noexcept { simt_tests::guarded_free(data); }
void operator delete(void* data, std::align_val_t) noexcept { simt_tests::guarded_free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept {
  simt_tests::guarded_free(data);
}

namespace conformance {

std::vector<Target> targets() { return {{"simt", lmn::cuda::kernel_table(), true, true}}; }

std::string synchronize() { return simt_tests::take_fault(); }

}  // namespace conformance
