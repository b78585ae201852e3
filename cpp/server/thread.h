// SPDX-License-Identifier: Apache-2.0
//
// Thread: a named thread of the library in somebody's process, with all signals blocked: the host's
// handlers run on the host's threads, and a log whose reader is gone is no SIGPIPE.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace lmn::server {

class Thread {
 public:
  Thread() = default;
  // Throws std::system_error where the system has no thread to give.
  template <typename Body>
  Thread(const char* name, Body body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([name, body = std::move(body)]() mutable {
        (void)pthread_setname_np(pthread_self(), name);
        body();
      });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    return *this;
  }
  ~Thread() { join(); }

  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

}  // namespace lmn::server
