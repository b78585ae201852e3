// SPDX-License-Identifier: Apache-2.0
#include "parallel/fork_mark.h"

#include <sys/mman.h>

#include <new>

namespace lmn::parallel {

ForkMark::ForkMark() : pid_(getpid()) {
#ifdef MADV_WIPEONFORK
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, bytes, MADV_WIPEONFORK) != 0) {
    (void)munmap(page, bytes);
    return;
  }
  page_ = new (page) std::atomic<int>(1);
#endif
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) (void)munmap(page_, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace lmn::parallel
