// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "server/clock.h"

namespace lmn::server {

AccessLog::AccessLog(int descriptor)
    : descriptor_(descriptor == 0 ? 0 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3)),
      give_up_ns_(std::numeric_limits<int64_t>::max()) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "the log");
  if (enabled()) thread_ = Thread("lmn-log", [this] { write_until_closed(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    give_up_ns_.store(now_ns() + 1'000'000'000, std::memory_order_relaxed);
  }
  added_.notify_one();
  thread_.join();
  if (enabled()) ::close(descriptor_);
}

void AccessLog::add(std::string_view line) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + line.size() > kMaxWaitingBytes) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    first = waiting_.empty();
    waiting_ += line;
  }
  if (first) added_.notify_one();
}

void AccessLog::write_until_closed() {
  std::string block;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      block.clear();
      std::swap(block, waiting_);
    }
    write_all(block);
  }
}

// The descriptor may be a pipe whose reader is slow, or has gone: then the block is lost.
void AccessLog::write_all(const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    pollfd ready{descriptor_, POLLOUT, 0};
    const int found = ::poll(&ready, 1, 100);
    if (found == 0 && now_ns() < give_up_ns_.load(std::memory_order_relaxed)) continue;
    if (found <= 0 && errno == EINTR) continue;
    // At most what a pipe takes at once when poll() says that there is room: no write blocks.
    const size_t most = std::min<size_t>(text.size() - written, 4096);
    const ssize_t n = found <= 0 ? -1 : ::write(descriptor_, text.data() + written, most);
    if (n < 0 && found > 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      lost_.fetch_add(static_cast<uint64_t>(std::count(
                          text.begin() + static_cast<ptrdiff_t>(written), text.end(), '\n')),
                      std::memory_order_relaxed);
      return;
    }
    written += static_cast<size_t>(n);
  }
}

}  // namespace lmn::server
