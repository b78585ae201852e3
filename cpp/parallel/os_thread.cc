// SPDX-License-Identifier: Apache-2.0
#include "parallel/os_thread.h"

#include <signal.h>
#include <unistd.h>

#include <cfenv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace lmn::parallel {
namespace {

struct Start {
  char name[16];
  void (*body)(void*);
  void* context;
};

void* enter(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  pthread_setname_np(pthread_self(), start->name);
  std::fesetenv(FE_DFL_ENV);
  start->body(start->context);
  return nullptr;
}

}  // namespace

Result<OsThread> OsThread::start(const char* name, void (*body)(void*), void* context) {
  auto start = std::make_unique<Start>();
  std::snprintf(start->name, sizeof(start->name), "%s", name);
  start->body = body;
  start->context = context;

  OsThread thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the new thread
  const int failure = pthread_create(&thread.handle_, nullptr, enter, start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) {
    return error(Code::kOutOfMemory, "cannot start thread %s: %s; ask for fewer threads", name,
                 std::strerror(failure));
  }
  (void)start.release();  // the thread's own now
  thread.owner_ = getpid();
  return thread;
}

OsThread::OsThread(OsThread&& other) noexcept
    : handle_(other.handle_), owner_(std::exchange(other.owner_, 0)) {}

OsThread& OsThread::operator=(OsThread&& other) noexcept {
  join();
  handle_ = other.handle_;
  owner_ = std::exchange(other.owner_, 0);
  return *this;
}

void OsThread::join() {
  if (owner_ != 0 && owner_ == getpid()) pthread_join(handle_, nullptr);
  owner_ = 0;
}

}  // namespace lmn::parallel
