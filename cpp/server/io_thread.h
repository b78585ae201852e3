// SPDX-License-Identifier: Apache-2.0
//
// IoThread: an event loop (Boost.Asio over epoll) and all that its connections share. Everything
// here belongs to the thread itself, but for post(), stop() and join().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/deadlines.h"
#include "server/slots.h"
#include "server/thread.h"
#include "server/trace_context.h"

namespace lmn::server {

class Connection;
class Server;
class Work;

class IoThread {
 public:
  IoThread(Server& server, uint32_t index);
  ~IoThread();

  void start();  // throws std::system_error
  void stop();   // closes all connections and ends the loop
  void join();
  template <typename Function>
  void post(Function&& function) {
    boost::asio::post(io_, std::forward<Function>(function));
  }

  Server& server() { return server_; }
  uint32_t index() const { return index_; }
  boost::asio::io_context& io() { return io_; }
  std::span<char> buffer() { return {buffer_.get(), kBufferBytes}; }
  Slots& slots() { return slots_; }
  Random& random() { return random_; }
  std::string_view date();  // for header fields: "Sun, 06 Nov 1994 08:49:37 GMT"

  void adopt(int descriptor, std::string client);  // a connection that was accepted
  void forget(Connection& connection);             // one that has closed itself
  const std::vector<std::shared_ptr<Connection>>& connections() const { return connections_; }
  void close_idle();

  void set_deadline(Timed& timed, Wait wait);
  void clear_deadline(Timed& timed) { deadlines_.clear(&timed); }

  // Destroyed once nothing of it runs any more.
  void bury(std::unique_ptr<Work> work);

 private:
  static constexpr size_t kBufferBytes = 64 << 10;

  void run();
  void arm_timer();
  void end_waits();

  Server& server_;
  const uint32_t index_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> alive_;
  boost::asio::steady_timer timer_;
  int64_t timer_ns_ = Deadlines::kNever;  // when it fires
  Deadlines deadlines_;
  std::unique_ptr<char[]> buffer_;
  Slots slots_;
  Random random_;
  int64_t date_second_ = -1;
  std::string date_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Work>> dead_;
  bool burying_ = false;
  Thread thread_;
};

}  // namespace lmn::server
