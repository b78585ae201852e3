// SPDX-License-Identifier: Apache-2.0
#include "engine/notifier.h"

#include <new>
#include <utility>

namespace lmn::engine {

Status Notifier::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!threads_.empty() || stopping_) return {};
  threads_.reserve(kMaxThreads);
  return add_thread();
}

Status Notifier::add_thread() {
  LMN_ASSIGN_OR_RETURN(parallel::OsThread thread,
                       parallel::OsThread::start("lmn-notifier", enter, this));
  threads_.push_back(std::move(thread));
  ++idle_;
  return {};
}

void Notifier::loop() {
  for (;;) {
    // Before what it announces.
    const uint32_t seen = events_.value();
    std::shared_ptr<RequestCore> request;
    bool stopping = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping = stopping_;
      request = list_.take();
      // The next news must find a thread. Where the system has none to give, it waits for this one.
      if (request != nullptr && --idle_ == 0 && !stopping && threads_.size() < kMaxThreads) {
        try {
          (void)add_thread();
        } catch (const std::bad_alloc&) {
        }
      }
      // One wake-up stands for all the news of a step: the next thread takes the next of it.
      if (request != nullptr && !list_.empty()) events_.advance_one();
    }
    if (request != nullptr) {
      request->call_back();
      request.reset();
      const std::lock_guard<std::mutex> lock(mutex_);
      ++idle_;
    } else if (stopping) {
      return;
    } else {
      events_.wait(seen, 0);
    }
  }
}

void Notifier::stop() {
  std::vector<parallel::OsThread> threads;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  events_.advance();
  for (parallel::OsThread& thread : threads) thread.join();
}

}  // namespace lmn::engine
