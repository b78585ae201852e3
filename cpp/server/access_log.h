// SPDX-License-Identifier: Apache-2.0
//
// AccessLog: lines from the I/O threads to a descriptor, by a thread of its own, so that nobody who
// serves ever waits for the log's reader. What does not fit into the buffer is counted and dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "server/thread.h"

namespace lmn::server {

class AccessLog {
 public:
  static constexpr size_t kMaxWaitingBytes = 4 << 20;

  // 0: no log. Writes to a duplicate of the descriptor. Throws std::system_error.
  explicit AccessLog(int descriptor);
  ~AccessLog();  // after it has written what was added, where the reader takes it within a second
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  bool enabled() const { return descriptor_ != 0; }
  void add(std::string_view line);  // ends with '\n'. Any thread
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  void write_until_closed();
  void write_all(const std::string& text);

  const int descriptor_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::string waiting_;
  bool closed_ = false;
  std::atomic<int64_t> give_up_ns_;
  std::atomic<uint64_t> lost_{0};
  Thread thread_;
};

}  // namespace lmn::server
