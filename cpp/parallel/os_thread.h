// SPDX-License-Identifier: Apache-2.0
//
// OsThread: a thread as a guest in somebody's process wants it: named, with all signals blocked
// (the host's handlers run on the host's threads), with the default rounding and denormal modes
// (all threads compute alike, whatever the creating thread had set), and never joined in a forked
// child, where it does not exist.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "core/status.h"

namespace lmn::parallel {

class OsThread {
 public:
  // OUT_OF_MEMORY: the system refused. `name` is cut to 15 characters. `context` must outlive the
  // thread.
  static Result<OsThread> start(const char* name, void (*body)(void* context), void* context);
  OsThread() = default;
  OsThread(OsThread&& other) noexcept;
  OsThread& operator=(OsThread&& other) noexcept;
  ~OsThread() { join(); }

  void join();  // returns at once when there is nothing to join, or in a forked child

 private:
  pthread_t handle_{};
  pid_t owner_ = 0;  // process that started it; 0: none
};

}  // namespace lmn::parallel
