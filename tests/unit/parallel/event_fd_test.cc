// SPDX-License-Identifier: Apache-2.0
#include "parallel/event_fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "testing.h"

namespace lmn::parallel {
namespace {

std::unique_ptr<EventFd> make() {
  auto event = EventFd::create();
  ASSERT_OK(event);
  return std::move(event).value();
}
bool readable(const EventFd& event, int timeout_ms = 0) {
  pollfd p{event.fd(), POLLIN, 0};
  return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN) != 0;
}

TEST(readable_from_signal_to_clear) {
  const auto event = make();
  EXPECT(!readable(*event));
  event->clear();  // does not wait
  for (int i = 0; i < 3; ++i) {
    event->signal();
    event->signal();
    EXPECT(readable(*event));
    event->clear();
    EXPECT(!readable(*event));
  }
}

TEST(signals_before_a_clear_are_one_write) {
  const auto event = make();
  for (int i = 0; i < 5; ++i) event->signal();
  uint64_t count = 0;
  EXPECT_EQ(read(event->fd(), &count, sizeof(count)), ssize_t{8});
  EXPECT_EQ(count, uint64_t{1});
}

TEST(closed_by_exec_and_by_the_destructor) {
  int fd = -1;
  {
    const auto event = make();
    fd = event->fd();
    EXPECT((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    EXPECT((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(no_descriptor_left_is_a_status) {
  rlimit before{};
  ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  ASSERT(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto event = EventFd::create();
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT(!event.ok());
  EXPECT(event.status().code() == Code::kIo);
  EXPECT(event.status().message().find("ulimit") != std::string_view::npos);
}

TEST(a_forked_child_disturbs_nothing) {
  const auto event = make(), signalled = make();
  signalled->signal();
  const pid_t child = fork();
  if (child == 0) {
    event->signal();
    signalled->clear();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT(!readable(*event));
  EXPECT(readable(*signalled));
}

// Four signallers against one consumer: a lost wake-up is a poll that ends without one.
TEST(no_wake_up_is_lost_under_stress) {
  constexpr int kSignallers = 4, kEach = 20'000;
  const auto event = make();
  std::atomic<int64_t> news{0};  // relaxed: visible by the order of signal() and clear() alone
  std::vector<std::thread> threads;
  for (int t = 0; t < kSignallers; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        news.fetch_add(1, std::memory_order_relaxed);
        event->signal();
      }
    });
  }
  int64_t taken = 0;
  while (taken < kSignallers * kEach) {
    if (!readable(*event, 20'000)) break;
    event->clear();
    taken = news.load(std::memory_order_relaxed);
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(taken, int64_t{kSignallers} * kEach);
}

// One signaller at a time, and plain data: a missing order is a report of ThreadSanitizer.
TEST(data_before_a_signal_is_visible_after_the_clear) {
  const auto there = make(), back = make();
  int64_t value = 0;
  constexpr int kRounds = 3'000;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      if (!readable(*there, 20'000)) return;
      there->clear();
      ++value;
      back->signal();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    ++value;
    there->signal();
    if (!readable(*back, 20'000)) break;
    back->clear();
  }
  other.join();
  EXPECT_EQ(value, int64_t{2} * kRounds);
}

}  // namespace
}  // namespace lmn::parallel
