// SPDX-License-Identifier: Apache-2.0
//
// HelperThread: work that would hold an I/O thread up, one piece at a time, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "server/thread.h"

namespace lmn::server {

class HelperThread {
 public:
  HelperThread();   // throws std::system_error
  ~HelperThread();  // after all work
  void close();     // finishes what there is; later work is done by who brings it
  void post(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> work_;
  bool closed_ = false;
  Thread thread_;
};

}  // namespace lmn::server
