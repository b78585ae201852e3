// SPDX-License-Identifier: Apache-2.0
#include "server/io_thread.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "server/clock.h"
#include "server/connection.h"
#include "server/server.h"

namespace lmn::server {
namespace {

std::array<int64_t, Deadlines::kKinds> durations(const Config& config) {
  return {0,
          config.idle_timeout_ns,
          config.header_timeout_ns,
          config.body_timeout_ns,
          config.write_timeout_ns,
          kLingerNs};
}

// The timer is late by up to so much: many deadlines, few wake-ups.
constexpr int64_t kTimerSlackNs = 50'000'000;

}  // namespace

IoThread::IoThread(Server& server, uint32_t index)
    : server_(server),
      index_(index),
      io_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO),  // posts are safe; I/O objects are this thread's
      alive_(io_.get_executor()),
      timer_(io_),
      deadlines_(durations(server.config())),
      buffer_(new char[kBufferBytes]),
      slots_(index) {}

IoThread::~IoThread() = default;

void IoThread::start() {
  thread_ = Thread("lmn-http", [this] { run(); });
}

void IoThread::run() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (...) {  // no memory for an operation of the loop itself: it goes on with the next
    }
  }
}

void IoThread::stop() {
  post([this] {
    while (!connections_.empty()) connections_.back()->close();
    alive_.reset();
    timer_.cancel();
    io_.stop();
  });
}

void IoThread::join() { thread_.join(); }

std::string_view IoThread::date() {
  const time_t second = ::time(nullptr);
  if (second != date_second_) {
    date_second_ = second;
    tm fields{};
    ::gmtime_r(&second, &fields);
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char text[64];
    const int n =
        std::snprintf(text, sizeof text, "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[fields.tm_wday],
                      fields.tm_mday, kMonths[fields.tm_mon], fields.tm_year + 1900, fields.tm_hour,
                      fields.tm_min, fields.tm_sec);
    date_.assign(text, static_cast<size_t>(n));
  }
  return date_;
}

void IoThread::adopt(int descriptor, std::string client) {
  std::shared_ptr<Connection> connection;
  try {
    connection = std::make_shared<Connection>(*this, std::move(client));
    connections_.push_back(connection);
  } catch (const std::bad_alloc&) {
    ::close(descriptor);
    server_.counters().connections.fetch_sub(1);
    server_.on_connection_closed();
    return;
  }
  connection->start(descriptor, connections_.size() - 1);
}

void IoThread::forget(Connection& connection) {
  const size_t at = connection.position();
  std::shared_ptr<Connection>& last = connections_.back();
  last->set_position(at);
  const std::shared_ptr<Connection> gone = std::exchange(connections_[at], std::move(last));
  connections_.pop_back();
}

void IoThread::close_idle() {
  for (size_t i = connections_.size(); i-- > 0;) {
    // A copy: closing one moves another to its place, one that was looked at already.
    const std::shared_ptr<Connection> connection = connections_[i];
    if (connection->is_idle()) connection->close();
  }
}

void IoThread::set_deadline(Timed& timed, Wait wait) {
  deadlines_.set(&timed, wait, now_ns());
  if (timed.ends_ns < timer_ns_ - kTimerSlackNs) arm_timer();
}

void IoThread::arm_timer() {
  const int64_t next = deadlines_.next();
  if (next == Deadlines::kNever) {
    timer_ns_ = Deadlines::kNever;
    return;
  }
  timer_ns_ = next + kTimerSlackNs;
  timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(timer_ns_)));
  timer_.async_wait([this](boost::system::error_code failure) {
    if (!failure) end_waits();
  });
}

void IoThread::end_waits() {
  const int64_t now = now_ns();
  while (Timed* timed = deadlines_.expired(now)) static_cast<Connection*>(timed)->on_deadline();
  arm_timer();
}

void IoThread::bury(std::unique_ptr<Work> work) {
  dead_.push_back(std::move(work));
  if (std::exchange(burying_, true)) return;
  post([this] {
    burying_ = false;
    dead_.clear();
  });
}

}  // namespace lmn::server
