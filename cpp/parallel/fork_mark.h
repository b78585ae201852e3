// SPDX-License-Identifier: Apache-2.0
//
// ForkMark: whether this is still the process that made an object, without a system call where the
// kernel can help (Linux 4.14): a page that fork wipes in the child. Elsewhere it asks for the
// process id. getpid() costs 60 to 200 ns, which is much beside a run of a microsecond.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace lmn::parallel {

class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // False in a child of fork. Any thread.
  bool is_here() const {
    // Relaxed: written before the object was shared, and by the kernel while one thread exists.
    return page_ != nullptr ? page_->load(std::memory_order_relaxed) != 0 : getpid() == pid_;
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
  std::atomic<int>* page_ = nullptr;
};

}  // namespace lmn::parallel
