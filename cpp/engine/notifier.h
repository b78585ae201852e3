// SPDX-License-Identifier: Apache-2.0
//
// Notifier: the threads that call callbacks. A request with news is called back by one thread;
// while callbacks run, one more thread waits for the next, so a slow callback holds up nobody else,
// up to kMaxThreads of them. Threads are started when they are needed first, and sleep without
// news.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "engine/request_core.h"
#include "parallel/event_count.h"
#include "parallel/news_list.h"
#include "parallel/os_thread.h"

namespace lmn::engine {

class Notifier {
 public:
  static constexpr size_t kMaxThreads = 64;

  Notifier() = default;
  ~Notifier() { stop(); }
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // Any thread, before a request with a callback is queued. OUT_OF_MEMORY: no thread to be had.
  Status start();

  // The engine thread: the request has news, then once for all of them.
  void announce(const std::shared_ptr<RequestCore>& request) { list_.announce(request); }
  void wake() { events_.advance_one(); }

  // Calls back what was announced, and joins. After the engine thread has ended; not in a callback.
  void stop();

 private:
  static void enter(void* self) { static_cast<Notifier*>(self)->loop(); }
  void loop();
  Status add_thread();  // under the mutex; may throw std::bad_alloc

  parallel::NewsList<RequestCore> list_;  // taken from under the mutex
  parallel::EventCount events_;           // after announcements, and when stopping
  std::mutex mutex_;                      // never taken by the engine thread
  bool stopping_ = false;
  size_t idle_ = 0;  // threads that are not in a callback
  std::vector<parallel::OsThread> threads_;
};

}  // namespace lmn::engine
