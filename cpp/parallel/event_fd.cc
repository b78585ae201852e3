// SPDX-License-Identifier: Apache-2.0
#include "parallel/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace lmn::parallel {

Result<std::unique_ptr<EventFd>> EventFd::create() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    return error(Code::kIo,
                 "cannot open an eventfd: %s; close descriptors or raise the limit (ulimit -n)",
                 std::strerror(errno));
  }
  return std::unique_ptr<EventFd>(new EventFd(fd));
}

EventFd::EventFd(int fd) : fd_(fd), pid_(getpid()) {}
EventFd::~EventFd() { close(fd_); }

void EventFd::signal() {
  signal_.signal([this] {
    if (getpid() != pid_) return;
    const uint64_t one = 1;
    // EAGAIN: the count is at its most, so the descriptor is readable.
    while (write(fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  });
}

void EventFd::clear() {
  signal_.clear([this] {
    if (getpid() != pid_) return;
    uint64_t count = 0;
    // EAGAIN: nothing was signalled.
    while (read(fd_, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
  });
}

}  // namespace lmn::parallel
