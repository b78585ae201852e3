// SPDX-License-Identifier: Apache-2.0
#include "server/helper_thread.h"

#include <utility>

namespace lmn::server {

HelperThread::HelperThread() : thread_("lmn-helper", [this] { run(); }) {}

HelperThread::~HelperThread() { close(); }

void HelperThread::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  added_.notify_one();
  thread_.join();
}

void HelperThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      work_.push_back(std::move(work));
      work = nullptr;
    }
  }
  work == nullptr ? added_.notify_one() : work();
}

void HelperThread::run() {
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return closed_ || !work_.empty(); });
      if (work_.empty()) return;
      next = std::move(work_.front());
      work_.pop_front();
    }
    try {
      next();
    } catch (...) {  // no memory: its client gets no answer, and times out
    }
  }
}

}  // namespace lmn::server
