// SPDX-License-Identifier: Apache-2.0
//
// EventFd: a descriptor that is readable when there is news, for callers who wait in poll, epoll or
// an event loop. Many threads signal; many signals before a clear cost one write. The consumer:
//
//   signaller                         consumer, once the descriptor is readable (or at any time)
//     make the news (any store)         clear();
//     signal();                         take all news
//
// No wake-up is lost: news made before signal() is found by the taking that follows a clear(), or
// else the descriptor is readable (or about to be: a signaller stands before its write). A wake-up
// may be vain: clear() may fall between a signaller's flag and its write.
//
// Why, with R the read and X the exchange of clear(), S the exchange and W the write of signal():
//
// - S found the flag set. The X that next clears it reads from S or from a later read-modify-write
//   of the flag, so S's release pairs with X's acquire, and the news is seen after that clear(). It
//   comes: the flag is set, so a W has followed or will; if a read has consumed that W, the X
//   behind that read has not come yet, because it would have cleared the flag.
//
// - S found it clear. W follows S. If a read consumes W, then X follows R follows W follows S, and
//   pairs with S as above. If none does, the descriptor stays readable.
//
// Reading after the exchange would lose: a signal between the two sets the flag, its write is
// consumed, and no later signal writes. signal_interleaving_test.cc runs every order of the two.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>

#include "core/status.h"
#include "parallel/clock.h"

namespace lmn::parallel {

// The flag, apart from the descriptor. Atomic is std::atomic; the interleaving test puts its own
// in.
template <template <typename> class Atomic = std::atomic>
class CoalescedSignal {
 public:
  // write() makes the descriptor readable. acq_rel: pairs with the other exchange; the acquire half
  // orders a signaller that finds the flag clear behind the reading that belonged to the clearing.
  template <typename Write>
  void signal(const Write& write) {
    if (!set_.exchange(true, std::memory_order_acq_rel)) write();
  }
  // read() makes it unreadable, when it is readable.
  template <typename Read>
  void clear(const Read& read) {
    read();
    set_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  Atomic<bool> set_{false};
};

class EventFd {
 public:
  // Non-blocking and closed by exec. IO when the system refuses a descriptor.
  static Result<std::unique_ptr<EventFd>> create();
  ~EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  // To be polled for reading, by the caller; never read, written or closed by it. Fixed.
  int fd() const { return fd_; }

  // Any thread. A system call only when nothing has been signalled since the last clear().
  void signal();
  // Any thread; one at a time when each must find the news of its own wake-up. One system call.
  void clear();
  // In a child of fork, which shares the descriptor with its parent, both do nothing to it.

 private:
  explicit EventFd(int fd);

  const int fd_;
  const pid_t pid_;
  alignas(kCacheLine) CoalescedSignal<> signal_;  // written by every signaller
};

}  // namespace lmn::parallel
